package daemon

import (
	"slices"
	"strings"
	"testing"

	"unbloat/internal/cure/plan"
	"unbloat/internal/keep/config"
	"unbloat/unit"
)

// What a tuning has measured of the framing goes into the configuration, into the plans that
// are made from it, and to the next tuning; what a person says there goes before it.
func TestRatesOfFraming(t *testing.T) {
	line := plan.Line{Down: 6 * unit.MbitPerSecond, Up: 700 * unit.KbitPerSecond}.WithFraming(40, 0, true)
	line.MeasuredDown, line.MeasuredUp = line.Down, line.Up
	measured := plan.Plan{Basis: &plan.Basis{Line: line, Preferences: plan.Preferences{Down: plan.RatePreference{Rate: line.Down}, Up: plan.RatePreference{Rate: line.Up}}}}
	for _, c := range []struct {
		name, before string
		want         plan.Line
		flag         string
	}{
		{"toml", "[[wan]]\ninterface = \"eth0\"\ndown = \"5 Mbit/s\" # sold\nup = \"1 Mbit/s\"\n", line, "--framing=overhead 40 mpu 0 atm down 6Mbit/s up 700kbit/s"},
		{"a person's words", "[[wan]]\ninterface = \"eth0\"\ndown = \"5 Mbit/s\"\nup = \"1 Mbit/s\"\noverhead = 34\n", plan.Line{Down: line.Down, Up: line.Up, Overhead: 34}, ""},
		{"uci", "config wan 'wan'\n\toption interface 'eth0'\n\toption down '5 Mbit/s'\n\toption up '1 Mbit/s'\n", line, "--framing=overhead 40 mpu 0 atm down 6Mbit/s up 700kbit/s"},
	} {
		out, err := config.Set("unbloat.conf", []byte(c.before), 0, ratesOf(measured))
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		kept, err := config.Parse("unbloat.conf", out)
		if err != nil {
			t.Fatalf("%s: %v\n%s", c.name, err, out)
		}
		if got := kept.WANs[0].PlanLine(); got != c.want {
			t.Errorf("%s: %+v, want %+v\n%s", c.name, got, c.want, out)
		}
		args, _ := commandFor(kept.WANs[0], TuneParams{}, "the.server", "")
		if i := slices.IndexFunc(args, func(a string) bool { return strings.HasPrefix(a, "--framing") }); i < 0 && c.flag != "" || i >= 0 && args[i] != c.flag {
			t.Errorf("%s: %q", c.name, args)
		}
		measured := measured
		basis := *measured.Basis
		basis.Line = plan.Line{Down: line.Down, Up: line.Up}
		measured.Basis = &basis
		if out, err = config.Set("unbloat.conf", out, 0, ratesOf(measured)); err != nil || strings.Contains(string(out), "framing") {
			t.Errorf("%s, then without: %v\n%s", c.name, err, out)
		}
	}
}
