package openwrtfake

import (
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A judgement is the result of tc's parser, before the kernel sees the command.
type judgement struct {
	rc   int      // 0: handed to the kernel
	says []string // what tc prints, a line each
	// unsure is set if this parser does not know a word.
	unsure string
}

func passes() judgement              { return judgement{} }
func fails(says ...string) judgement { return judgement{rc: 1, says: says} }
func usage(says ...string) judgement { return judgement{rc: 255, says: says} }
func unsure(what string) judgement   { return judgement{unsure: what} }
func incomplete() judgement          { return usage(`Command line is not complete. Try option "help"`) }

// invalid returns tc's error about a value; for one key tc prints another name.
func invalid(key string) judgement {
	name := key
	if key == "tsize" {
		name = "table size"
	}
	return usage(`Error: argument "invalid ` + name + `" is wrong: ` + key)
}

func (j judgement) isHandedOn() bool  { return j.rc == 0 && j.unsure == "" }
func (j judgement) firstLine() string { return strings.TrimSuffix(append(j.says, "")[0], `\n`) }

// judge reads a command of tc as iproute2 6.1 does. It knows the objects and the
// kinds of queue that sqm-scripts use.
func judge(argv []string) judgement {
	if len(argv) < 3 || argv[0] != "tc" {
		return unsure(strings.Join(argv, " "))
	}
	words := argv[3:]
	switch {
	case argv[2] == "del":
		return passes()
	case argv[1] == "filter": // all of them are sqm-scripts' own
		return passes()
	case argv[1] == "qdisc":
		return judgeQdisc(words)
	case argv[1] == "class":
		return judgeClass(words)
	}
	return unsure(strings.Join(argv, " "))
}

func judgeQdisc(words []string) judgement {
	for len(words) > 0 {
		switch words[0] {
		case "dev", "parent", "handle":
			if len(words) < 2 {
				return incomplete()
			}
			words = words[2:]
		case "root":
			words = words[1:]
		case "ingress":
			return passes()
		case "stab":
			rest, j := judgeStab(words[1:])
			if !j.isHandedOn() {
				return j
			}
			words = rest
		default:
			return judgeKind(words[0], words[1:])
		}
	}
	return incomplete()
}

// judgeStab reads the size table, which ends at the first unknown word.
func judgeStab(words []string) ([]string, judgement) {
	for len(words) > 0 {
		ok := false
		switch key := words[0]; key {
		case "mtu", "tsize", "mpu", "overhead", "linklayer":
			if len(words) < 2 {
				return nil, incomplete()
			}
			switch key {
			case "linklayer":
				ok = isLinkLayer(words[1])
			case "overhead":
				n, err := strconv.ParseInt(words[1], 10, 32)
				ok = err == nil && n == int64(int32(n))
			default:
				_, err := strconv.ParseUint(words[1], 10, 32)
				ok = err == nil
			}
			if !ok {
				return nil, invalid(key)
			}
			words = words[2:]
		default:
			return words, passes()
		}
	}
	return nil, incomplete()
}

func isLinkLayer(s string) bool { return slices.Contains([]string{"ethernet", "atm", "adsl"}, s) }

// A value reports whether tc accepts a word's value; nil: the word has none.
type value func(string) bool

// A grammar is the words of one kind of queue.
type grammar struct {
	words map[string]value
	// illegal is the error about a bad value, unknown that about a bad word.
	illegal, unknown func(word, value string) judgement
	// foreign are words that tc knows and this table does not judge.
	foreign []string
}

var plainNumber = regexp.MustCompile(`^[0-9]+$|^0[xX][0-9a-fA-F]+$`)

// isCount reports whether s is an unsigned 32-bit number in base 8, 10 or 16.
func isCount(s string) bool {
	if !plainNumber.MatchString(s) {
		return false
	}
	_, err := strconv.ParseUint(s, 0, 32)
	return err == nil
}

func isUint16(s string) bool {
	_, err := strconv.ParseUint(s, 10, 16)
	return err == nil
}

// number matches what C's strtod reads, except the forms that odd lists.
var number = regexp.MustCompile(`^[+-]?(0[xX][0-9a-fA-F]+|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?)`)

// leading returns the number at the start of a text.
func leading(s string) (float64, error) {
	n := number.FindString(s)
	if strings.ContainsAny(n, "xX") {
		n += "p0" // Go requires an exponent here
	}
	return strconv.ParseFloat(n, 64)
}

// suffixed reports whether s is a number with one of the units behind it.
func suffixed(s string, units ...string) bool {
	n := number.FindString(s)
	return n != "" && (n == s || slices.ContainsFunc(units, func(u string) bool { return strings.EqualFold(s[len(n):], u) }))
}

func isTime(s string) bool {
	return suffixed(s, "s", "sec", "secs", "ms", "msec", "msecs", "us", "usec", "usecs")
}

func isSize(s string) bool {
	return suffixed(s, "k", "kb", "m", "mb", "g", "gb", "kbit", "mbit", "gbit") && !strings.HasPrefix(s, "-")
}

func isRate(s string) bool {
	units := []string{"bit", "Bps"}
	for _, p := range []string{"k", "m", "g", "t", "ki", "mi", "gi", "ti"} {
		units = append(units, p+"bit", p+"Bps")
	}
	return suffixed(s, units...)
}

func between(low, high int) value {
	return func(s string) bool {
		n, err := strconv.ParseInt(s, 10, 64)
		return err == nil && n >= int64(low) && n <= int64(high)
	}
}

// judgeKind reads the words after a qdisc's kind.
func judgeKind(kind string, words []string) judgement {
	g, known := grammars(kind)
	switch {
	case kind == "pfifo_fast" && len(words) > 0:
		return usage("qdisc 'pfifo_fast' does not support option parsing")
	case kind == "pfifo_fast":
		return passes()
	case !known && (slices.Contains(otherKinds(), kind) || strings.ContainsAny(kind, "/.")):
		return unsure("the queue " + kind)
	case !known && len(words) > 0:
		return fails("Unknown qdisc \"" + kind + "\", hence option \"" + words[0] + "\" is unparsable")
	case !known:
		return passes()
	}
	given := map[string]string{}
	for len(words) > 0 {
		word := words[0]
		takes, is := g.words[word]
		switch {
		case slices.Contains(g.foreign, word):
			return unsure(kind + " " + word)
		case word == "help":
			return judgement{rc: 1, says: usageOf(kind)}
		case !is:
			return g.unknown(word, "")
		case takes == nil:
			given[word], words = "", words[1:]
			continue
		case len(words) < 2:
			return incomplete()
		case odd(words[1]):
			return unsure(kind + " " + word + " " + words[1])
		case !takes(words[1]):
			return g.illegal(word, words[1])
		}
		given[word], words = words[1], words[2:]
	}
	switch {
	case kind == "sfq" && has(given, "ecn"):
		return fails("Required parameter (redflowlimit) is missing")
	case kind == "tbf":
		return judgeTBF(given)
	}
	return passes()
}

func has(m map[string]string, key string) bool { _, is := m[key]; return is }

// odd reports whether C's functions may read a number that number does not
// match.
func odd(s string) bool {
	l := strings.ToLower(strings.TrimLeft(s, "+-"))
	return strings.HasPrefix(l, "inf") || strings.HasPrefix(l, "nan") || strings.HasPrefix(s, "+") || strings.HasPrefix(l, "0x") && strings.ContainsAny(l, ".p")
}

func judgeTBF(given map[string]string) judgement {
	var says []string
	n, err := leading(given["rate"])
	if err != nil || n == 0 || math.IsNaN(n) {
		says = append(says, `tbf: the "rate" parameter is mandatory.`)
	}
	if given["burst"] == "" {
		says = append(says, `tbf: the "burst" parameter is mandatory.`)
	}
	if given["latency"] == "" && given["limit"] == "" {
		says = append(says, `tbf: either "limit" or "latency" is required.`)
	}
	if says != nil {
		return fails(append(says, usageOf("tbf")...)...)
	}
	return passes()
}

// grammars returns the words of a kind of queue.
func grammars(kind string) (grammar, bool) {
	illegal := func(word, _ string) judgement { return fails(`Illegal "` + word + `"`) }
	what := func(word, _ string) judgement {
		return fails(append([]string{`What is "` + word + `"?`}, usageOf(kind)...)...)
	}
	g := grammar{illegal: illegal, unknown: what, words: map[string]value{}}
	flags := func(list string) {
		for w := range strings.FieldsSeq(list) {
			g.words[w] = nil
		}
	}
	takes := func(v value, list string) {
		for w := range strings.FieldsSeq(list) {
			g.words[w] = v
		}
	}
	switch kind {
	case "fq_codel":
		takes(isCount, "limit flows quantum drop_batch")
		takes(isTime, "target interval ce_threshold")
		takes(isSize, "memory_limit")
		flags("ecn noecn")
		g.foreign = []string{"ce_threshold_selector"}
	case "codel":
		takes(isCount, "limit")
		takes(isTime, "target interval ce_threshold")
		flags("ecn noecn")
	case "pie":
		takes(isCount, "limit alpha beta")
		takes(isTime, "target tupdate")
		flags("ecn noecn bytemode nobytemode dq_rate_estimator no_dq_rate_estimator")
	case "fq_pie":
		takes(isCount, "limit flows quantum alpha beta")
		takes(isTime, "target tupdate")
		takes(isSize, "memory_limit")
		flags("ecn noecn bytemode nobytemode dq_rate_estimator no_dq_rate_estimator")
		g.foreign = []string{"ecn_prob"}
	case "sfq":
		takes(isCount, "limit flows divisor depth")
		takes(isSize, "quantum")
		takes(func(s string) bool { return isCount(strings.TrimPrefix(s, "-")) }, "perturb")
		flags("headdrop ecn")
		g.foreign = []string{"redflowlimit", "min", "max", "avpkt", "burst", "probability", "harddrop"}
		g.illegal = func(word, _ string) judgement {
			if word == "quantum" { // its error names another word
				word = "limit"
			}
			return fails(`Illegal "` + word + `"`)
		}
	case "pfifo", "bfifo":
		takes(isSize, "limit")
		g.illegal = func(word, v string) judgement { return fails(kind + `: Illegal value for "` + word + `": "` + v + `"`) }
		g.unknown = func(word, _ string) judgement {
			return fails(append([]string{kind + `: unknown parameter "` + word + `"`}, usageOf(kind)...)...)
		}
	case "cake":
		takes(isRate, "bandwidth")
		takes(isTime, "rtt")
		takes(between(-64, 256), "overhead")
		takes(between(0, 256), "mpu")
		takes(isSize, "memlimit")
		takes(isCount, "fwmark")
		flags("unlimited autorate-ingress datacentre lan metro regional internet oceanic satellite interplanetary")
		flags("besteffort precedence diffserv diffserv8 diffserv4 diffserv3 nat nonat wash nowash split-gso no-split-gso")
		flags("flowblind srchost dsthost hosts flows dual-srchost dual-dsthost triple-isolate")
		flags("ptm atm noatm raw conservative pppoa-vcmux pppoa-llc pppoe-vcmux pppoe-llcsnap bridged-vcmux bridged-llcsnap ipoa-vcmux ipoa-llcsnap")
		flags("pppoe-ptm bridged-ptm via-ethernet ethernet ether-vlan docsis ingress egress ack-filter ack-filter-aggressive no-ack-filter")
		g.illegal = func(word, v string) judgement {
			switch word {
			case "overhead":
				return fails(`Illegal "overhead", valid range is -64 to 256\n`)
			case "mpu":
				return fails(`Illegal "mpu", valid range is 0 to 256\n`)
			case "memlimit", "fwmark":
				return fails(`Illegal value for "` + word + `": "` + v + `"`)
			}
			return illegal(word, v)
		}
	case "htb":
		takes(func(s string) bool { return plainNumber.MatchString(s) }, "default r2q direct_qlen")
		flags("offload")
		g.illegal = func(word, _ string) judgement {
			return fails(append([]string{`Illegal "` + word + `"`}, usageOf("htb")...)...)
		}
	case "tbf":
		takes(isRate, "rate peakrate")
		takes(isSize, "burst buffer maxburst limit mtu minburst")
		takes(isTime, "latency")
		takes(isUint16, "mpu overhead")
		takes(isLinkLayer, "linklayer")
		g.illegal = func(word, v string) judgement { return fails(`tbf: illegal value for "` + word + `": "` + v + `"`) }
		g.unknown = func(word, _ string) judgement {
			return fails(append([]string{`tbf: unknown parameter "` + word + `"`}, usageOf("tbf")...)...)
		}
	default:
		return grammar{}, false
	}
	return g, true
}

// judgeClass reads a class of HTB.
func judgeClass(words []string) judgement {
	for len(words) > 1 && words[0] != "htb" {
		words = words[2:] // dev, parent, classid
	}
	if len(words) == 0 || words[0] != "htb" {
		return unsure("a class of another kind")
	}
	takes := map[string]value{
		"rate": isRate, "ceil": isRate, "burst": isSize, "cburst": isSize, "quantum": isCount, "prio": isCount,
		"mtu": isCount, "mpu": isUint16, "overhead": isUint16, "linklayer": isLinkLayer,
	}
	bad := func(says string) judgement { return fails(append([]string{says}, usageOf("htb")...)...) }
	rate := ""
	for words = words[1:]; len(words) > 0; words = words[2:] {
		v, is := takes[words[0]]
		switch {
		case !is:
			return bad(`What is "` + words[0] + `"?`)
		case len(words) < 2:
			return incomplete()
		case !v(words[1]):
			return bad(`Illegal "` + words[0] + `"`)
		case words[0] == "rate":
			rate = words[1]
		}
	}
	if n, err := leading(rate); err != nil || n == 0 {
		return fails(`"rate" is required.`)
	}
	return passes()
}

// otherKinds are the queues whose words tc knows and this parser does not.
func otherKinds() []string {
	return strings.Fields("atm cbq cbs choke clsact drr dsmark etf ets fq gred hfsc hhf mq mqprio multiq netem noqueue pfifo_head_drop plug prio qfq red rr sfb skbprio taprio teql0")
}

// usageOf returns tc's usage text for a kind of qdisc.
func usageOf(kind string) []string {
	text := map[string]string{
		"codel": "Usage: ... codel [ limit PACKETS ] [ target TIME ]\n\t\t [ interval TIME ] [ ecn | noecn ]\n\t\t [ ce_threshold TIME ]",
		"pie":   "Usage: ... pie [ limit PACKETS ] [ target TIME ]\n               [ tupdate TIME ] [ alpha ALPHA ] [ beta BETA ]\n               [ bytemode | nobytemode ] [ ecn | noecn ]\n               [ dq_rate_estimator | no_dq_rate_estimator ]",
		"fq_pie": "Usage: ... fq_pie [ limit PACKETS ] [ flows NUMBER ]\n                  [ target TIME ] [ tupdate TIME ]\n                  [ alpha NUMBER ] [ beta NUMBER ]\n                  [ quantum BYTES ] [ memory_limit BYTES ]\n" +
			"                  [ ecn_prob PERCENTAGE ] [ [no]ecn ]\n                  [ [no]bytemode ] [ [no_]dq_rate_estimator ]",
		"sfq": "Usage: ... sfq\t[ limit NUMBER ] [ perturb SECS ] [ quantum BYTES ]\n\t\t[ divisor NUMBER ] [ flows NUMBER] [ depth NUMBER ]\n\t\t[ headdrop ]\n\t\t[ redflowlimit BYTES ] [ min BYTES ] [ max BYTES ]\n" +
			"\t\t[ avpkt BYTES ] [ burst PACKETS ] [ probability P ]\n\t\t[ ecn ] [ harddrop ]",
		"pfifo": "Usage: ... <[p|b]fifo | pfifo_head_drop> [ limit NUMBER ]",
		"bfifo": "Usage: ... <[p|b]fifo | pfifo_head_drop> [ limit NUMBER ]",
		"fq_codel": "Usage: ... fq_codel\t[ limit PACKETS ] [ flows NUMBER ]\n[ memory_limit BYTES ]\n[ target TIME ] [ interval TIME ]\n[ quantum BYTES ] [ [no]ecn ]\n[ ce_threshold TIME ]\n" +
			"[ ce_threshold_selector VALUE/MASK ]\n[ drop_batch SIZE ]",
		"cake": "Usage: ... cake [ bandwidth RATE | unlimited* | autorate-ingress ]\n                [ rtt TIME | datacentre | lan | metro | regional |\n                  internet* | oceanic | satellite | interplanetary ]\n" +
			"                [ besteffort | diffserv8 | diffserv4 | diffserv3* ]\n                [ flowblind | srchost | dsthost | hosts | flows |\n                  dual-srchost | dual-dsthost | triple-isolate* ]\n" +
			"                [ nat | nonat* ]\n                [ wash | nowash* ]\n                [ split-gso* | no-split-gso ]\n                [ ack-filter | ack-filter-aggressive | no-ack-filter* ]\n                [ memlimit LIMIT ]\n" +
			"                [ fwmark MASK ]\n                [ ptm | atm | noatm* ] [ overhead N | conservative | raw* ]\n                [ mpu N ] [ ingress | egress* ]\n                (* marks defaults)",
		"tbf": "Usage: ... tbf limit BYTES burst BYTES[/BYTES] rate KBPS [ mtu BYTES[/BYTES] ]\n\t[ peakrate KBPS ] [ latency TIME ] [ overhead BYTES ] [ linklayer TYPE ]",
		"htb": "Usage: ... qdisc add ... htb [default N] [r2q N]\n                      [direct_qlen P] [offload]\n default  minor id of class to which unclassified packets are sent {0}\n r2q      DRR quantums are computed as rate in Bps/r2q {10}\n" +
			" debug    string of 16 numbers each 0-3 {0}\n direct_qlen  Limit of the direct queue {in packets}\n offload  enable hardware offload\n... class add ... htb rate R1 [burst B1] [mpu B] [overhead O]\n                      [prio P] [slot S] [pslot PS]\n" +
			"                      [ceil R2] [cburst B2] [mtu MTU] [quantum Q]\n rate     rate allocated to this class (class can still borrow)\n burst    max bytes burst which can be accumulated during idle period {computed}\n mpu      minimum packet size used in rate computations\n" +
			" overhead per-packet size overhead used in rate computations\n linklay  adapting to a linklayer e.g. atm\n ceil     definite upper class rate (no borrows) {rate}\n cburst   burst but for ceil {computed}\n mtu      max packet size we create rate map for {1600}\n" +
			" prio     priority of leaf; lower are served first {0}\n quantum  how much bytes to serve from leaf at once {use r2q}\nTC HTB version 3.3",
	}[kind]
	return strings.Split(text, "\n")
}
