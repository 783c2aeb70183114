package plan_test

import (
	"testing"

	"pgregory.net/rapid"

	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform/linux"
	"unbloat/unit"
)

// What was measured of a framing is read back as it was written; anything else is refused.
func TestFramingText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := plan.Line{}.WithFraming(rapid.IntRange(0, 127).Draw(t, "overhead"), rapid.IntRange(0, 256).Draw(t, "mpu"), rapid.Bool().Draw(t, "atm"))
		l.MeasuredDown, l.MeasuredUp = unit.Rate(rapid.IntRange(0, 4e8).Draw(t, "down")), unit.Rate(rapid.IntRange(0, 4e8).Draw(t, "up"))
		got, err := plan.Line{}.WithFramingText(l.FramingText())
		if err != nil || got != l {
			t.Fatalf("%q: %+v, %v; it is %+v", l.FramingText(), got, err, l)
		}
	})
	for _, bad := range []string{"", "atm", "overhead", "overhead x", "overhead -1", "overhead 300", "overhead 40 mtu 9", "overhead 40 down fast"} {
		if l, err := (plan.Line{}).WithFramingText(bad); err == nil {
			t.Errorf("%q: read as %q", bad, l.FramingText())
		}
	}
	if s := (plan.Line{Overhead: 40}).FramingText(); s != "" {
		t.Errorf("of a line whose overhead was said: %q", s)
	}
}

// An acknowledgement costs more than it seems where it is cut into cells: on 6/0.7 Mbit/s those
// of a full download take a quarter of the upload, so CAKE thins them, and classes allow fewer.
func TestAcksOfFraming(t *testing.T) {
	capabilities := plan.Capabilities{Language: linux.Language(), WAN: "wan", LAN: "lan", IFB: true}
	line := plan.Line{Down: 6 * unit.MbitPerSecond, Up: 700 * unit.KbitPerSecond}
	for _, c := range []struct {
		line  plan.Line
		thins bool
		acks  int
	}{{line, false, 147}, {line.WithFraming(40, 0, true), true, 107}} {
		p, err := plan.Make(c.line, capabilities, plan.Preferences{AQM: plan.CAKE})
		if err != nil {
			t.Fatal(err)
		}
		if p.Up.AckFilter != c.thins || p.Classes.Behaviour.Acks != c.acks {
			t.Errorf("%q: CAKE thins %v, classes allow %d a second", c.line.FramingText(), p.Up.AckFilter, p.Classes.Behaviour.Acks)
		}
	}
}
