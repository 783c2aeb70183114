package plan

import (
	"slices"
	"strconv"
	"strings"

	"unbloat/reason"
)

// noClasses says why the plan has no classes, with a warning if they were asked for.
func (m *maker) noClasses(asked bool) division {
	why := m.lang.ClassesUnasked
	if why.IsZero() {
		why = m.lang.ClassesLost
	}
	switch alone := m.aqm == FIFO && m.lang.ClassesAsked != ""; {
	case !asked && alone:
		return division{}
	case !asked:
		return division{why: why}
	case alone:
		why = say(reason.ClassesOneQueue)
	case why.IsZero():
		why = say(reason.ClassesNoRules)
	}
	return division{warning: say(reason.ClassesUntold, "platform", m.lang.Platform, "aqm", m.aqm).With(why)}
}

// explicitAlone removes from the classes what a platform with explicit rules only
// does not support, and warns of each rule that it leaves out.
func (m *maker) explicitAlone(c *Classes) {
	c.Rules = slices.DeleteFunc(c.Rules, func(r Rule) bool {
		why, lim := reason.Reason{}, m.lang.Rules
		switch {
		case len(r.Domain) > 0:
			why = lim.Domains
		case slices.ContainsFunc(r.Home, func(h string) bool { kind, _ := KindOfHost(h); return kind == HostMAC }):
			why = say(reason.RuleNoMAC)
		case r.From > 0 || r.Below > 0:
			why = say(reason.RuleNoBytes)
		case m.plan.Control && r.Protocol == "icmp":
			why = say(reason.ControlFirst)
		case len(r.DSCP) > 0 && !lim.DSCP.IsZero():
			why = lim.DSCP
		case !lim.IPv6.IsZero() && slices.ContainsFunc(slices.Concat(r.Home, r.Far), func(a string) bool { return strings.Contains(a, ":") }):
			why = lim.IPv6
		case !lim.HomeDown.IsZero() && r.Direction != DirectionUp && slices.ContainsFunc(r.Home, HiddenByNAT):
			if m.warning(say(reason.RuleUploadAlone, "rule", r).With(lim.HomeDownAlone)); r.Direction == DirectionDown {
				why = lim.HomeDown
			}
		case !lim.Unmarked.IsZero() && slices.ContainsFunc(r.DSCP, isUnmarked):
			why = lim.Unmarked
		case !lim.Direction.IsZero() && r.Direction != "":
			why = lim.Direction
		case !lim.SCTP.IsZero() && r.Protocol == "sctp":
			why = lim.SCTP
		case !lim.UnnamedDSCP.IsZero() && slices.ContainsFunc(r.DSCP, unnamedDSCP):
			why = lim.UnnamedDSCP
		case !lim.HomeNAT.IsZero() && slices.ContainsFunc(r.Home, HiddenByNAT):
			why = lim.HomeNAT
		}
		if !why.IsZero() {
			m.warning(say(reason.RuleLeftOut, "rule", r, "platform", m.lang.Platform).With(why))
			return true
		}
		m.partOf(r)
		return false
	})
	if c.DSCP != (DSCPPreference{}) {
		m.warning(say(reason.MarksIgnored, "platform", m.lang.Platform))
		c.DSCP = DSCPPreference{}
	}
}

// partOf warns if a rule that is kept misses some packets.
func (m *maker) partOf(r Rule) {
	switch {
	case m.lang.Rules.OpenedOutside && r.Direction != DirectionDown && slices.ContainsFunc(r.Home, HiddenByNAT):
		m.warning(say(reason.RuleOpenedOutside, "rule", r))
	case m.lang.Rules.TranslatedPorts && len(r.HomePort) > 0:
		m.warning(say(reason.RuleTranslatedPorts, "rule", r))
	}
	if m.lang.Rules.ByConnection && len(r.DSCP) > 0 {
		m.warning(say(reason.RuleByConnection, "rule", r))
	}
}

// isUnmarked reports whether a DSCP is 0.
func isUnmarked(s string) bool {
	n, err := ParseDSCP(s)
	return err == nil && n == 0
}

// unnamedDSCP reports whether OPNsense has no name for a DSCP.
func unnamedDSCP(s string) bool {
	n, err := ParseDSCP(s)
	return err != nil || n != 0 && n != 46 && n&7 != 0 && (n&1 != 0 || n>>3 > 4 || n>>3 < 1 || n>>1&3 == 0)
}

// explainExplicit explains each class on a platform with explicit rules only.
func (m *maker) explainExplicit(c *Classes) {
	what := map[Class]reason.Code{
		Voice:       reason.VoiceByRule,
		Interactive: reason.ClassByRule,
		Normal:      reason.EverythingElse,
		Bulk:        reason.ClassByRule,
	}
	if m.plan.Control {
		what[Voice] = reason.NamesAndRule
	}
	switch {
	case m.lang.Rules.SecondQueue:
		what[Interactive] = reason.AcksTOSAndRule
	case m.lang.Rules.AcksFirst:
		what[Interactive] = reason.AcksAndRule
	}
	for _, class := range AllClasses() {
		m.because("classes."+string(class), c.bounds(class), say(what[class]))
	}
	for i, r := range c.Rules {
		m.because("classes.rule "+strconv.Itoa(i+1), symbol(string(r.Class)), say(reason.RuleIs, "rule", r))
	}
	m.because("classes.behaviour", word("none"), m.lang.ClassesLost)
	if m.preferences.Classes.Use == ClassesOn {
		m.warning(m.lang.ClassesLost)
	}
}

// checkReserve refuses guarantees that the platform's own engine cannot give, and
// warns of the traffic that it does not classify.
func (m *maker) checkReserve(c *Classes) error {
	if m.aqm != SFQ || c.Up == nil || c.Down == nil { // a single direction is refused anyway
		return nil
	}
	e := m.lang.Engine
	for _, d := range []struct {
		way    Direction
		shares []Share
		s      *Shaper
	}{{DirectionUp, c.Up, m.plan.Up}, {DirectionDown, c.Down, m.plan.Down}} {
		sum, least := 0, e.BandShare(d.s.Rate)
		for _, sh := range d.shares {
			sum += max(int(sh.Guarantee*100/d.s.Rate), least)
		}
		if most := e.reserve(d.s.Rate); sum > most {
			return fieldError("class.guarantee", "the guarantees add up to %d %% of the rate, with the defaults of the other classes (30, 30, 25 and 10 %%); %s can guarantee %d %%; guarantee less", sum, e.Name, most)
		}
		if least > 1 {
			m.because(field(d.way, "bands"), say(reason.PercentValue, "percent", least), say(reason.BandsLeast, "bands", e.Bands).With(e.BandWhy))
		}
	}
	m.warning(say(reason.BandsIPv6, "down_percent", e.BandShare(m.plan.Down.Rate), "up_percent", e.BandShare(m.plan.Up.Rate)).With(e.NoIPv6))
	return nil
}
