package verdict

import (
	"flag"
	"math"
	"os"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// leg returns a phase of 2 s with a probe every 10 ms, all of which count.
func leg(rtt func(i int) float64, down, up float64) *Phase {
	s := &Timeline{StartS: 10, EndS: 12, BinS: 0.1}
	for i := range 200 {
		v := rtt(i)
		s.TS = append(s.TS, 10+float64(i)/100)
		s.RTTMs = append(s.RTTMs, &v)
	}
	for range 20 {
		s.DownMbps = append(s.DownMbps, down)
		s.UpMbps = append(s.UpMbps, up)
	}
	return &Phase{Seconds: 2, Series: s}
}

func flat(ms float64) func(int) float64 { return func(i int) float64 { return ms + float64(i%7)/100 } }

func repeat(p Pair, n int) []Pair { return slices.Repeat([]Pair{p}, n) }

func TestProveKnown(t *testing.T) {
	slow, fast := leg(flat(300), 30, 5), leg(flat(25), 27, 5)
	for _, c := range []struct {
		name    string
		pairs   []Pair
		outcome Outcome
	}{
		{"improved", repeat(Pair{slow, fast}, 5), Improved},
		{"worse", repeat(Pair{fast, slow}, 5), Worsened},
		{"the same", repeat(Pair{slow, slow}, 5), NoDifference},
		{"four of five", append(repeat(Pair{slow, fast}, 4), Pair{fast, slow}), NoDifference},
		{"nine of ten", append(repeat(Pair{slow, fast}, 9), Pair{fast, slow}), Improved},
		{"too few", repeat(Pair{slow, fast}, 4), Unproved},
		{"no series", append(repeat(Pair{slow, fast}, 5), Pair{slow, &Phase{Seconds: 2}}), Unproved},
		{"none", nil, Unproved},
	} {
		if p := Prove(c.pairs); p.Outcome != c.outcome {
			t.Errorf("%s: %s, want %s (%+v)", c.name, p.Outcome, c.outcome, p.P95Ms)
		}
	}
	p := Prove(repeat(Pair{slow, fast}, 5))
	if math.Abs(p.P95Ms.Median+275) > 0.1 || math.Abs(p.GoodputDown.Median+0.1) > 1e-3 || math.Abs(p.GoodputUp.Median) > 1e-3 {
		t.Errorf("p95 %+v, download %+v, upload %+v", p.P95Ms, p.GoodputDown, p.GoodputUp)
	}
	if q := Prove(repeat(Pair{leg(flat(9), 0, 5), leg(flat(9), 0, 5)}, 5)); q.GoodputDown != nil || q.GoodputUp == nil {
		t.Errorf("nothing was downloaded: %+v", q)
	}
}

// Laws: the measured value is in its interval, swapping the sides mirrors the
// median, shifting both sides alike changes nothing, and the result is
// repeatable.
func TestProveLaws(t *testing.T) {
	if checks := flag.Lookup("rapid.checks"); os.Getenv("UNBLOAT_LONG") == "" && checks.Value.String() == checks.DefValue {
		if err := checks.Value.Set("20"); err != nil { // of the hundred at night
			t.Fatal(err)
		}
		defer func() { _ = checks.Value.Set(checks.DefValue) }()
	}
	rapid.Check(t, func(t *rapid.T) {
		base := rapid.Float64Range(1, 500)
		var pairs, swapped, shifted []Pair
		by := rapid.Float64Range(0, 100).Draw(t, "by")
		for i := range rapid.IntRange(MinPairs, 9).Draw(t, "pairs") {
			a, b := base.Draw(t, "without"), base.Draw(t, "with")
			wave := func(ms float64) func(int) float64 {
				return func(k int) float64 { return ms * (1 + math.Abs(math.Sin(float64(k+i)/20))) }
			}
			up := func(f func(int) float64) func(int) float64 { return func(k int) float64 { return f(k) + by } }
			pairs = append(pairs, Pair{leg(wave(a), 10, 1), leg(wave(b), 9, 1)})
			swapped = append(swapped, Pair{pairs[i].With, pairs[i].Without})
			shifted = append(shifted, Pair{leg(up(wave(a)), 10, 1), leg(up(wave(b)), 9, 1)})
		}
		p, q, r := Prove(pairs), Prove(swapped), Prove(shifted)
		if c := p.P95Ms; c.Lo > c.Median || c.Median > c.Hi {
			t.Fatalf("%+v", c)
		}
		if math.Abs(p.P95Ms.Median+q.P95Ms.Median) > 1e-3 {
			t.Fatalf("%+v, swapped %+v", p.P95Ms, q.P95Ms)
		}
		if math.Abs(p.P95Ms.Lo-r.P95Ms.Lo) > 1e-3 || math.Abs(p.P95Ms.Hi-r.P95Ms.Hi) > 1e-3 {
			t.Fatalf("%+v, shifted by %g %+v", p.P95Ms, by, r.P95Ms)
		}
		if again := Prove(pairs); *again.P95Ms != *p.P95Ms {
			t.Fatalf("%+v, again %+v", p.P95Ms, again.P95Ms)
		}
	})
}

func TestExpandedTail(t *testing.T) {
	for n, want := range map[int]float64{5: 0.00097, 6: 0.0024, 10: 0.0086, 30: 0.0188, 1000: 0.0249} {
		if got := expandedTail(n); math.Abs(got-want) > want/30 {
			t.Errorf("%d pairs: %.5f, want %.5f", n, got, want)
		}
	}
}

func BenchmarkProve(b *testing.B) {
	pairs := repeat(Pair{leg(flat(300), 30, 5), leg(flat(25), 27, 5)}, MinPairs)
	for b.Loop() {
		Prove(pairs)
	}
}
