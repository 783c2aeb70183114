package plan

import (
	"slices"

	"unbloat/internal/reason"
)

// wash decides who clears the marks of a direction that is to have none. CAKE
// does it as packets come in, which is before nftables sees what arrives over an
// ifb; where marks mean something there, and behind HTB, nftables does it last.
func (m *maker) wash(c *Classes) {
	if m.plan.Up != nil {
		m.plan.Up.Wash = c.DSCP.WashUp && m.plan.Up.AQM == CAKE
	}
	if m.plan.Down != nil {
		looks := c.DSCP.TrustFar || slices.ContainsFunc(c.Rules, func(r Rule) bool { return len(r.DSCP) > 0 && r.Direction != DirectionUp })
		m.plan.Down.Wash = c.DSCP.WashDown && m.plan.Down.AQM == CAKE && !(m.plan.Down.IngressOf != "" && looks)
	}
}

// explainRules says of rules that never decide which one does, and of one that
// takes all that behaviour decides nothing.
func (m *maker) explainRules(c *Classes) {
	for j, r := range c.Rules {
		if r.NoFamily() {
			m.warning(say(reason.RuleTwoFamilies, "number", j+1, "rule", r))
			continue
		}
		for i, before := range c.Rules[:j] {
			if before.Covers(r) {
				m.warning(say(reason.RuleCovered, "number", j+1, "rule", r, "by_number", i+1, "by", before))
				break
			}
		}
	}
	for i, r := range c.Rules {
		if r.Covers(Rule{}) && c.Behaviour != (Behaviour{}) {
			m.because("classes.behaviour", word("decides nothing"), say(reason.RuleTakesAll, "number", i+1))
			break
		}
	}
}
