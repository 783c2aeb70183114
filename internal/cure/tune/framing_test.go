package tune

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform/linux"
	"unbloat/internal/measure/framing"
	"unbloat/internal/measure/phases"
	"unbloat/unit"
)

// A framedLine also tells what it adds to each packet.
type framedLine struct {
	fakeLine
	says  framing.Estimate
	fail  error
	asked int
}

func (f *framedLine) Framing(context.Context, phases.Direction, unit.Rate) (framing.Estimate, error) {
	f.asked++
	return f.says, f.fail
}

// What the line adds is measured where nobody has said it, goes into the plan, and the
// rates are in the line's own bytes; what is not sure, or an old server, changes nothing.
func TestFraming(t *testing.T) {
	atm := framing.Estimate{Overhead: 40, ATM: true, Sure: true}
	for _, c := range []struct {
		name     string
		line     plan.Line
		says     framing.Estimate
		fail     error
		overhead int
		asked    int
		wire     float64 // of a full packet
	}{
		{"ATM", plan.Line{}, atm, nil, 40, 2, 1749},
		{"not sure", plan.Line{}, framing.Estimate{Overhead: 40}, nil, 14, 2, 1514},
		{"an older server", plan.Line{}, framing.Estimate{}, fmt.Errorf("ask: %w", phases.ErrRefused), 14, 1, 1514},
		{"said", plan.Line{Overhead: 34}, atm, nil, 34, 0, 1534},
	} {
		f := &framedLine{says: c.says, fail: c.fail}
		began := f.Now()
		r, err := Run(t.Context(), Config{Line: c.line, Capabilities: plan.Capabilities{Language: linux.Language(), WAN: "wan", IFB: true}, Now: f.Now}, f, f)
		if err != nil || !r.Kept {
			t.Fatalf("%s: %v, kept %v (%s)", c.name, err, r.Kept, r.Reason)
		}
		if r.Plan.Up.Overhead != c.overhead || f.asked != c.asked || (r.Before.Framing != nil) != (c.asked == 2) {
			t.Errorf("%s: overhead %d, asked %d times, told %v", c.name, r.Plan.Up.Overhead, f.asked, r.Before.Framing)
		}
		if got := float64(r.LineDownBps) / r.Before.Download.GoodputDownBps * 1448; math.Abs(got-c.wire) > 12 { // probes count too
			t.Errorf("%s: a full packet counts as %.0f bytes, it occupies %.0f", c.name, got, c.wire)
		}
		if d := f.Now().Sub(began); math.Abs(d.Seconds()-r.LineSeconds) > 1 || d > MostTime(4, 4)+time.Second {
			t.Errorf("%s: it took %v, and says %.1f s", c.name, d, r.LineSeconds)
		}
	}
}

// A framing that is known is asked for again only where the line carries much more or less.
func TestFramingHolds(t *testing.T) {
	known := plan.Line{}.WithFraming(40, 0, true)
	now := framing.Estimate{Overhead: 26, Sure: true}
	for _, c := range []struct {
		name     string
		down, up float64 // that it was measured at, of what the line carries
		asked    int
		overhead int
	}{
		{"the same line", 1, 1, 0, 40}, {"a little slower then", 0.75, 0.9, 0, 40}, {"not known when", 0, 0, 0, 40},
		{"half as fast then", 0.5, 1, 2, 26}, {"an upload of twice the rate then", 1, 2, 2, 26},
	} {
		f := &framedLine{says: now}
		first, err := Run(t.Context(), Config{Capabilities: plan.Capabilities{Language: linux.Language(), WAN: "wan", IFB: true}, Now: f.Now, Line: known}, f, f)
		if err != nil {
			t.Fatal(err)
		}
		f = &framedLine{says: now}
		line := known
		line.MeasuredDown, line.MeasuredUp = first.LineDownBps.Scale(c.down), first.LineUpBps.Scale(c.up)
		r, err := Run(t.Context(), Config{Line: line, Capabilities: plan.Capabilities{Language: linux.Language(), WAN: "wan", IFB: true}, Now: f.Now}, f, f)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if l := r.Plan.Basis.Line; f.asked != c.asked || l.Overhead != c.overhead || !l.Measured || c.asked > 0 && l.MeasuredUp != r.LineUpBps {
			t.Errorf("%s: asked %d times, and keeps %q", c.name, f.asked, l.FramingText())
		}
	}
}
