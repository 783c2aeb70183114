package scenario

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"unbloat/unit"
)

// A LineKind is a kind of line whose rates vary in a way of its own.
type LineKind string

// Kinds of lines that vary. They are models made for tests, not recordings.
const (
	Starlink LineKind = "starlink" // another level each 15 s, sometimes after a short break
	Cable    LineKind = "cable"    // slowly slower while the neighbours come home
	WiFi     LineKind = "wifi"     // levels of a radio link that last a second or so, and short dips
	LTE      LineKind = "lte"      // another rate each 100 ms around one that wanders, and outages
)

// LineKinds returns all kinds.
func LineKinds() []LineKind { return []LineKind{Starlink, Cable, WiFi, LTE} }

// Varying returns how the rates of a line of a kind change, as ParseTrace does. The same
// seed gives the same line.
func Varying(kind LineKind, seed uint64, lasts time.Duration) ([]Change, error) {
	r := rand.New(rand.NewPCG(seed, 0x6c69_6e65))
	var step time.Duration
	var next func(at time.Duration) (down, up float64) // Mbit/s
	switch kind {
	case Starlink:
		step, next = 100*time.Millisecond, starlinkLine(r)
	case Cable:
		step, next = 500*time.Millisecond, cableLine(r, lasts)
	case WiFi:
		step, next = 50*time.Millisecond, wifiLine(r)
	case LTE:
		step, next = 100*time.Millisecond, lteLine(r)
	default:
		return nil, fmt.Errorf("no kind of line is called %q; there are %v", kind, LineKinds())
	}
	var out []Change
	for at := time.Duration(0); at < lasts; at += step {
		down, up := next(at)
		c := Change{At: at, Down: rateOf(math.Round(down*100) / 100), Up: rateOf(math.Round(up*100) / 100), Exact: true}
		if n := len(out); n == 0 || out[n-1].Down != c.Down || out[n-1].Up != c.Up {
			out = append(out, c)
		}
	}
	return out, nil
}

// FormatTrace writes changes as ParseTrace reads them.
func FormatTrace(comment string, changes []Change) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n", comment)
	for _, c := range changes {
		fmt.Fprintf(&b, "%.2f %g %g\n", c.At.Seconds(), mbitOf(c.Down), mbitOf(c.Up))
	}
	return []byte(b.String())
}

func mbitOf(r unit.Rate) float64 { return float64(r) / 1e6 }

// starlinkLine has a level for each 15 s, with some noise.
func starlinkLine(r *rand.Rand) func(time.Duration) (float64, float64) {
	slot, cut := -1, time.Duration(0)
	var down, up float64
	return func(at time.Duration) (float64, float64) {
		if s := int((at + 3*time.Second) / (15 * time.Second)); s != slot {
			slot = s
			down, up = 25+75*r.Float64(), 4+8*r.Float64()
			if cut = 0; r.Float64() < 0.4 {
				cut = at + 100*time.Millisecond
			}
		}
		if at < cut {
			return 0, 0
		}
		return down * (1 + 0.04*r.NormFloat64()), up * (1 + 0.04*r.NormFloat64())
	}
}

// cableLine falls to half its rate and comes part of the way back.
func cableLine(r *rand.Rand, lasts time.Duration) func(time.Duration) (float64, float64) {
	wander := 0.0
	return func(at time.Duration) (float64, float64) {
		x := at.Seconds() / lasts.Seconds()
		wander += -0.2*wander + 0.03*r.NormFloat64()
		share := 1 - 0.5*math.Sin(math.Pi*min(x*1.2, 1)*0.75) + wander
		return 80 * min(max(share, 0.3), 1), 10 * min(max(0.5+share/2, 0.5), 1)
	}
}

// wifiLine goes from one modulation to a neighbouring one.
func wifiLine(r *rand.Rand) func(time.Duration) (float64, float64) {
	levels := []float64{6, 12, 20, 32, 45, 60, 80}
	level, until, dip := 4, time.Duration(0), time.Duration(0)
	return func(at time.Duration) (float64, float64) {
		if at >= until {
			level = min(max(level+r.IntN(3)-1, 0), len(levels)-1)
			until = at + time.Duration((0.3+r.ExpFloat64())*float64(time.Second))
		}
		if r.Float64() < 0.01 {
			dip = at + 50*time.Millisecond + time.Duration(r.Int64N(int64(150*time.Millisecond)))
		}
		rate := levels[level]
		if at < dip {
			rate *= 0.2
		}
		return rate * 0.8, rate * 0.4
	}
}

// lteLine wanders on a logarithmic scale, with fading on top.
func lteLine(r *rand.Rand) func(time.Duration) (float64, float64) {
	var slow, fade [2]float64
	out := time.Duration(0)
	return func(at time.Duration) (float64, float64) {
		if r.Float64() < 0.004 {
			out = at + 200*time.Millisecond + time.Duration(r.Int64N(int64(700*time.Millisecond)))
		}
		for i := range slow {
			slow[i] += -0.01*slow[i] + 0.07*r.NormFloat64()
			fade[i] += -0.3*fade[i] + 0.18*r.NormFloat64()
		}
		if at < out {
			return 0, 0
		}
		of := func(i int, mean float64) float64 { return min(mean*math.Exp(slow[i]+fade[i]), 5*mean) }
		return of(0, 14), of(1, 6)
	}
}
