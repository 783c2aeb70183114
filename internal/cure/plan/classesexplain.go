package plan

import (
	"slices"
	"strconv"

	"unbloat/reason"
)

// explainClasses explains each class.
func (m *maker) explainClasses(c *Classes) {
	if m.lang.ClassesAsked != "" {
		m.explainExplicit(c)
		return
	}
	b := c.Behaviour
	byRule := say(reason.ClassByRule)
	what := map[Class]reason.Reason{
		Voice: say(reason.VoiceIs, "small_bytes", b.SmallPacket, "packets", b.CalmPackets, "rate_bps", b.CalmRate,
			"down_bps", b.CalmOfHost, "up_bps", b.CalmOfUp, "names", b.Names),
		Interactive: say(reason.InteractiveIs, "down_bytes", b.FirstBytes, "up_bytes", b.FirstUp),
		Normal:      say(reason.NormalIs),
		Bulk:        say(reason.BulkIs, "long_bytes", b.LongBytes, "heavy", b.HeavyOfHost, "heavy_bytes", b.HeavyBytes, "peers", b.Peers),
	}
	if !c.ByBPF() {
		what = map[Class]reason.Reason{Voice: byRule, Interactive: byRule, Normal: say(reason.EverythingElse), Bulk: byRule}
	} else if b.Acks > 0 {
		what[Interactive] = say(reason.InteractiveThinned, "acks", b.Acks, "down_bytes", b.FirstBytes, "up_bytes", b.FirstUp)
	}
	for _, class := range AllClasses() {
		m.because("classes."+string(class), c.bounds(class), what[class])
	}
	if b.Steady > 0 || b.SteadyUp > 0 {
		m.because("classes.steady", symbol(string(Interactive)), say(reason.SteadyIs, "down_bps", b.Steady, "up_bps", b.SteadyUp))
	}
	for i, r := range c.Rules {
		m.because("classes.rule "+strconv.Itoa(i+1), symbol(string(r.Class)), say(reason.RuleIs, "rule", r))
	}
	if d := c.DSCP; d != (DSCPPreference{}) {
		m.because("classes.dscp", word("trusted"), say(reason.MarksTrusted,
			"home", yes(d.TrustHome), "far", yes(d.TrustFar), "wash_up", yes(d.WashUp), "wash_down", yes(d.WashDown)))
	}
	m.explainDomains(c)
	if c.Up != nil && m.aqm == CAKE {
		m.because("up.tins", symbol(m.plan.Up.Tins), say(reason.TinsOfClasses))
	}
	if c.Down != nil && m.aqm == CAKE {
		m.because("down.tins", symbol(m.plan.Down.Tins), say(reason.TinsOfClasses))
	}
}

// explainDomains says where rules for domains get their addresses from.
func (m *maker) explainDomains(c *Classes) {
	switch named := slices.ContainsFunc(c.Rules, func(r Rule) bool { return len(r.Domain) > 0 }); {
	case !named:
	case m.capabilities.NoResolver != "":
		m.warning(say(reason.DomainsUnable, "why", m.capabilities.NoResolver))
	case m.capabilities.Resolver != "":
		m.because("classes.domains", symbol(m.capabilities.Resolver), say(reason.DomainsByFile))
	default:
		m.because("classes.domains", symbol("dnsmasq"), say(reason.DomainsByResolver))
	}
}

// bounds explains the guarantee and limit of a class.
func (c Classes) bounds(class Class) reason.Reason {
	var parts []reason.Reason
	for _, d := range []struct {
		name Direction
		list []Share
	}{{DirectionUp, c.Up}, {DirectionDown, c.Down}} {
		for _, s := range d.list {
			if s.Class != class {
				continue
			}
			part := say(reason.ClassFirst, "direction", d.name, "first_bps", s.First)
			switch {
			case s.Guarantee > 0 && s.Limit > 0:
				part = say(reason.ClassFirstLeastMost, "direction", d.name, "first_bps", s.First, "least_bps", s.Guarantee, "most_bps", s.Limit)
			case s.Guarantee > 0:
				part = say(reason.ClassFirstLeast, "direction", d.name, "first_bps", s.First, "least_bps", s.Guarantee)
			case s.Limit > 0:
				part = say(reason.ClassFirstMost, "direction", d.name, "first_bps", s.First, "most_bps", s.Limit)
			}
			parts = append(parts, part)
		}
	}
	return say(reason.BoundsValue).With(parts...)
}
