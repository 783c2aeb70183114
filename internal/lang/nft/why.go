package nft

import (
	"fmt"
	"slices"
	"strings"

	"unbloat/internal/classify"
	"unbloat/internal/plan"
	"unbloat/unit"
)

// A Flow is one connection, given by its ends, and a packet of it.
type Flow = classify.Flow

// ParseFlow reads "udp 10.1.0.2:5004 > 203.0.113.9:5004"; see classify.ParseFlow.
func ParseFlow(s string) (Flow, error) { return classify.ParseFlow(s) }

// A Connection is a flow's entry in the kernel's connection tracking.
type Connection struct {
	Known    bool
	Unread   bool // the kernel's connections can't be read: the other fields are unknown
	Answered bool
	Bytes    unit.Size // both directions
	Mark     uint32
	Up, Down unit.Rate // what it carries now; 0: unknown, or nothing
}

// Rate returns what the connection carries in a direction.
func (c Connection) Rate(d plan.Direction) unit.Rate {
	if d == plan.DirectionUp {
		return c.Up
	}
	return c.Down
}

// A Verdict is the class of a packet and the rule that decided it.
type Verdict struct {
	Direction plan.Direction `json:"direction"`
	Class     plan.Class     `json:"class"`
	Rule      string         `json:"rule"`
}

// Decide evaluates the table's rules for a packet of the flow, assuming that it
// is metered and that no limit is exceeded now. in reports whether a set of the
// table contains a key now.
func Decide(p plan.Plan, d plan.Direction, f Flow, c Connection, in func(set, key string) bool) Verdict {
	v := func(class plan.Class, format string, args ...any) Verdict {
		return Verdict{d, class, fmt.Sprintf(format, args...)}
	}
	if p.Classes.Of(d == plan.DirectionDown) == nil {
		return v(plan.Normal, "this direction has no classes: every flow is treated alike")
	}
	if p.Classes.Behaviour == (plan.Behaviour{}) {
		return decideExplicit(p, d, f, v)
	}
	out := NewDecider(p).explain(d, f, c, in)
	if len(out.Why) == 0 || out.Lane == nil {
		return v(plan.Normal, "the rules say nothing of it")
	}
	last := out.Why[len(out.Why)-1]
	if f.Protocol == "tcp" && c.Unread && f.Packet > p.Classes.Behaviour.SmallPacket && slices.Contains([]classify.Code{classify.Ordinary, classify.WasBulk}, last.Code) {
		b := p.Classes.Behaviour
		return v(plan.Normal, "what it has carried cannot be read here (install conntrack): its first %s are interactive, and from %s on it is bulk", firstOf(b, d), b.LongBytes)
	}
	var said []string
	for _, why := range out.Why {
		said = append(said, words(p, d, f, c, why))
	}
	return v(out.Lane.Class, "%s", strings.Join(said, "; "))
}

// usualPackets is how many packets a connection that is there is taken to have
// had each way.
const usualPackets = 1000

// metered reports whether the meters know a flow that connection tracking can't
// show.
func metered(d plan.Direction, f Flow, in func(set, key string) bool) bool {
	n := "6"
	if f.Home.Addr().Is4() {
		n = "4"
	}
	return slices.ContainsFunc([]string{"calm", "looks", "busy"}, func(set string) bool { return in(set+n+"_"+string(d), f.Key()) })
}

// asked is the rules' state that can be read: the elements of sets. Meters are
// assumed to be within their limits.
type asked struct {
	f  Flow
	in func(set, key string) bool
}

func (a asked) Holds(_ unit.Instant, s *classify.Set, _ classify.Key) bool {
	switch s.Key {
	case classify.HomeAddress:
		return a.in(s.Name, a.f.Home.Addr().String())
	case classify.FarAddress:
		return a.in(s.Name, a.f.Far.Addr().String())
	case classify.HomeAddressAndPort:
		return a.in(s.Name, fmt.Sprintf("%s . %d", a.f.Home.Addr(), a.f.Home.Port()))
	}
	return a.in(s.Name, a.f.Key())
}

func (asked) Remember(unit.Instant, *classify.Set, classify.Key, bool) bool { return true }

func (asked) Meter(_ unit.Instant, _ *classify.Set, _ classify.Key, rates []classify.Rate, _ unit.Size) bool {
	return !rates[0].Over
}

func (asked) Exceeds(unit.Instant, *classify.Limit) bool { return false }

func (asked) Alternate() bool { return true }

// firstOf returns the size of a connection's interactive first part in a
// direction.
func firstOf(b plan.Behaviour, d plan.Direction) unit.Size {
	if d == plan.DirectionUp {
		return b.FirstUp
	}
	return b.FirstBytes
}

// steady returns the text for a flow that has its class for being steady. now is
// what it carries; 0: unknown.
func steady(bound, machine, now unit.Rate) string {
	if now == 0 {
		return fmt.Sprintf("steady: below %s, it goes first; above that, or with all such flows of its machine above %s, it would lose that", bound.Short(), machine.Short())
	}
	return fmt.Sprintf("steady: %s, below %s: goes first; would lose it above, or with all such flows of its machine above %s", now.Short(), bound.Short(), machine.Short())
}

// words returns the text of one reason.
func words(p plan.Plan, d plan.Direction, f Flow, c Connection, why classify.Reason) string {
	b := p.Classes.Behaviour
	say := fmt.Sprintf
	limit := say("%d packets and %s a second", b.CalmPackets, b.CalmRate)
	switch why.Code {
	case classify.ByRule:
		return say("rule %d: %s", why.Rule+1, p.Classes.Rules[why.Rule])
	case classify.ByDSCP:
		return say("its mark, DSCP %d, which is trusted", f.DSCP)
	case classify.Names, classify.ManyNames:
		return say("DNS and ping of a machine, up to %d a second; above that it is normal", b.Names)
	case classify.Swarm:
		return say("swarm: more than %d partners of this port within a minute", b.Peers)
	case classify.Unanswered:
		if !c.Known {
			return say("a flow that is not there: normal until it is answered; then voice, of small packets, while it stays calm (below %d packets and %s a second)", b.CalmPackets, b.CalmRate)
		}
		return "nobody has answered it yet, and protection is earned"
	case classify.Acknowledges:
		thinned := ""
		if d == plan.DirectionUp && b.Acks > 0 {
			thinned = say("; of slow connections' beyond %d a second, those that tell of no loss are left out, and every second of the others", b.Acks)
		}
		return say("an acknowledgement without data (a packet of %s), ahead of the rest of its class%s", f.Packet, thinned)
	case classify.First:
		if !c.Known {
			return say("a connection that is not there: its first %s", firstOf(b, d))
		}
		return say("the first %s of a connection; it has carried %s", firstOf(b, d), c.Bytes)
	case classify.Crowd:
		return say("crowd: the calm flows of its machine exceeded %s within the last 10 s", b.CalmOf(d).Short())
	case classify.Busy:
		return say("busy: it was above %s within the last 10 s", limit)
	case classify.BusySmall:
		return "but a small packet, as acknowledgements are"
	case classify.Steady:
		return steady(b.SteadyOf(d), b.SteadyOfMachine(d), c.Rate(d))
	case classify.TookMore:
		if !p.Classes.Varies {
			return say("it took more than %s, the most a steady flow may have: of a call only what is above waits; what sends no sound goes first again after 4 s, and the second time within ten minutes after a minute", b.SteadyOf(d).Short())
		}
		return say("it took more than %s, the most a steady flow may have; it goes first again after 4 s; a second time within ten minutes after a minute, if its machine sends no sound meanwhile", b.SteadyOf(d).Short())
	case classify.Waits:
		return say("without sound or other small packets it waits: until it has carried %s, and while a call of its machine goes on, another flow is being tried, or all such flows of its machine have more than %s",
			b.HeavyBytes, b.SteadyOfMachine(d).Short())
	case classify.Sound:
		return "small packets of a flow that sends them all the time, as sound is: they go first, for as long as they are no more than a calm flow may have"
	case classify.Mixed:
		return "calm, with large packets too; all of them are interactive, so that none overtakes another"
	case classify.CalmTCP:
		return say("calm: below %s, by TCP", limit)
	case classify.CalmLarge:
		return say("calm: below %s; of packets larger than %s", limit, b.SmallPacket)
	case classify.CalmSmall:
		return say("calm: below %s, of small packets", limit)
	case classify.Long, classify.WasBulk:
		if c.Bytes > b.LongBytes { // this also marks it as bulk
			return say("it has carried %s, more than %s", c.Bytes, b.LongBytes)
		}
		return say("its machine had more than %d heavy connections (%s) when it became one", b.HeavyOfHost, b.HeavyBytes)
	case classify.Ordinary:
		return "nothing makes it more, or less, than the others"
	}
	return say("nothing protects %s, and no rule names it", f.Protocol)
}
