package prove

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform/linux"
	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/verdict"
	"unbloat/testkit/await"
	"unbloat/unit"
)

// A fakeLine is a line, a client and a router in one: leg k of the session has
// the round trip times of the noise, plus the gain of its side.
type fakeLine struct {
	rng     *rand.Rand
	noise   func(rng *rand.Rand, leg int) func(i int) float64 // ms at probe i
	gain    map[string]float64                                // ms, by side
	side    string
	leg     int
	samples int // per leg

	invalid  func(leg int) string // why leg k is not valid; may be nil
	failAt   int                  // the leg whose measurement fails; 0: none
	switches []string
	reverted int
}

func (f *fakeLine) Switch(_ context.Context, s Side) error {
	f.side = s.Name
	f.switches = append(f.switches, s.Name)
	return nil
}

func (f *fakeLine) Revert(context.Context) error { f.reverted++; return nil }

func (f *fakeLine) Phase(ctx context.Context, s phases.PhaseSpec) (*phases.RawPhase, error) {
	if s.Name != verdict.PhaseIdle {
		f.leg++
	}
	if f.failAt > 0 && f.leg == f.failAt {
		return nil, errors.New("the server is gone")
	}
	return &phases.RawPhase{Name: s.Name, Start: unit.Instant(f.leg)}, ctx.Err()
}

func (f *fakeLine) Judge(label string, raws []phases.RawPhase) *verdict.Test {
	t := &verdict.Test{Schema: verdict.TestSchema, Server: "fake:7676", Label: label, Valid: true, InvalidReasons: []string{}, Idle: &verdict.Phase{}}
	if f.invalid != nil {
		if why := f.invalid(len(raws) - 1 + f.leg - 1); why != "" && len(raws) > 1 {
			t.Valid, t.InvalidReasons = false, []string{why}
		}
	}
	if len(raws) < 2 {
		return t
	}
	n, noise := f.samples, f.noise(f.rng, f.leg)
	s := &verdict.Timeline{EndS: float64(n) / 100, BinS: 0.1}
	p := &verdict.Phase{Seconds: s.EndS, Series: s, GoodputDownBps: 28e6, GoodputUpBps: 4.6e6}
	var all []float64
	for i := range n {
		v := max(noise(i)-f.gain[f.side], 1)
		s.TS = append(s.TS, float64(i)/100)
		s.RTTMs = append(s.RTTMs, &v)
		all = append(all, v)
		if i%10 == 0 {
			s.DownMbps = append(s.DownMbps, 28+f.rng.NormFloat64())
			s.UpMbps = append(s.UpMbps, 4.6+f.rng.NormFloat64()/10)
		}
	}
	slices.Sort(all)
	p.Latency.RTTMs.P95 = all[n*95/100]
	t.Both = p
	return t
}

func sides(a, b string) [2]Side { return [2]Side{{Name: a}, {Name: b}} }

func run(t *testing.T, c Config, f *fakeLine) (*Result, error) {
	t.Helper()
	if f.samples == 0 {
		f.samples = 300
	}
	c.Now = func() time.Time { return time.Unix(1_800_000_000, 0) }
	return Run(t.Context(), c, f, f)
}

func calm(rng *rand.Rand, _ int) func(int) float64 {
	return func(int) float64 { return 200 + 5*rng.NormFloat64() }
}

func TestRun(t *testing.T) {
	for _, c := range []struct {
		name    string
		gain    float64
		outcome verdict.Outcome
		says    string
	}{
		{"better", 150, verdict.Improved, "Improved: under load the p95 round trip is 208 ms with no shaping, and 5"},
		{"worse", -150, verdict.Worsened, "Worse: "},
		{"the same", 0, verdict.NoDifference, "No difference shown between no shaping and the plan"},
	} {
		f := &fakeLine{rng: rand.New(rand.NewPCG(1, 2)), noise: calm, gain: map[string]float64{SidePlan: c.gain}}
		r, err := run(t, Config{Sides: sides(SideNone, SidePlan), WAN: "wan", Seed: 7}, f)
		if err != nil || r.Outcome != c.outcome || !strings.HasPrefix(r.Sentence, c.says) {
			t.Errorf("%s: %v, %s, %q", c.name, err, r.Outcome, r.Sentence)
		}
		if f.reverted != 1 || len(f.switches) != 2*r.PairsWanted || r.PairsUsed != verdict.MinPairs || r.Server != "fake:7676" {
			t.Errorf("%s: reverted %d times, switches %v, %d pairs used", c.name, f.reverted, f.switches, r.PairsUsed)
		}
	}
}

// TestRunUndoes: however a proof ends, the router is as before.
func TestRunUndoes(t *testing.T) {
	for leg := 1; leg <= 2*verdict.MinPairs; leg++ {
		f := &fakeLine{rng: rand.New(rand.NewPCG(1, 2)), noise: calm, failAt: leg}
		r, err := run(t, Config{Sides: sides(SideNone, SidePlan)}, f)
		if err == nil || f.reverted != 1 || r == nil || r.Outcome != verdict.Unproved {
			t.Errorf("failed at leg %d: %v, reverted %d times, %+v", leg, err, f.reverted, r)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f := &fakeLine{rng: rand.New(rand.NewPCG(1, 2)), noise: calm}
	if _, err := Run(ctx, Config{Sides: sides(SideNone, SidePlan)}, f, f); !errors.Is(err, context.Canceled) || f.reverted != 1 {
		t.Errorf("interrupted: %v, reverted %d times", err, f.reverted)
	}
}

// TestRunReplaces: an invalid pair is measured again, but only a limited number
// of times.
func TestRunReplaces(t *testing.T) {
	fresh := func(bad func(int) string) *fakeLine {
		return &fakeLine{rng: rand.New(rand.NewPCG(1, 2)), noise: calm, gain: map[string]float64{SidePlan: 100}, invalid: bad}
	}
	f := fresh(func(leg int) string {
		if leg == 3 || leg == 8 {
			return "both: probes left late"
		}
		return ""
	})
	r, err := run(t, Config{Sides: sides(SideNone, SidePlan)}, f)
	if err != nil || r.Outcome != verdict.Improved || len(r.Pairs) != 7 || r.PairsUsed != 5 {
		t.Errorf("two bad pairs: %v, %s, %d of %d pairs", err, r.Outcome, r.PairsUsed, len(r.Pairs))
	}
	f = fresh(func(int) string { return "both: probes left late" })
	r, err = run(t, Config{Sides: sides(SideNone, SidePlan)}, f)
	if err != nil || r.Outcome != verdict.Unproved || len(r.Pairs) != 3 || !strings.Contains(r.Sentence, "only 0 of 5 pairs can be trusted; ") || f.reverted != 1 {
		t.Errorf("all bad: %v, %s, %d pairs, %q", err, r.Outcome, len(r.Pairs), r.Sentence)
	}
}

// Laws of the schedule: pairs of opposite order, and each side is first equally
// often.
func TestScheduleLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 40).Draw(t, "pairs")
		seed := rapid.Uint64().Draw(t, "seed")
		order := Schedule(n, rand.New(rand.NewPCG(seed, 0)))
		second := 0
		for i, b := range order {
			if b {
				second++
			}
			if i%2 == 1 && b == order[i-1] {
				t.Fatalf("pairs %d and %d have the same order: %v", i-1, i, order)
			}
		}
		if d := 2*second - n; d < -1 || d > 1 {
			t.Fatalf("%d of %d pairs begin with the second side", second, n)
		}
	})
}

// noises are kinds of noise on a line where nothing changes, each difficult in
// another way. Probes 10 ms apart meet the same queue, so all are
// autocorrelated.
func noises() map[string]func(*rand.Rand, int) func(int) float64 {
	ar := func(rng *rand.Rand, phi, sd float64) func() float64 {
		x := rng.NormFloat64() * sd
		return func() float64 {
			x = phi*x + math.Sqrt(1-phi*phi)*sd*rng.NormFloat64()
			return x
		}
	}
	return map[string]func(*rand.Rand, int) func(int) float64{
		"autocorrelated": func(rng *rand.Rand, _ int) func(int) float64 {
			x := ar(rng, 0.98, 20)
			return func(int) float64 { return 100 + x() }
		},
		"sawtooth of TCP": func(rng *rand.Rand, _ int) func(int) float64 {
			period, at, top := 150+300*rng.Float64(), 300*rng.Float64(), 250+30*rng.NormFloat64()
			return func(i int) float64 {
				return top * (0.7 + 0.3*math.Mod(at+float64(i), period)/period)
			}
		},
		"legs differ": func(rng *rand.Rand, _ int) func(int) float64 {
			x, base := ar(rng, 0.9, 3), 40*math.Exp(rng.NormFloat64())
			return func(int) float64 { return base + x() }
		},
		"drift": func(rng *rand.Rand, leg int) func(int) float64 {
			x := ar(rng, 0.95, 4)
			return func(i int) float64 { return 60 + 5*float64(leg) + x() }
		},
		"the later leg suffers": func(rng *rand.Rand, leg int) func(int) float64 {
			x := ar(rng, 0.95, 4)
			return func(int) float64 { return 60 + 20*float64(leg%2) + x() }
		},
		"a neighbour's bursts": func(rng *rand.Rand, _ int) func(int) float64 {
			x, from := ar(rng, 0.9, 2), rng.IntN(900)
			return func(i int) float64 {
				if i >= from && i < from+60 {
					return 300 + x()
				}
				return 30 + x()
			}
		},
	}
}

// TestUnchangedLines: on lines where nothing changes at most 5 proofs in 100
// claim an improvement, with any noise and any number of pairs.
func TestUnchangedLines(t *testing.T) {
	await.NotShort(t)
	trials, counts := 100, []int{5}
	if os.Getenv("UNBLOAT_LONG") != "" {
		trials, counts = 1000, []int{5, 6, 8, 12}
	}
	for name, noise := range noises() {
		for _, pairs := range counts {
			t.Run(fmt.Sprintf("%s/%d", name, pairs), func(t *testing.T) {
				improved, worse := 0, 0
				for i := range trials {
					f := &fakeLine{rng: rand.New(rand.NewPCG(uint64(i), 99)), noise: noise}
					r, err := run(t, Config{Sides: sides(SideNone, SidePlan), Pairs: pairs, Seed: uint64(i)}, f)
					if err != nil {
						t.Fatal(err)
					}
					switch r.Outcome {
					case verdict.Improved:
						improved++
					case verdict.Worsened:
						worse++
					}
				}
				t.Logf("of %d: improved %.1f %%, worse %.1f %%", trials, 100*float64(improved)/float64(trials), 100*float64(worse)/float64(trials))
				if improved*100 > trials*5 {
					t.Errorf("%d of %d claim an improvement", improved, trials)
				}
			})
		}
	}
}

// TestPower: a relevant improvement is found in nearly every proof.
func TestPower(t *testing.T) {
	await.NotShort(t)
	found := 0
	for i := range 100 {
		f := &fakeLine{rng: rand.New(rand.NewPCG(uint64(i), 5)), noise: noises()["sawtooth of TCP"], gain: map[string]float64{SidePlan: 200}}
		r, err := run(t, Config{Sides: sides(SideNone, SidePlan), Seed: uint64(i)}, f)
		if err != nil {
			t.Fatal(err)
		}
		if r.Outcome == verdict.Improved {
			found++
		}
	}
	if found < 95 {
		t.Errorf("an improvement of 200 of 250 ms was found in %d of 100", found)
	}
}

func basePlan(t *testing.T, aqm plan.AQM) plan.Plan {
	t.Helper()
	p, err := plan.Make(plan.Line{}, plan.Capabilities{Language: linux.Language(), WAN: "wan", LAN: "lan", IFB: true, MTU: 1500},
		plan.Preferences{AQM: aqm, Down: plan.RatePreference{Rate: 28 * unit.MbitPerSecond}, Up: plan.RatePreference{Rate: 4600 * unit.KbitPerSecond}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestSides(t *testing.T) {
	cake := basePlan(t, plan.CAKE)
	bare := cake
	bare.Basis = nil
	for _, c := range []struct {
		between string
		base    plan.Plan
		err     string
		aqms    [2]plan.AQM // "": none
	}{
		{"none,plan", cake, "", [2]plan.AQM{"", plan.CAKE}},
		{"none,plan", bare, "", [2]plan.AQM{"", plan.CAKE}},
		{"cake, fq_codel", cake, "", [2]plan.AQM{plan.CAKE, plan.FQCoDel}},
		{"fifo,plan", cake, "", [2]plan.AQM{plan.FIFO, plan.CAKE}},
		{"noecn,ecn", cake, "", [2]plan.AQM{plan.FQCoDel, plan.FQCoDel}},
		{"none,none", plan.Plan{}, "", [2]plan.AQM{"", ""}},
		{"cake,fq_codel", bare, "does not say what it was made from", [2]plan.AQM{}},
		{"cake", cake, "give two sides", [2]plan.AQM{}},
		{"cake,red", cake, `"red" is no side`, [2]plan.AQM{}},
	} {
		names, err := SideNames(c.between)
		var s [2]Side
		if err == nil {
			s, err = Sides(names, c.base)
		}
		var side *SideError
		if c.err != "" {
			if !errors.As(err, &side) || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v, want %q", c.between, err, c.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.between, err)
			continue
		}
		for i, want := range c.aqms {
			var got plan.AQM
			if s[i].Plan != nil {
				got = s[i].Plan.AQM
				if s[i].Plan.DownBps != c.base.DownBps || s[i].Plan.UpBps != c.base.UpBps {
					t.Errorf("%s: side %d has other rates", c.between, i)
				}
			}
			if got != want {
				t.Errorf("%s: side %d is %q, want %q", c.between, i, got, want)
			}
		}
	}
	names, _ := SideNames("ecn,noecn")
	if s, err := Sides(names, cake); err != nil || !s[0].Plan.Up.ECN || s[1].Plan.Up.ECN || s[1].Plan.Down.ECN {
		t.Errorf("ecn,noecn: %v, %+v", err, s)
	}
}
