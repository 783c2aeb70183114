package all_test

import (
	"strings"
	"testing"

	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform/all"
	"unbloat/unit"
)

// A framing that was measured comes into each platform's own words, with its reason; where
// those have none, the rate is lower by what small packets cost, and the plan says so.
func TestMeasuredFraming(t *testing.T) {
	line := plan.Line{Down: 6 * unit.MbitPerSecond, Up: 700 * unit.KbitPerSecond}.WithFraming(40, 0, true)
	ptm := plan.Line{Down: 50 * unit.MbitPerSecond, Up: 10 * unit.MbitPerSecond}.WithFraming(26, 0, false)
	docsis := plan.Line{Down: 50 * unit.MbitPerSecond, Up: 10 * unit.MbitPerSecond}.WithFraming(18, 64, false)
	for _, c := range []struct {
		platform string
		aqm      plan.AQM
		line     plan.Line
		words    []string
	}{
		{"linux", plan.CAKE, line, []string{"overhead 40", " atm"}},
		{"linux", plan.CAKE, ptm, []string{"overhead 26", " noatm"}},
		{"linux", plan.FQCoDel, line, []string{"stab", "overhead 26", "linklayer atm"}},
		{"linux", plan.FQCoDel, ptm, []string{"stab", "overhead 12"}},
		{"linux", plan.CAKE, docsis, []string{"overhead 18", "mpu 64"}},
		{"linux", plan.FQCoDel, docsis, []string{"stab", "mpu 64", "overhead 4"}},
		{"openwrt", "", line, []string{"overhead", "'40'", "'atm'"}},
		{"openbsd", "", line, nil}, {"freebsd", "", line, nil}, {"opnsense", "", line, nil},
	} {
		facts, err := all.Assume(c.platform, "", "")
		if err != nil {
			t.Fatal(err)
		}
		p, err := plan.Make(c.line, facts, plan.Preferences{AQM: c.aqm})
		if err != nil {
			t.Fatalf("%s: %v", c.platform, err)
		}
		text, err := all.Text(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range c.words {
			if !strings.Contains(text, w) {
				t.Errorf("%s, %s: no %q in\n%s", c.platform, p.AQM, w, text)
			}
		}
		says := p.Explain()
		switch plain := (plan.Line{Down: c.line.Down, Up: c.line.Up}); {
		case c.words != nil && !strings.Contains(says, "measured: "):
			t.Errorf("%s: no reason in\n%s", c.platform, says)
		case c.words == nil:
			q, err := plan.Make(plain, facts, plan.Preferences{})
			if err != nil {
				t.Fatal(err)
			}
			if less := float64(p.UpBps) / float64(q.UpBps); less > 0.87 || less < 0.8 || !strings.Contains(says, "cannot count the 40 bytes") {
				t.Errorf("%s: %.3f of the rate:\n%s", c.platform, less, says)
			}
		}
	}
	if w := line.Wire(1500); w != 33*53 {
		t.Errorf("a full packet occupies %d bytes of cells", w)
	}
}
