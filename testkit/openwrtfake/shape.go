package openwrtfake

import (
	"fmt"
	"strconv"
	"strings"
)

// A side is one direction as the scripts shape it.
type side struct {
	dev                 string // device of the queue
	kbit                int64
	limit, target, ecn  string
	opts                string
	ingress             bool
	burst               int64 // bytes, and HTB's quantum
	stab, inHTB, inCake string
}

func (r *run) egress(kbit int64) bool {
	e := r.env
	s := side{dev: e["IFACE"], kbit: kbit, limit: e["ELIMIT"], target: e["ETARGET"], ecn: e["EECN"], opts: e["EQDISC_OPTS"]}
	clear := func() { r.tool(true, "tc qdisc del dev %s root", s.dev) }
	return r.shape(s, clear)
}

func (r *run) ingress(kbit int64) bool {
	e := r.env
	s := side{dev: e["DEV"], kbit: kbit, limit: e["ILIMIT"], target: e["ITARGET"], ecn: e["IECN"], opts: e["IQDISC_OPTS"], ingress: true}
	r.tool(true, "tc qdisc del dev %s handle ffff: ingress", e["IFACE"])
	r.tool(false, "tc qdisc add dev %s handle ffff: ingress", e["IFACE"])
	r.shape(s, func() { r.tool(true, "tc qdisc del dev %s root", s.dev) })
	r.tool(false, "ip link set dev %s up", s.dev)
	return r.tool(false, "tc filter add dev %s parent ffff: protocol all prio 10 u32 match u32 0 0 flowid 1:1 action mirred egress redirect dev %s", e["IFACE"], s.dev)
}

// shape makes the queues of one direction, and reports whether the last command
// succeeded.
func (r *run) shape(s side, clear func()) bool {
	s.stab, s.inHTB, s.inCake = r.linkLayer()
	cake := strings.HasPrefix(r.env["QDISC"], "cake")
	switch r.env["SCRIPT"] {
	case "piece_of_cake.qos":
		clear()
		return r.cake(s, "cake", s.inCake+" diffserv3 nat besteffort"+r.wash(s, false))
	case "layer_cake.qos":
		clear()
		return r.cake(s, "cake", s.inCake+" diffserv3 nat"+r.wash(s, true))
	case "simplest_tbf.qos":
		s.burst = r.burst(s.kbit)
		clear()
		r.tool(false, "tc qdisc add dev %s root handle 1: %s tbf rate %dkbit burst %d latency 300ms %s", s.dev, s.stab, s.kbit, s.burst, s.inHTB)
		return r.leaf(s, "1:", "110:", 0, true)
	case "simplest.qos":
		r.burst(s.kbit) // once for the quantum, and once for the burst
		s.burst = r.burst(s.kbit)
		clear()
		if cake {
			return r.cake(s, "cake", "besteffort "+s.inCake)
		}
		return r.one(s)
	default: // simple.qos
		r.burst(s.kbit)
		s.burst = r.burst(s.kbit)
		clear()
		alone := s.ingress && r.env["IGNORE_DSCP_INGRESS"] == "1"
		switch {
		case cake && alone:
			return r.cake(s, r.env["QDISC"], "besteffort "+s.inCake)
		case cake:
			return r.cake(s, r.env["QDISC"], s.inCake)
		case alone:
			return r.one(s)
		}
		return r.three(s)
	}
}

// wash returns the options that the two CAKE scripts add on ingress.
func (r *run) wash(s side, layers bool) (words string) {
	if !s.ingress {
		return ""
	}
	if n, ok := int64(0), true; layers {
		if n, ok = r.whole(r.env["IGNORE_DSCP_INGRESS"]); ok && n == 1 {
			words += " besteffort"
		}
	}
	if n, ok := r.whole(r.env["ZERO_DSCP_INGRESS"]); ok && n == 1 {
		words += " wash"
	}
	return words
}

func (r *run) cake(s side, qdisc, words string) bool {
	return r.tool(false, "tc qdisc add dev %s root %s %s bandwidth %dkbit %s %s", s.dev, s.stab, qdisc, s.kbit, words, s.opts)
}

// one makes HTB with a single class.
func (r *run) one(s side) bool {
	r.tool(false, "tc qdisc add dev %s root handle 1: %s htb default 10", s.dev, s.stab)
	for _, c := range []string{"parent 1: classid 1:1", "parent 1:1 classid 1:10"} {
		prio := ""
		if strings.HasSuffix(c, "0") {
			prio = "prio 0"
		}
		r.tool(false, "tc class add dev %s %s htb quantum %d rate %dkbit ceil %dkbit burst %d cburst %d %s %s", s.dev, c, s.burst, s.kbit, s.kbit, s.burst, s.burst, prio, s.inHTB)
	}
	return r.leaf(s, "1:10", "110:", 0, true)
}

// three makes HTB with the three classes of simple.qos, and the filters by mark,
// or, on the way in, by DSCP.
func (r *run) three(s side) bool {
	sure, quanta := "128kbit", []int{300, 300, 300}
	if s.ingress {
		sure, quanta = "32kbit", []int{500, 1500, 300}
	}
	class := func(format string, args ...any) {
		r.tool(false, "tc class add dev %s %s %s", s.dev, fmt.Sprintf(format, args...), s.inHTB)
	}
	burst := fmt.Sprintf("burst %d cburst %d", s.burst, s.burst)
	r.tool(false, "tc qdisc add dev %s root handle 1: %s htb default 12", s.dev, s.stab)
	class("parent 1: classid 1:1 htb quantum %d rate %dkbit ceil %dkbit %s", s.burst, s.kbit, s.kbit, burst)
	class("parent 1:1 classid 1:11 htb quantum %d rate %s ceil %dkbit prio 1", s.burst, sure, s.kbit/3)
	class("parent 1:1 classid 1:12 htb quantum %d rate %dkbit ceil %dkbit %s prio 2", s.burst, s.kbit/6, s.kbit-16, burst)
	class("parent 1:1 classid 1:13 htb quantum %d rate %dkbit ceil %dkbit %s prio 3", s.burst, s.kbit/6, s.kbit-16, burst)
	for i, quantum := range quanta {
		r.leaf(s, fmt.Sprintf("1:1%d", i+1), fmt.Sprintf("1%d0:", i+1), quantum, true)
	}
	last := true
	filter := func(format string, args ...any) {
		last = r.tool(false, "tc filter add dev %s %s", s.dev, fmt.Sprintf(format, args...))
	}
	filter("parent 1:0 protocol all prio 999 u32 match ip protocol 0 0x00 flowid 1:12")
	if s.ingress {
		prio := 1
		for _, x := range []struct{ tos, class string }{{"0x00", "12"}, {"0x20", "13"}, {"0x10", "11"}, {"0xb8", "11"}, {"0xc0", "11"}, {"0xe0", "11"}, {"0x90", "11"}} {
			filter("protocol ip parent 1:0 prio %d u32 match ip tos %s 0xfc classid 1:%s", prio, x.tos, x.class)
			filter("protocol ipv6 parent 1:0 prio %d u32 match ip6 priority %s 0xfc classid 1:%s", prio+1, x.tos, x.class)
			prio += 2
		}
		filter("protocol arp parent 1:0 prio %d handle 500 fw flowid 1:11", prio)
		return last
	}
	for i, family := range []string{"ip", "ipv6"} {
		for mark := 1; mark <= 3; mark++ {
			filter("parent 1:0 protocol %s prio %d handle %d/0xff fw classid 1:1%d", family, 3*i+mark, mark, mark)
		}
	}
	filter("parent 1:0 protocol arp prio 7 handle 1/0xff fw classid 1:11")
	filter("parent 1:0 protocol ip prio 8 u32 match ip protocol 1 0xff flowid 1:13")
	filter("parent 1:0 protocol ipv6 prio 9 u32 match ip protocol 1 0xff flowid 1:13")
	return last
}

// leaf gives a class its queue.
func (r *run) leaf(s side, parent, handle string, quantum int, _ bool) bool {
	q := r.env["QDISC"]
	words := []string{r.limit(s.limit), r.target(s.target, s.kbit), r.ecn(s.ecn)}
	if quantum > 0 && (strings.HasSuffix(q, "fq_codel") || q == "fq_pie" || q == "drr") {
		words = append(words, fmt.Sprintf("quantum %d", quantum))
	}
	if strings.HasSuffix(q, "fq_codel") || q == "sfq" {
		words = append(words, "flows 1024")
	}
	return r.tool(false, "tc qdisc add dev %s parent %s handle %s %s %s %s", s.dev, parent, handle, q, strings.Join(words, " "), s.opts)
}

// limit returns the words for how many packets the queue holds.
func (r *run) limit(given string) string {
	q := r.env["QDISC"]
	given = first(given)
	switch {
	case strings.HasSuffix(q, "codel") || strings.HasSuffix(q, "pie") || q == "pfifo_fast" || q == "sfq" || q == "pfifo":
		if given == "" {
			given = "1001"
		}
	case q == "bfifo":
		if given == "" {
			mtu, _ := r.s.Kernel.MTU(r.env["IFACE"])
			given = strconv.Itoa(1001 * mtu)
		}
	default:
		r.log(levelWarning, "qdisc %s does not support a limit", q)
	}
	if given == "" {
		return ""
	}
	return "limit " + given
}

// first returns the first word, as a shell function sees an unquoted argument.
func first(s string) string { return append(strings.Fields(s), "")[0] }

// target returns the option for CoDel's and PIE's target. On a slow line one
// packet takes longer than the usual target.
func (r *run) target(given string, kbit int64) string {
	q := r.env["QDISC"]
	if !strings.HasSuffix(q, "codel") && !strings.HasSuffix(q, "pie") {
		return ""
	}
	text := strings.Join(strings.Fields(given), " ")
	number := text[:len(text)-len(strings.TrimLeft(text, "0123456789"))]
	unit := text[len(strings.TrimRightFunc(text, isLetter)):]
	out, wellFormed := "", false
	switch unit {
	case "s", "sec", "secs", "ms", "msec", "msecs", "us", "usec", "usecs":
		if number != "" {
			out, wellFormed = "target "+number+unit, true
		}
	}
	switch {
	case number == "" && unit == "", unit == "auto", unit == "Auto", unit == "AUTO":
		us := max(33*53*8*1000/kbit, 5000)
		if kbit < 0 {
			us = 5000
		}
		out, wellFormed = fmt.Sprintf("target %dus", us), true
		if strings.HasSuffix(q, "codel") {
			out += fmt.Sprintf(" interval %dus", 95000+us)
		} else if q != "pie" {
			r.refuse("a target of %s", q)
		}
	case unit == "default", unit == "Default", unit == "DEFAULT":
		out, wellFormed = "", true
	}
	if text != "" && !wellFormed {
		r.log(levelWarning, "%s is not a well formed tc target specifier; e.g.: 5ms (or s, us), or one of the strings auto or default.", given)
	}
	return out
}

func isLetter(c rune) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }

func (r *run) ecn(given string) string {
	q := r.env["QDISC"]
	marks := strings.HasSuffix(q, "codel") || strings.HasSuffix(q, "pie") || strings.HasSuffix(q, "red")
	switch word := first(given); {
	case word != "ECN" && word != "NOECN":
		r.log(levelWarning, "ecn value %s not handled", word)
		return word
	case !marks:
		return ""
	default:
		return strings.ToLower(word)
	}
}

// burst returns the burst in bytes: one millisecond at the rate, at least one
// packet.
func (r *run) burst(kbit int64) int64 {
	mtu, _ := r.s.Kernel.MTU(r.env["IFACE"])
	least := (int64(mtu) + 48 + 47) / 48 * 53
	bytes := 1000 * kbit / 8000
	if bytes < least {
		r.log(levelInfo, "get_burst (by duration): the calculated burst/quantum size of %d bytes was below the minimum of %d bytes.", bytes, least)
		return least
	}
	return bytes
}

// linkLayer returns the options for the size of packets on the line, for the
// three places that may have them.
func (r *run) linkLayer() (stab, inHTB, inCake string) {
	e := r.env
	if e["LINKLAYER"] == "none" {
		return "", "", ""
	}
	by := e["LLAM"]
	if by == "default" {
		by = "tc_stab"
		if e["QDISC"] == "cake" {
			by = "cake"
		}
	}
	switch by {
	case "tc_stab":
		stab = fmt.Sprintf("stab mtu %s tsize %s mpu %s overhead %s linklayer %s", e["STAB_MTU"], e["STAB_TSIZE"], e["STAB_MPU"], e["OVERHEAD"], e["LINKLAYER"])
	case "htb_private":
		inHTB = fmt.Sprintf("mpu %s linklayer %s overhead %s mtu %s", e["STAB_MPU"], e["LINKLAYER"], e["OVERHEAD"], e["STAB_MTU"])
	case "cake":
		inCake = fmt.Sprintf("overhead %s mpu %s", e["OVERHEAD"], e["STAB_MPU"])
		if e["LINKLAYER"] == "atm" {
			inCake = "atm " + inCake
		}
	}
	return stab, inHTB, inCake
}
