package linux

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"unbloat/internal/cure/classify"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/unit"
)

// Why returns for both directions the class of a packet of the flow on this
// router, and what decides it now. The flow may also be given
// with its ends swapped, or with its address after NAT.
func Why(ctx context.Context, r platform.Runner, p plan.Plan, f classify.Flow) platform.Answer {
	if p.Classes.ByBPF() {
		return whyProgram(ctx, r, p, f)
	}
	a := platform.Answer{Flow: f}
	carried, known := unit.Size(0), func(int, bool) bool { return false }
	if p.Classes != nil { // otherwise nothing is remembered
		home, found := homeOf(ctx, r, p.WAN), false
		if a.Flow, carried, found = connection(ctx, r, f, home); !found && home(f.Far.Addr()) && !home(f.Home.Addr()) {
			a.Flow.Home, a.Flow.Far = f.Far, f.Home
		}
		a.Note = noteOf(f, a.Flow)
		known = inSets(a.Flow, setsOf(ctx, r, p.WAN))
	}
	for _, d := range []plan.Direction{plan.DirectionUp, plan.DirectionDown} {
		s := p.Up
		if d == plan.DirectionDown {
			s = p.Down
		}
		if s != nil && len(s.PacketRules) > 0 && p.Classes.Of(d == plan.DirectionDown) == nil {
			a.Verdicts = append(a.Verdicts, byPacket(s, d, a.Flow))
			continue
		}
		a.Verdicts = append(a.Verdicts, platform.WhyRules(p, d, a.Flow, carried, known))
	}
	return a
}

// noteOf says how a flow that was asked for stands to the one that the router knows.
func noteOf(asked, known classify.Flow) string {
	switch {
	case known == asked:
		return ""
	case known.Home == asked.Far && known.Far == asked.Home:
		return "the home's end comes first"
	}
	return "before NAT"
}

// byPacket evaluates the filters of a shaper without classes: they look at
// single packets, and small ones go first.
func byPacket(s *plan.Shaper, d plan.Direction, f classify.Flow) platform.Verdict {
	v := platform.Verdict{Direction: d, Class: plan.Normal}
	first := map[plan.Match]plan.Tin{}
	for _, r := range s.PacketRules {
		first[r.Match] = r.Tin
	}
	share := func(t plan.Tin) string {
		part, of := 1, 1
		for range t - 1 { // as CAKE's precedence mode limits each tin
			part, of = part*7, of*8
		}
		return fmt.Sprintf("as long as such packets take no more than %d/%d of the rate", part, of)
	}
	ack, isAck := first[plan.MatchTCPAck]
	small, isSmall := first[plan.MatchSmallUDP]
	switch {
	case f.Protocol == "udp" && isSmall && f.Packet < plan.SmallUDPBelow:
		v.Class = plan.Voice
		v.Rule = fmt.Sprintf("a UDP packet below %s goes first, %s; there are no classes, so nothing else of the flow counts", plan.SmallUDPBelow, share(small))
	case f.Protocol == "tcp" && isAck && f.Packet < plan.AckBelow:
		v.Class = plan.Interactive
		v.Rule = fmt.Sprintf("a TCP packet below %s that only acknowledges goes ahead of data, %s; one with another flag does not", plan.AckBelow, share(ack))
	case f.Protocol == "udp" || f.Protocol == "tcp":
		v.Rule = fmt.Sprintf("a packet of %s: acknowledgements without data and UDP below %s go first; behind them every flow is treated alike", f.Packet, plan.SmallUDPBelow)
	default:
		v.Rule = fmt.Sprintf("no rule puts %s first, as acknowledgements and small UDP are; behind those every flow is treated alike", f.Protocol)
	}
	return v
}

// connection looks up the flow in connection tracking, from /proc or with
// conntrack(8), and returns it with what it has carried both ways. found is false if it is not there, or can't
// be read.
func connection(ctx context.Context, r platform.Runner, f classify.Flow, home func(netip.Addr) bool) (out classify.Flow, carried unit.Size, found bool) {
	text, err := platform.Output(ctx, r, "cat", "/proc/net/nf_conntrack")
	if err != nil {
		family := "ipv6"
		if f.Home.Addr().Is4() {
			family = "ipv4"
		}
		if text, err = platform.Output(ctx, r, "conntrack", "-L", "-f", family, "-p", f.Protocol, "-o", "extended"); err != nil {
			return f, 0, false
		}
	}
	for line := range strings.Lines(string(text)) {
		if !strings.Contains(line, " "+f.Protocol+" ") {
			continue
		}
		if got, n, ok := tracked(line, f, home); ok {
			return got, n, true
		}
	}
	return f, 0, false
}

// tracked reads one line of connection tracking; ok is false if it is not this
// flow. Either end may have begun it, and f may have any of its addresses.
func tracked(line string, f classify.Flow, home func(netip.Addr) bool) (classify.Flow, unit.Size, bool) {
	e := entryOf(line)
	if !e.from.IsValid() || !e.answers.IsValid() {
		return f, 0, false
	}
	pair := func(a, b netip.AddrPort) bool { return f.Home == a && f.Far == b || f.Home == b && f.Far == a }
	if !pair(e.from, e.to) && !pair(e.answersTo, e.answers) { // before and after NAT
		return f, 0, false
	}
	// Which end is the home's? The one in a home network, or else the one given
	// first.
	byHome := f.Home == e.from || f.Home == e.answersTo
	if h, a := home(e.from.Addr()), home(e.answers.Addr()); h != a {
		byHome = h
	}
	if byHome {
		f.Home, f.Far = e.from, e.to
	} else {
		f.Home, f.Far = e.answers, e.from
	}
	return f, e.there.bytes + e.back.bytes, true
}
