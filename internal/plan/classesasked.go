package plan

import (
	"cmp"
	"slices"
	"strconv"
)

// noClasses says why there are none: as a warning where somebody asked for them.
func (m *maker) noClasses(asked bool) {
	if asked {
		m.warning("classes: %s with %s cannot be told of them: %s; every flow is treated alike", m.platform.name, m.aqm,
			cmp.Or(m.platform.classesLost, "nothing there tells flows apart"))
	} else if m.platform.classesLost != "" {
		m.because("classes", "none", "%s", m.platform.classesLost)
	}
}

// explicitAlone leaves of the classes what a platform knows that goes by
// explicit rules alone, and says what it does not know.
func (m *maker) explicitAlone(c *Classes) {
	c.Behaviour = Behaviour{}
	c.Rules = slices.DeleteFunc(c.Rules, func(r Rule) bool {
		why := ""
		switch {
		case len(r.Domain) > 0:
			why = "knows addresses, not names"
		case slices.ContainsFunc(r.Home, func(h string) bool { kind, _ := KindOfHost(h); return kind == HostMAC }):
			why = "sees no MAC addresses"
		case r.From > 0 || r.Below > 0:
			why = "gives a connection its queue once, by its first packet, and counts no bytes"
		}
		if why != "" {
			m.warning("classes: rule %q is left out: %s %s", r.String(), m.platform.name, why)
		}
		return why != ""
	})
	if c.DSCP != (DSCPWish{}) {
		m.warning("classes: marks are neither trusted nor washed on %s; a rule with dscp tells which ones mean something", m.platform.name)
		c.DSCP = DSCPWish{}
	}
}

// explainExplicit gives each class its sentence where there are rules alone.
func (m *maker) explainExplicit(c *Classes) {
	what := map[Class]string{
		Voice:       "DNS, ping, and what a rule names",
		Interactive: "acknowledgements without data, packets that ask for low delay in their TOS, and what a rule names",
		Normal:      "everything else",
		Bulk:        "what a rule names",
	}
	for _, class := range AllClasses() {
		m.because("classes."+string(class), c.bounds(class), "%s", what[class])
	}
	for i, r := range c.Rules {
		m.because("classes.rule "+strconv.Itoa(i+1), string(r.Class), "%s", r)
	}
	m.because("classes.behaviour", "none", "%s", m.platform.classesLost)
}
