package openbsd

import (
	"unbloat/internal/cure/lang/pf"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
)

// Render writes the lines of current pf.conf(5).
func Render(p plan.Plan) ([]platform.PlanPart, []string, error) {
	rs, notes, err := pf.Render(p)
	if err != nil {
		return nil, nil, err
	}
	return []platform.PlanPart{
		{Where: "/etc/pf.conf: add these lines before the filter rules. No rule has to change: what no rule assigns goes to the default queue.", Text: rs.String()},
		{Where: "then check and load:", Text: "pfctl -nf /etc/pf.conf && pfctl -f /etc/pf.conf\n"},
	}, notes, nil
}

// RenderAltq writes the lines of pf.conf(5) with ALTQ.
func RenderAltq(p plan.Plan) ([]platform.PlanPart, []string, error) {
	rs, notes, err := pf.RenderALTQ(p)
	if err != nil {
		return nil, nil, err
	}
	where := "the queues go before translation and filter rules. No rule has to change: what no rule assigns goes to the default queue."
	switch {
	case p.Classes == nil && len(rs.Rules) > 0:
		where = "the queues go before translation and filter rules, the pass rules among the latter. As the last rules they let through what rules before them block; the queues do without them."
	case p.Classes != nil:
		where = "the queues go before translation and filter rules, the match rules (from 4.6 on) first among the latter. They decide nothing about what passes."
	}
	return []platform.PlanPart{
		{Where: "/etc/pf.conf (OpenBSD to 5.4): " + where, Text: rs.String()},
		{Where: "then check and load:", Text: "pfctl -nf /etc/pf.conf && pfctl -f /etc/pf.conf\n"},
	}, notes, nil
}
