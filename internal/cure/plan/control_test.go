package plan_test

import (
	"slices"
	"testing"

	. "unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform/all"
	"unbloat/reason"
)

// Where the shaper would hold control traffic up a plan lets it pass, and says why; rules
// that name ICMP are left out and said; the article's own way is warned of, and lists what
// ours does otherwise. Where the shaper doesn't, a plan can't ask for it.
func TestControl(t *testing.T) {
	for _, platform := range all.Names() {
		capabilities, err := all.Assume(platform, "", "")
		if err != nil {
			t.Fatal(err)
		}
		dummynet := slices.Contains([]string{"freebsd", "opnsense", "pfsense"}, platform)
		for _, w := range []Preferences{{}, {AQM: capabilities.AQMs[len(capabilities.AQMs)-1]}, {Style: StyleArticle},
			{Classes: ClassPreferences{Rules: []Rule{{Class: Bulk, Protocol: "icmp"}, {Class: Voice, Protocol: "udp"}}}}} {
			p, err := Make(Line{Down: 30e6, Up: 5e6}, capabilities, w)
			if err != nil {
				t.Fatal(err)
			}
			has := func(code reason.Code) bool {
				return slices.ContainsFunc(p.Warnings, func(r reason.Reason) bool {
					return r.Code == code || slices.ContainsFunc(r.Causes, func(c reason.Reason) bool { return c.Code == code })
				})
			}
			article := w.Style == StyleArticle
			why, said := p.Why("control")
			if p.Control != (dummynet && !article) || said != p.Control || said && why.Why.Code != reason.DummynetControl {
				t.Errorf("%s, %+v: %v, %+v", platform, w, p.Control, why)
			}
			if has(reason.ControlShaped) != (dummynet && article) || has(reason.ControlFirst) != (dummynet && len(w.Classes.Rules) > 0) {
				t.Errorf("%s, %+v: %+v", platform, w, p.Warnings)
			}
			if p.Control = true; !dummynet && p.Validate(capabilities.Language) == nil {
				t.Errorf("%s takes a plan with rules that it has not", platform)
			}
		}
	}
}
