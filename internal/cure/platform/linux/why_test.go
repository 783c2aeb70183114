package linux_test

import (
	"strings"
	"testing"

	"unbloat/internal/cure/classify"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform/linux"
	"unbloat/testkit/linuxfake"
	"unbloat/unit"
)

// TestWhyByPacket: an upload without classes still has filters that put small
// packets first, and why says so; without them all packets are equal.
func TestWhyByPacket(t *testing.T) {
	k := linuxfake.New()
	facts, err := linux.Detect(t.Context(), k, "wan", "lan")
	if err != nil {
		t.Fatal(err)
	}
	prefs := plan.Preferences{Up: plan.RatePreference{Rate: 5 * unit.MbitPerSecond}, Down: plan.RatePreference{Rate: 30 * unit.MbitPerSecond}, Classes: plan.ClassPreferences{Use: plan.ClassesOff}}
	p, err := plan.Make(plan.Line{}, facts, prefs)
	if err != nil {
		t.Fatal(err)
	}
	facts.NoRules = true
	alike, err := plan.Make(plan.Line{}, facts, prefs)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		flow  string
		bytes unit.Size
		class plan.Class
		says  string
	}{
		{"udp 10.1.0.2:5004 > 203.0.113.9:5004", 200, plan.Voice, "goes first, as long as such packets take no more than 49/64 of the rate"},
		{"udp 10.1.0.2:5004 > 203.0.113.9:5004", 256, plan.Normal, "acknowledgements without data and UDP below 256 B go first"},
		{"tcp 10.1.0.2:50122 > 203.0.113.9:443", 60, plan.Interactive, "only acknowledges goes ahead of data, as long as such packets take no more than 7/8 of the rate"},
		{"tcp 10.1.0.2:50122 > 203.0.113.9:443", 128, plan.Normal, "acknowledgements without data"},
		{"icmp 10.1.0.2 > 203.0.113.9", 84, plan.Normal, "no rule puts icmp first"},
	} {
		f, err := classify.ParseFlow(c.flow)
		if err != nil {
			t.Fatal(err)
		}
		f.Packet = c.bytes
		a := linux.Why(t.Context(), k, p, f)
		if len(a.Verdicts) != 2 || a.Verdicts[0].Direction != plan.DirectionUp || a.Verdicts[0].Class != c.class || !strings.Contains(a.Verdicts[0].Rule, c.says) {
			t.Errorf("%s of %s: %+v", c.flow, c.bytes, a.Verdicts)
		}
		for _, v := range append(a.Verdicts[1:], linux.Why(t.Context(), k, alike, f).Verdicts...) {
			if v.Class != plan.Normal || !strings.Contains(v.Rule, "every flow is treated alike") {
				t.Errorf("%s of %s, where no filter is: %+v", c.flow, c.bytes, v)
			}
		}
	}
}
