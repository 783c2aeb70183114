package plan

import (
	"slices"

	"unbloat/reason"
)

// wash decides whether CAKE or nftables clears the DSCPs of a direction. CAKE clears
// them when a packet enters its queue. On an ifb that is before nftables sees the
// packet, so nftables clears them last where it still needs them, and with HTB.
func (m *maker) wash(c *Classes) {
	if m.plan.Up != nil {
		m.plan.Up.Wash = c.DSCP.WashUp && m.plan.Up.AQM == CAKE
	}
	if m.plan.Down != nil {
		looks := c.DSCP.TrustFar || slices.ContainsFunc(c.Rules, func(r Rule) bool { return len(r.DSCP) > 0 && r.Direction != DirectionUp })
		m.plan.Down.Wash = c.DSCP.WashDown && m.plan.Down.AQM == CAKE && (m.byBPF() || m.plan.Down.IngressOf == "" || !looks)
	}
}

// explainRules warns of rules that can never match because an earlier rule takes
// their packets, and notes a rule that leaves nothing to behaviour.
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
