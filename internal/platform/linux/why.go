package linux

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"time"

	"unbloat/internal/lang/nft"
	"unbloat/internal/plan"
	"unbloat/internal/platform"
	"unbloat/unit"
)

// Why returns for both directions the class of a packet of the flow on this
// router, and the plan's rule that decides it now. The flow may also be given
// with its ends swapped, or with its address after NAT.
func Why(ctx context.Context, r platform.Runner, p plan.Plan, f nft.Flow) platform.Answer {
	if p.Classes.ByBPF() {
		return whyProgram(ctx, r, p, f)
	}
	c := nft.Connection{}
	a := platform.Answer{Flow: f}
	in := func(string, string) bool { return false }
	if p.ByBehaviour() { // otherwise the router keeps no state for it
		home := homeOf(ctx, r, p.WAN)
		var before carried
		a.Flow, c, before = connection(ctx, r, f, home)
		if !c.Known && home(f.Far.Addr()) && !home(f.Home.Addr()) {
			a.Flow.Home, a.Flow.Far = f.Far, f.Home
		}
		a.Note = noteOf(f, a.Flow)
		in = func(set, key string) bool { return inTable(ctx, r, set, key) }
		if c.Known && isSteady(a.Flow, in) {
			c = withRates(ctx, r, f, home, c, before)
		}
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
		a.Verdicts = append(a.Verdicts, nft.Decide(p, d, a.Flow, c, in))
	}
	return a
}

// noteOf says how a flow that was asked for stands to the one that the router knows.
func noteOf(asked, known nft.Flow) string {
	switch {
	case known == asked:
		return ""
	case known.Home == asked.Far && known.Far == asked.Home:
		return "the home's end comes first"
	}
	return "before NAT"
}

// inTable reports whether a set of the table holds a key now.
func inTable(ctx context.Context, r platform.Runner, set, key string) bool {
	_, err := platform.Output(ctx, r, "nft", "get", "element", nft.Family, nft.TableIs, set, "{ "+key+" }")
	return err == nil
}

// rateOver is how long a flow is watched for its rate.
const rateOver = time.Second

// A carried is what a connection has carried in each direction.
type carried struct{ up, down unit.Size }

// isSteady reports whether a flow has its class for being steady.
func isSteady(f nft.Flow, in func(set, key string) bool) bool {
	n := "6"
	if f.Home.Addr().Is4() {
		n = "4"
	}
	return f.Protocol == "udp" && (in("steady"+n+"_up", f.Key()) || in("steady"+n+"_down", f.Key()))
}

// withRates adds to a connection what it carries now; where that cannot be
// measured it stays unknown.
func withRates(ctx context.Context, r platform.Runner, f nft.Flow, home func(netip.Addr) bool, c nft.Connection, before carried) nft.Connection {
	began := time.Now()
	select {
	case <-ctx.Done():
		return c
	case <-time.After(rateOver):
	}
	_, later, after := connection(ctx, r, f, home)
	took := time.Since(began)
	if !later.Known || after.up < before.up || after.down < before.down {
		return c
	}
	rate := func(n unit.Size) unit.Rate { return unit.Rate(float64(n) * 8 / took.Seconds()) }
	later.Up, later.Down = rate(after.up-before.up), rate(after.down-before.down)
	return later
}

// byPacket evaluates the filters of a shaper without classes: they look at
// single packets, and small ones go first.
func byPacket(s *plan.Shaper, d plan.Direction, f nft.Flow) nft.Verdict {
	v := nft.Verdict{Direction: d, Class: plan.Normal}
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
// conntrack(8), and returns it as the table sees it. Connection.Unread says
// that there is neither.
func connection(ctx context.Context, r platform.Runner, f nft.Flow, home func(netip.Addr) bool) (nft.Flow, nft.Connection, carried) {
	out, err := platform.Output(ctx, r, "cat", "/proc/net/nf_conntrack")
	if err != nil {
		family := "ipv6"
		if f.Home.Addr().Is4() {
			family = "ipv4"
		}
		if out, err = platform.Output(ctx, r, "conntrack", "-L", "-f", family, "-p", f.Protocol, "-o", "extended"); err != nil {
			return f, nft.Connection{Unread: true}, carried{}
		}
	}
	for line := range strings.Lines(string(out)) {
		if !strings.Contains(line, " "+f.Protocol+" ") {
			continue
		}
		if got, c, n, ok := tracked(line, f, home); ok {
			return got, c, n
		}
	}
	return f, nft.Connection{}, carried{}
}

// tracked reads one line of connection tracking; ok is false if it is not this
// flow. Either end may have begun it, and f may have any of its addresses.
func tracked(line string, f nft.Flow, home func(netip.Addr) bool) (nft.Flow, nft.Connection, carried, bool) {
	e := entryOf(line)
	if !e.from.IsValid() || !e.answers.IsValid() {
		return f, nft.Connection{}, carried{}, false
	}
	pair := func(a, b netip.AddrPort) bool { return f.Home == a && f.Far == b || f.Home == b && f.Far == a }
	if !pair(e.from, e.to) && !pair(e.answersTo, e.answers) { // before and after NAT
		return f, nft.Connection{}, carried{}, false
	}
	// Which end is the home's? The one in a home network, or else the one given
	// first.
	byHome := f.Home == e.from || f.Home == e.answersTo
	if h, a := home(e.from.Addr()), home(e.answers.Addr()); h != a {
		byHome = h
	}
	n := carried{e.there.bytes, e.back.bytes}
	if byHome {
		f.Home, f.Far = e.from, e.to
	} else {
		f.Home, f.Far = e.answers, e.from
		n = carried{e.back.bytes, e.there.bytes}
	}
	return f, nft.Connection{Known: true, Answered: e.answered, Bytes: e.there.bytes + e.back.bytes, Mark: e.mark}, n, true
}

var elementHome = regexp.MustCompile(`(?:tcp|udp|6|17) \. ([0-9a-fA-F.:]+) \. \d+ \. `)

// Flows counts the metered flows of each home machine by state: "up calm", "up
// busy", "up steady", "down calm", "down busy", "down steady". What is steady is
// busy too.
func Flows(ctx context.Context, r platform.Runner) map[string]map[string]int {
	out := map[string]map[string]int{}
	for _, d := range []string{"up", "down"} {
		for _, what := range []string{"calm", "busy", "steady"} {
			for _, n := range []string{"4", "6"} {
				text, err := platform.Output(ctx, r, "nft", "list", "set", nft.Family, nft.TableIs, what+n+"_"+d)
				if err != nil {
					continue
				}
				for _, m := range elementHome.FindAllStringSubmatch(string(text), -1) {
					if out[m[1]] == nil {
						out[m[1]] = map[string]int{}
					}
					out[m[1]][d+" "+what]++
				}
			}
		}
	}
	programFlows(ctx, r, out)
	return out
}
