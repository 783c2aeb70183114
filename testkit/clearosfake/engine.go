// Package clearosfake stands in for ClearOS's own engine of QoS in tests: qos.conf and
// network.conf go in, and the commands that it would run come out, with its
// messages and the Lua error that ended it. It follows the behaviour of
// libqos.lua of app-qos 9afeab23db57 and is tested against recordings of it
// (testkit/fake). It shares no code with the renderer of the
// settings, and returns an error for anything it does not know.
package clearosfake

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A Result is what the engine did.
type Result struct {
	Commands []string
	Says     []string
	Error    string // the Lua error that ended it: FILE:LINE: what; "": none
}

// Engine runs the engine on the text of qos.conf and network.conf (nil: there
// is no such file) for a family, "ipv4" or "ipv6". An error means that this
// stand-in does not know the answer.
func Engine(qos string, network *string, family string) (Result, error) {
	set, err := shellSettings(qos)
	if err != nil {
		return Result{}, fmt.Errorf("qos.conf: %w", err)
	}
	if family != "ipv4" && family != "ipv6" {
		return Result{}, fmt.Errorf("a family %q", family)
	}
	e := &engine{set: set, network: network, family: family}
	e.run()
	if e.refused != nil {
		return Result{}, e.refused
	}
	return e.Result, nil
}

type engine struct {
	Result
	set     map[string]string
	network *string
	family  string
	refused error

	devices []string
	up      rates
	down    rates
}

// rates are the interfaces' rates in one direction.
type rates struct {
	ifaces table[*iface]
	sure   *table[*shares] // nil: they could not be read
	most   *table[*shares]
}

// An iface is one interface in one direction. Its rate is the text from the
// file, in kbit/s.
type iface struct {
	rate, r2q string
	least     string
}

// shares are the shares of the seven classes, in percent.
type shares [7]float64

// order is the order in which Lua iterates a table of seven numbers.
func order() []int { return []int{1, 2, 3, 4, 5, 6, 0} }

func (e *engine) fail(line int, format string, args ...any) bool {
	e.Error = fmt.Sprintf("libqos.lua:%d: ", line) + fmt.Sprintf(format, args...)
	return false
}

func (e *engine) say(format string, args ...any) {
	e.Says = append(e.Says, fmt.Sprintf(format, args...))
}

func (e *engine) execute(format string, args ...any) {
	text, _, _ := strings.Cut(fmt.Sprintf(format, args...), "\n") // a second shell command is not run
	e.Commands = append(e.Commands, text)
}

func (e *engine) refuse(format string, args ...any) {
	if e.refused == nil {
		e.refused = fmt.Errorf("the stand-in for ClearOS's engine does not know what becomes of "+format, args...)
	}
}

func (e *engine) run() {
	e.say("Running external QoS bandwidth manager")
	rules := e.rules()
	if !e.interfaces(&e.up, "QOS_UPSTREAM", "upstream") || !e.interfaces(&e.down, "QOS_DOWNSTREAM", "downstream") {
		return
	}
	e.up.sure, e.up.most = e.shares("QOS_UPSTREAM_BWRES"), e.shares("QOS_UPSTREAM_BWLIMIT")
	e.down.sure, e.down.most = e.shares("QOS_DOWNSTREAM_BWRES"), e.shares("QOS_DOWNSTREAM_BWLIMIT")
	if !e.complete(&e.up) || !e.complete(&e.down) {
		return
	}
	if !e.sum("Reserved upstream", e.up.sure) || !e.sum("Reserved downstream", e.down.sure) ||
		!e.limit("Upstream limit", e.up) || !e.limit("Downstream limit", e.down) {
		return
	}
	for _, r := range []rates{e.up, e.down} {
		for _, name := range r.ifaces.keys() {
			if !slices.Contains(e.devices, name) {
				e.devices = append(e.devices, name)
			}
		}
	}
	if len(e.devices) == 0 {
		e.say("No external interfaces configured for QoS, aborting...")
		return
	}
	for _, dev := range e.devices {
		e.execute("/sbin/tc qdisc del dev %s root >/dev/null 2>&1", dev)
	}
	for _, dev := range e.devices {
		if !e.least(dev) {
			return
		}
	}
	for _, dev := range e.devices {
		for _, r := range []rates{e.up, e.down} {
			if i, _ := r.ifaces.get(dev); i.r2q == "auto" {
				i.r2q = fmt.Sprintf("<r2q of %s %s>", dev, i.least)
			}
		}
	}
	if e.shape(0, e.up, rules) {
		e.shape(1, e.down, rules)
	}
}

// entries splits a value at blanks. Tabs are removed, line ends ignored.
func entries(value string) (out []string) {
	for word := range strings.SplitSeq(strings.ReplaceAll(value, "\t", ""), " ") {
		if word != "" {
			out = append(out, word)
		}
	}
	return out
}

var pair = regexp.MustCompile(`([0-9A-Za-z]+):([0-9A-Za-z]+)`)

// interfaces reads IF:R2Q, which the engine finds anywhere in a word.
func (e *engine) interfaces(r *rates, key, direction string) bool {
	for _, word := range entries(e.set[key]) {
		m := pair.FindStringSubmatch(word)
		if m == nil {
			return e.fail(90, "Invalid interface configuration syntax detected: %s", word)
		}
		r.ifaces.put(m[1], &iface{rate: e.speed(m[1], direction), r2q: m[2]})
	}
	return true
}

// speed returns the interface's first number in network.conf, on any line.
func (e *engine) speed(dev, direction string) string {
	if e.network == nil {
		return "0"
	}
	key := regexp.MustCompile(strings.ToUpper(dev) + "_MAX_" + strings.ToUpper(direction) + `[\s\v]*=[\s\v]*([0-9]+)`)
	for line := range strings.SplitSeq(*e.network, "\n") {
		if m := key.FindStringSubmatch(line); m != nil {
			if len(m[1]) > 15 {
				e.refuse("a rate of %s", m[1])
			}
			return m[1]
		}
	}
	return "0"
}

var seven = regexp.MustCompile(`([0-9A-Za-z*]+):([0-9]+):([0-9]+):([0-9]+):([0-9]+):([0-9]+):([0-9]+):([0-9]+)`)

// shares reads IF:N:N:N:N:N:N:N. All entries are one and the same table, so the
// last one's numbers hold for each.
func (e *engine) shares(key string) *table[*shares] {
	t, all := &table[*shares]{}, &shares{}
	for _, word := range entries(e.set[key]) {
		m := seven.FindStringSubmatch(word)
		if m == nil {
			e.say("Invalid bandwidth value syntax detected: %s", word)
			return nil
		}
		for i := range all {
			if len(m[2+i]) > 9 {
				e.refuse("a share of %s", m[2+i])
			}
			all[i], _ = strconv.ParseFloat(m[2+i], 64)
		}
		t.put(m[1], all)
	}
	return t
}

// complete gives interfaces without shares those of "*", or the engine's
// defaults.
func (e *engine) complete(r *rates) bool {
	for _, x := range []struct {
		t    *table[*shares]
		own  shares
		line int
		name string
	}{{r.sure, shares{15, 15, 14, 14, 14, 14, 14}, 166, "rate_res"}, {r.most, shares{100, 100, 100, 100, 100, 100, 100}, 194, "rate_limit"}} {
		for _, dev := range r.ifaces.keys() {
			if x.t == nil {
				return e.fail(x.line, "attempt to index local '%s' (a nil value)", x.name)
			}
			if _, has := x.t.get(dev); has {
				continue
			}
			own := x.own
			given := &own
			if star, has := x.t.get("*"); has {
				given = star
			}
			x.t.put(dev, given)
		}
	}
	return true
}

// sum refuses more than 100 percent, and distributes the rest one by one from
// the first class on.
func (e *engine) sum(name string, t *table[*shares]) bool {
	if t == nil {
		return e.fail(216, "bad argument #1 to 'pairs' (table expected, got nil)")
	}
	for _, dev := range t.keys() {
		s, _ := t.get(dev)
		left := 100.0
		for i := range len(s) { // not over s: Go 1.26 for mips breaks off there
			left -= s[i]
		}
		if left < 0 {
			e.say("%s bandwidth overflow (>100%%) for interface: %s", name, dev)
			return false
		}
		for i := 0; left > 0; i = (i + 1) % len(s) {
			s[i]++
			left--
		}
	}
	return true
}

// limit refuses a limit below the reserved share or above 100.
func (e *engine) limit(name string, r rates) bool {
	if r.most == nil {
		return e.fail(247, "bad argument #1 to 'pairs' (table expected, got nil)")
	}
	for _, dev := range r.most.keys() {
		most, _ := r.most.get(dev)
		for _, i := range order() {
			sure, has := r.sure.get(dev)
			switch {
			case !has:
				return e.fail(249, "attempt to index field '?' (a nil value)")
			case most[i] < sure[i]:
				e.say("%s bandwidth underflow (<%.0f%%, bucket #%d) for interface: %s", name, sure[i], i, dev)
				return false
			case most[i] > 100:
				e.say("%s bandwidth overflow (>100%%, bucket #%d) for interface: %s", name, i, dev)
				return false
			}
		}
	}
	return true
}

// least finds the lowest rate of a class, from which the quantum is computed.
func (e *engine) least(dev string) bool {
	up, has := e.up.ifaces.get(dev)
	if !has {
		return e.fail(572, "attempt to index field '?' (a nil value)")
	}
	down, has := e.down.ifaces.get(dev)
	if !has {
		return e.fail(573, "attempt to index field '?' (a nil value)")
	}
	up.least, down.least = up.rate, down.rate
	for _, key := range []string{"*", dev} {
		for n, x := range []struct {
			i *iface
			t *table[*shares]
		}{{up, e.up.sure}, {down, e.down.sure}} {
			s, has := x.t.get(key)
			if !has {
				return e.fail(575+6*n, "bad argument #1 to 'pairs' (table expected, got nil)")
			}
			for _, share := range s {
				if v := share * number(x.i.rate) / 100; v < number(x.i.least) {
					x.i.least = lua(v)
				}
			}
		}
	}
	return true
}

func number(s string) float64 {
	n, _ := strconv.ParseFloat(s, 64)
	return n
}

// lua formats a number as Lua does: 14 digits.
func lua(n float64) string {
	text := strconv.FormatFloat(n, 'g', 14, 64)
	mantissa, exponent, big := strings.Cut(text, "e")
	if strings.Contains(mantissa, ".") {
		mantissa = strings.TrimRight(strings.TrimRight(mantissa, "0"), ".")
	}
	if big {
		return mantissa + "e" + exponent
	}
	return mantissa
}

// shape makes the classes of one direction and their rules.
func (e *engine) shape(direction int, r rates, rules []rule) bool {
	byIFB := e.set["QOS_ENABLE_IFB"] == "yes"
	if direction == 1 && byIFB {
		e.execute("/sbin/modprobe ifb numifbs=%d", len(e.devices))
		e.execute("/sbin/modprobe act_mirred")
	} else if direction == 1 {
		e.execute("/sbin/modprobe imq numdevs=%d", len(e.devices))
	}
	for id, dev := range e.devices {
		name, chain := dev, "BWQOS_UP_"+dev
		if direction == 0 {
			e.execute("/sbin/ip link set dev %s qlen 30", dev)
		} else {
			name, chain = fmt.Sprintf("imq%d", id), "BWQOS_DOWN_"+dev
			if byIFB {
				name = fmt.Sprintf("ifb%d", id)
			}
			e.execute("/sbin/ip link set %s up", name)
		}
		i, _ := r.ifaces.get(dev)
		sure, _ := r.sure.get(dev)
		most, _ := r.most.get(dev)
		e.execute("/sbin/tc qdisc add dev %s root handle 1: htb default %d6 r2q %s", name, id+1, i.r2q)
		e.execute("/sbin/tc class add dev %s parent 1: classid 1:1 htb rate %skbit", name, i.rate)
		for band := range sure {
			class := fmt.Sprintf("%d%d", id+1, band)
			e.execute("/sbin/tc class add dev %s parent 1:1 classid 1:%s htb rate %skbit ceil %skbit prio %d", name, class,
				lua(math.Floor(sure[band]*number(i.rate)/100)), lua(math.Floor(most[band]*number(i.rate)/100)), band)
			e.execute("/sbin/tc qdisc add dev %s parent 1:%s handle %s: sfq perturb 10", name, class, class)
			e.execute("/sbin/tc filter add dev %s parent 1:0 prio 0 protocol ip handle %s fw flowid 1:%s", name, class, class)
		}
		e.execute("iptables -t mangle -N %s", chain)
		if !e.mark(direction, dev, chain, rules) {
			return false
		}
		switch {
		case direction == 0:
			e.execute("iptables -t mangle -I POSTROUTING -o %s -j %s", dev, chain)
			continue
		case byIFB: // fails: there is no ingress qdisc
			e.execute("/sbin/tc filter add dev %s parent 1: protocol all u32 match u32 0 0  action mirred egress redirect dev %s", dev, name)
		default:
			e.execute("iptables -t mangle -A %s -j IMQ --todev %d", chain, id)
		}
		e.execute("iptables -t mangle -I PREROUTING -i %s -j %s", dev, chain)
	}
	return true
}
