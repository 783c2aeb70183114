package pfctl

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// text prints the rule as `pfctl -sr` and `pfctl -nv` do: with address families
// and defaults, and the words in pfctl's order.
func (r rule) text(old bool) string {
	var b strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&b, format, args...) }
	b.WriteString(r.head())
	if r.dir != "" {
		say(" %s", r.dir)
	}
	b.WriteString(r.log)
	if r.quick {
		say(" quick")
	}
	if r.iface.name != "" || r.iface.domain >= 0 {
		say(" on ")
		if r.iface.not {
			say("! ")
		}
		if r.iface.name != "" {
			b.WriteString(r.iface.name)
		} else {
			say("rdomain %d", r.iface.domain)
		}
	}
	switch r.af {
	case 4:
		say(" inet")
	case 6:
		say(" inet6")
	}
	if r.proto != 0 {
		if name := protocolName(r.proto); name != "" {
			say(" proto %s", name)
		} else {
			say(" proto %d", r.proto)
		}
	}
	b.WriteString(r.ends(old))
	b.WriteString(r.conditions(old))
	if old {
		b.WriteString(r.oldTail())
	} else {
		b.WriteString(r.tail())
	}
	if r.opts.rtable >= 0 && r.opts.seen != nil {
		say(" rtable %d", r.opts.rtable)
	}
	return b.String() + r.target + r.translated()
}

// head prints the action of the rule.
func (r rule) head() string {
	s := r.action
	if r.pass {
		s += " pass"
	}
	if r.action == "anchor" || strings.HasSuffix(r.action, "-anchor") {
		if r.named {
			s += fmt.Sprintf(" %q", r.name)
		}
	}
	if kind, code, ok := strings.Cut(r.block, "\x00"); ok {
		four, six, _ := strings.Cut(code, "\x00")
		switch r.af {
		case 4:
			return s + " " + kind + "(" + four + ")"
		case 6:
			return s + " " + kind + "6(" + six + ")"
		}
		return s + " " + kind + "(" + four + ", " + six + ")"
	}
	if r.block != "" {
		s += " " + r.block
	}
	return s
}

func (r rule) ends(old bool) string {
	if r.src.any() && r.dst.any() && !r.src.not && !r.dst.not && r.srcPort.op == "" && r.dstPort.op == "" {
		return " all"
	}
	one := func(h host, o port) string {
		s := h.text(r.af)
		if h.not {
			s = "! " + s
		}
		if o.op != "" {
			s += " port" + o.text(r.proto, old)
		}
		return s
	}
	return " from " + one(r.src, r.srcPort) + " to " + one(r.dst, r.dstPort)
}

// text prints a port, in ALTQ's grammar by its name.
func (o port) text(proto int, old bool) string {
	a, b := strconv.Itoa(o.a), strconv.Itoa(o.b)
	switch o.op {
	case ":":
		return " " + a + ":" + b
	case "><", "<>":
		return " " + a + " " + o.op + " " + b
	}
	over := "udp"
	if proto == tcp {
		over = "tcp"
	}
	if name := serviceName(o.a, over); old && name != "" && (o.op == "=" || o.op == "!=") {
		a = name
	}
	return " " + o.op + " " + a
}

func (u ugid) text(what string) string {
	show := func(n int64) string {
		if n == math.MaxUint32 && (u.op == "=" || u.op == "!=") {
			return "unknown"
		}
		return strconv.FormatInt(n, 10)
	}
	if u.op == "><" || u.op == "<>" {
		return fmt.Sprintf(" %s %d %s %d", what, u.a, u.op, u.b)
	}
	return " " + what + " " + u.op + " " + show(u.a)
}

// conditions prints what the old and the current pfctl print alike.
func (r rule) conditions(old bool) string {
	var b strings.Builder
	o := r.opts
	if o.received != nil {
		b.WriteString(" ")
		if o.received.not {
			b.WriteString("!")
		}
		b.WriteString("received-on " + o.received.name)
	}
	if r.user.op != "" {
		b.WriteString(r.user.text("user"))
	}
	if r.group.op != "" {
		b.WriteString(r.group.text("group"))
	}
	passes := r.action == "pass" || !old && r.action == "match"
	switch {
	case r.flags != "":
		b.WriteString(" flags " + r.flags)
	case passes && (r.proto == 0 || r.proto == tcp) && !o.fragment && r.keep != "":
		b.WriteString(" flags any")
	}
	if r.icmp != nil {
		word := " icmp-type "
		if r.af == 6 {
			word = " icmp6-type "
		}
		name := icmpTypeName(r.af, r.icmp.kind)
		if name == "" {
			name = strconv.Itoa(r.icmp.kind)
		}
		b.WriteString(word + name)
		if r.icmp.code >= 0 {
			code := ""
			if r.icmp.kind == map[int]int{4: 3, 6: 1}[r.af] {
				code = unreachName(r.af, r.icmp.code)
			}
			if code == "" {
				code = strconv.Itoa(r.icmp.code)
			}
			b.WriteString(" code " + code)
		}
	}
	if o.tos != 0 {
		fmt.Fprintf(&b, " tos 0x%02x", o.tos)
	}
	return b.String()
}

// sets prints the values that a rule of today's grammar sets.
func (o filterOptions) sets() string {
	var list []string
	if o.setPrio != nil {
		if o.setPrio[0] == o.setPrio[1] {
			list = append(list, fmt.Sprintf("prio %d", o.setPrio[0]))
		} else {
			list = append(list, fmt.Sprintf("prio(%d, %d)", o.setPrio[0], o.setPrio[1]))
		}
	}
	if o.first != "" {
		list = append(list, fmt.Sprintf("queue(%s, %s)", o.queue, o.first))
	} else if o.queue != "" {
		list = append(list, "queue "+o.queue)
	}
	if o.seen["set tos"] {
		list = append(list, fmt.Sprintf("tos 0x%02x", o.setTOS))
	}
	if o.seen["delay"] {
		list = append(list, fmt.Sprintf("delay %d", o.delay))
	}
	if len(list) == 0 {
		return ""
	}
	return " set (" + strings.Join(list, ", ") + ")"
}

// tail prints the rest of a rule in today's grammar.
func (r rule) tail() string {
	o := r.opts
	s := ""
	if o.prio >= 0 {
		s += fmt.Sprintf(" prio %d", o.prio)
	}
	if o.rate[0] != 0 {
		s += fmt.Sprintf(" max-pkt-rate %d/%d", o.rate[0], o.rate[1])
	}
	s += o.sets()
	states := r.states()
	switch {
	case r.keep == "" && r.action == "pass":
		s += " no state"
	case r.keep == "keep" && states != "" || r.keep == "modulate" || r.keep == "synproxy":
		s += " " + r.keep + " state"
	}
	if o.prob != 0 {
		s += " probability " + probability(o.prob) + "%"
	}
	s += states
	if o.fragment {
		s += " fragment"
	}
	if scrub := o.scrub.text(); scrub != "" {
		s += " scrub (" + scrub + ")"
	}
	if o.allowOpts {
		s += " allow-opts"
	}
	if r.label != "" {
		s += fmt.Sprintf(" label %q", r.label)
	}
	if o.once {
		s += " once"
	}
	return s + r.tags()
}

func (r rule) tags() string {
	s := ""
	if r.tag != "" {
		s += " tag " + r.tag
	}
	if r.tagged != "" {
		if r.opts.taggedNot {
			s += " !"
		}
		s += " tagged " + r.tagged
	}
	return s
}

func (s scrubOptions) text() string {
	var list []string
	add := func(is bool, format string, args ...any) {
		if is {
			list = append(list, fmt.Sprintf(format, args...))
		}
	}
	add(s.noDF, "no-df")
	add(s.randomID, "random-id")
	add(s.minTTL != 0, "min-ttl %d", s.minTTL)
	add(s.reassemble, "reassemble tcp")
	add(s.maxMSS != 0, "max-mss %d", s.maxMSS)
	return strings.Join(list, " ")
}

// oldTail prints the rest of a rule in ALTQ's grammar.
func (r rule) oldTail() string {
	o := r.opts
	s := ""
	switch {
	case r.keep == "" && r.action == "pass":
		s += " no state"
	case r.keep != "":
		s += " " + r.keep + " state"
	}
	if o.prob != 0 {
		s += " probability " + probability(o.prob) + "%"
	}
	s += r.states()
	if o.fragment {
		s += " fragment"
	}
	add := func(is bool, format string, args ...any) {
		if is {
			s += fmt.Sprintf(format, args...)
		}
	}
	add(r.scrub.noDF, " no-df")
	add(r.scrub.randomID, " random-id")
	add(r.scrub.minTTL != 0, " min-ttl %d", r.scrub.minTTL)
	add(r.scrub.maxMSS != 0, " max-mss %d", r.scrub.maxMSS)
	add(r.scrub.setTOS != 0, " set-tos 0x%02x", r.scrub.setTOS)
	add(o.allowOpts, " allow-opts")
	if r.action == "scrub" {
		add(r.scrub.reassemble, " reassemble tcp")
		how := r.scrub.fragments
		if how == "" {
			how = "reassemble"
		}
		add(true, " fragment %s", how)
	}
	add(r.label != "", " label %q", r.label)
	if o.first != "" {
		s += fmt.Sprintf(" queue(%s, %s)", o.queue, o.first)
	} else if o.queue != "" {
		s += " queue " + o.queue
	}
	return s + r.tags()
}

// states prints the state options of a rule.
func (r rule) states() string {
	seen := map[string]stateOption{}
	for _, s := range r.opts.state {
		seen[s.name] = s
	}
	if len(seen) == 0 {
		return ""
	}
	conns, conn := seen["max-src-conn"]
	rate, rated := seen["max-src-conn-rate"]
	nodes, noded := seen["max-src-nodes"]
	kept, keeps := seen["max-src-states"]
	track, tracked := seen["source-track"]
	limit := seen["max"].a
	var list []string
	add := func(is bool, format string, args ...any) {
		if is {
			list = append(list, fmt.Sprintf(format, args...))
		}
	}
	add(limit != 0, "max %d", limit)
	_, sync := seen["no-sync"]
	add(sync, "no-sync")
	if tracked || conn || rated || noded || keeps {
		word := "global"
		if track.text == "rule" || conn || rated || noded {
			word = "rule"
		}
		add(true, "source-track %s", word)
	}
	add(keeps, "max-src-states %d", kept.a)
	add(conn, "max-src-conn %d", conns.a)
	add(rated, "max-src-conn-rate %d/%d", rate.a, rate.b)
	add(noded, "max-src-nodes %d", nodes.a)
	over, overload := seen["overload"]
	add(overload, "overload <%s>%s", over.text, over.flush)
	for _, w := range []string{"if-bound", "sloppy", "pflow"} {
		_, is := seen[w]
		add(is, "%s", w)
	}
	times := map[string]int64{}
	for _, w := range timeouts() {
		if s, ok := seen[w]; ok {
			times[w] = s.a
		}
	}
	_, start := seen["adaptive.start"]
	_, stop := seen["adaptive.end"]
	if limit != 0 && !start && !stop {
		times["adaptive.start"], times["adaptive.end"] = limit/10*6, limit/10*12
	}
	if rated {
		times["src.track"] = max(times["src.track"], rate.b)
	}
	for _, w := range timeouts() {
		add(times[w] != 0, "%s %d", w, times[w])
	}
	if len(list) == 0 || slices.Equal(list, []string{"floating"}) {
		return ""
	}
	return " (" + strings.Join(list, ", ") + ")"
}

// translated prints the targets of nat-to and rdr-to.
func (r rule) translated() string {
	ports := func(o port) string {
		switch o.op {
		case "=":
			return fmt.Sprintf(" port %d", o.a)
		case ":":
			return fmt.Sprintf(" port %d:%d", o.a, o.b)
		}
		return ""
	}
	pool := func(h host) string {
		if h.place == dynamic && !slices.Contains(h.mods, "0") {
			return " round-robin"
		}
		return ""
	}
	if to := r.opts.natTo; to != nil {
		h := to.hosts[0]
		s := " nat-to " + h.text(r.af) + ports(to.port) + pool(h)
		if to.static {
			s += " static-port"
		}
		return s
	}
	if to := r.opts.rdrTo; to != nil {
		h := to.hosts[0]
		return " rdr-to " + h.text(r.af) + ports(to.port) + pool(h)
	}
	return ""
}
