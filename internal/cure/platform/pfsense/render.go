package pfsense

import (
	"cmp"
	"fmt"
	"strings"

	"unbloat/internal/cure/lang/dummynet"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
)

// Render writes limiters as in config.xml, and floating rules as in the web
// form.
func Render(p plan.Plan) ([]platform.PlanPart, []string, error) {
	ls, notes, err := dummynet.RenderLimiters(p, dummynet.FirstLimiter)
	if err != nil {
		return nil, nil, err
	}
	parts := []platform.PlanPart{
		{Where: "Firewall: Traffic Shaper: Limiters: make a limiter and its queue for each of these; the values are those of the form, and the number is for pfSense to give. " +
			"Or put them into the dnshaper section of config.xml, behind those that are there (Diagnostics: Backup & Restore), with numbers of limiters that are free; queues are numbered by pfSense in either case:", Text: ls.String()},
	}
	rules, err := ls.Rules(p)
	if err != nil {
		return nil, nil, err
	}
	parts = append(parts, floating(rules))
	return append(parts,
		platform.PlanPart{Where: "Connections that exist already keep what they have: Diagnostics: States: Reset States.", Text: ""},
		platform.PlanPart{Where: "what pfSense makes of it, in /tmp/rules.limiter, to compare; where this has a name, there is the number that pfSense gave:", Text: inComment(ls.RulesByName())},
		platform.PlanPart{Where: "and what the kernel has of that:", Text: "dnctl pipe show\ndnctl sched show\n"}), notes, nil
}

// floating describes the rules, one per line.
func floating(rules []dummynet.LimiterRule) platform.PlanPart {
	var b strings.Builder
	for _, r := range rules {
		end := func(e dummynet.RuleEnd) string {
			s := cmp.Or(e.Address, "any")
			if e.Port != "" {
				s += " port " + e.Port
			}
			return s
		}
		family := map[string]string{"inet": "IPv4", "inet6": "IPv6", "inet46": "IPv4+IPv6"}[r.Family]
		pipes := strings.TrimSuffix(r.In+" / "+r.Out, " / ")
		b.WriteString(platform.PlanItem(fmt.Sprintf("%s, %s, %s, from %s to %s: %s", r.Direction, family, cmp.Or(r.Protocol, "any"), end(r.From), end(r.To), pipes)))
	}
	return platform.PlanPart{Where: "Firewall: Rules: Floating, in this order, since the last that fits decides: action Match, interface WAN, no Quick; direction (out: connections that " +
		"are opened from the home; in: from outside), IP version, protocol, source and destination, and In / Out pipe as below; with direction out the WAN's gateway chosen under " +
		"Advanced, which the page demands of such a rule, and then one rule for each version of IP. pf's rule carries the numbers that pfSense gave the queues:", Text: b.String()}
}

// inComment writes text as an XML comment: it is for comparison, not for
// pasting.
func inComment(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if line != "\n" {
			b.WriteString(platform.PlanItem(line))
		}
	}
	return b.String()
}
