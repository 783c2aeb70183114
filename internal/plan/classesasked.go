package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// noClasses says why there are none: as a warning where somebody asked for them.
func (m *maker) noClasses(asked bool) division {
	why := cmp.Or(m.lang.ClassesUnasked, m.lang.ClassesLost)
	switch alone := m.aqm == FIFO && m.lang.ClassesAsked != ""; {
	case !asked && alone:
		return division{}
	case !asked:
		return division{why: why}
	case alone:
		why = "one queue takes all"
	}
	return division{warning: fmt.Sprintf("%s with %s cannot be told of them: %s; every flow is treated alike", m.lang.Platform, m.aqm,
		cmp.Or(why, "nothing there tells flows apart"))}
}

// explicitAlone leaves of the classes what a platform knows that goes by
// explicit rules alone, and says what it does not know.
func (m *maker) explicitAlone(c *Classes) {
	c.Behaviour = Behaviour{}
	c.Rules = slices.DeleteFunc(c.Rules, func(r Rule) bool {
		why, lim := "", m.lang.Rules
		switch {
		case len(r.Domain) > 0:
			why = lim.Domains
		case slices.ContainsFunc(r.Home, func(h string) bool { kind, _ := KindOfHost(h); return kind == HostMAC }):
			why = "sees no MAC addresses"
		case r.From > 0 || r.Below > 0:
			why = "counts no bytes of a connection"
		case len(r.DSCP) > 0 && lim.DSCP != "":
			why = lim.DSCP
		case lim.IPv6 != "" && slices.ContainsFunc(slices.Concat(r.Home, r.Far), func(a string) bool { return strings.Contains(a, ":") }):
			why = lim.IPv6
		case lim.HomeDown != "" && r.Direction != DirectionUp && slices.ContainsFunc(r.Home, HiddenByNAT):
			if m.warning("classes: rule %q counts for the upload alone: %s", r.String(), lim.HomeDownAlone); r.Direction == DirectionDown {
				why = lim.HomeDown
			}
		case lim.Unmarked != "" && slices.ContainsFunc(r.DSCP, isUnmarked):
			why = lim.Unmarked
		case lim.Direction != "" && r.Direction != "":
			why = lim.Direction
		case lim.SCTP != "" && r.Protocol == "sctp":
			why = lim.SCTP
		case lim.UnnamedDSCP != "" && slices.ContainsFunc(r.DSCP, unnamedDSCP):
			why = lim.UnnamedDSCP
		case lim.HomeNAT != "" && slices.ContainsFunc(r.Home, HiddenByNAT):
			why = lim.HomeNAT
		}
		if why != "" {
			m.warning("classes: rule %q is left out: %s %s", r.String(), m.lang.Platform, why)
			return true
		}
		m.partOf(r)
		return false
	})
	if c.DSCP != (DSCPPreference{}) {
		m.warning("classes: marks are neither trusted nor washed on %s; a rule with dscp tells which ones mean something", m.lang.Platform)
		c.DSCP = DSCPPreference{}
	}
}

// partOf says which packets a rule that is kept does not find.
func (m *maker) partOf(r Rule) {
	switch {
	case m.lang.Rules.OpenedOutside && r.Direction != DirectionDown && slices.ContainsFunc(r.Home, HiddenByNAT):
		m.warning("classes: rule %q does not find what the home sends on connections that were opened from outside: they reach the WAN at the router's own address", r.String())
	case m.lang.Rules.TranslatedPorts && len(r.HomePort) > 0:
		m.warning("classes: rule %q finds home ports as the WAN has them: NAT may have given a connection of the home another", r.String())
	}
	if m.lang.Rules.ByConnection && len(r.DSCP) > 0 {
		m.warning("classes: rule %q goes by the mark of a connection's first packet, which decides for both directions", r.String())
	}
}

// isUnmarked reports whether a code point is 0.
func isUnmarked(s string) bool {
	n, err := ParseDSCP(s)
	return err == nil && n == 0
}

// unnamedDSCP reports whether OPNsense's model doesn't have a mark.
func unnamedDSCP(s string) bool {
	n, err := ParseDSCP(s)
	return err != nil || n != 0 && n != 46 && n&7 != 0 && (n&1 != 0 || n>>3 > 4 || n>>3 < 1 || n>>1&3 == 0)
}

// explainExplicit gives each class its sentence where there are rules alone.
func (m *maker) explainExplicit(c *Classes) {
	what := map[Class]string{
		Voice:       "DNS, ping, and what a rule names",
		Interactive: "what a rule names",
		Normal:      "everything else",
		Bulk:        "what a rule names",
	}
	switch {
	case m.lang.Rules.SecondQueue:
		what[Interactive] = "acknowledgements without data, packets that ask for low delay in their TOS, and what a rule names"
	case m.lang.Rules.AcksFirst:
		what[Interactive] = "acknowledgements without data, and what a rule names"
	}
	for _, class := range AllClasses() {
		m.because("classes."+string(class), c.bounds(class), "%s", what[class])
	}
	for i, r := range c.Rules {
		m.because("classes.rule "+strconv.Itoa(i+1), string(r.Class), "%s", r)
	}
	m.because("classes.behaviour", "none", "%s", m.lang.ClassesLost)
}

// checkReserve refuses guarantees that the platform's own engine does not take,
// and says what becomes of what it gives no class.
func (m *maker) checkReserve(c *Classes) error {
	if m.aqm != SFQ || c.Up == nil || c.Down == nil { // one direction alone is refused anyway
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
			return fieldError("class.guarantee", "the classes are guaranteed %d %% of the rate, with what is theirs unless you say otherwise (30, 30, 25 and 10 %%); %s has %d %% to give", sum, e.Name, most)
		}
		if least > 1 {
			m.because(field(d.way, "bands"), fmt.Sprintf("%d %%", least), "%s; each of its %d bands has at least this, also those without a class, and the classes share the rest", e.BandWhy, e.Bands)
		}
	}
	m.warning("classes: %s, where it is sure of %d %% of the download and %d %% of the upload; HTB + fq_codel (--aqm fq_codel) treats both alike",
		e.NoIPv6, e.BandShare(m.plan.Down.Rate), e.BandShare(m.plan.Up.Rate))
	return nil
}
