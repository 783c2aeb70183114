package verdict

import (
	"math"
	"math/rand/v2"
	"slices"
)

// MinPairs is the least number of pairs that can prove anything: the chance
// that five pairs of an unchanged line all point the same, better, way is 1 in 32.
const MinPairs = 5

// An Outcome is the result of a proof.
type Outcome string

// Outcomes of a proof, of the second side against the first.
const (
	Improved     Outcome = "improved"            // the whole interval of the p95 is below zero
	Worsened     Outcome = "worse"               // the whole of it is above zero
	NoDifference Outcome = "no difference shown" // it holds zero
	Unproved     Outcome = "invalid"             // too few pairs can be trusted
)

// A Pair is the same load measured without and with what is to be proved, one
// soon after the other.
type Pair struct {
	Without *Phase
	With    *Phase
}

// A Change is how a figure changed from without to with: the median over the
// pairs and its 95 % interval. Negative is less.
type Change struct {
	Median float64 `json:"median"`
	Interval
}

// A Proof is what interleaved pairs show.
type Proof struct {
	Outcome     Outcome `json:"outcome"`
	P95Ms       *Change `json:"p95_change_ms"`       // of the round trip under load; nil: unproved
	GoodputDown *Change `json:"goodput_down_change"` // as a fraction of that without; nil: nothing was loaded that way
	GoodputUp   *Change `json:"goodput_up_change"`
}

// Settings of the paired bootstrap. binBlock is in bins of a Timeline: one second.
const (
	pairedDraws = 10000
	innerDraws  = 200
	binBlock    = 10
	pairedSeed  = 20260301
)

// Prove separates change from chance. The medians of the paired differences are
// drawn anew by a hierarchical bootstrap: pairs first, since what differs from
// one run of TCP to the next is the most of the chance, and blocks of probes
// inside each leg (as ImprovementP95 does). The median bears a pair that
// something disturbed. The interval is wide enough for few pairs (expandedTail). The same pairs always give the same proof.
func Prove(pairs []Pair) Proof {
	if len(pairs) < MinPairs {
		return Proof{Outcome: Unproved}
	}
	rng := rand.New(rand.NewPCG(pairedSeed, uint64(len(pairs))))
	quantile := func(v []float64) float64 { return nearestRank(v, 0.95) }
	var p95, down, up []legs
	for _, p := range pairs {
		b, a := answered(p.Without), answered(p.With)
		if len(b) < MinSamples || len(a) < MinSamples {
			return Proof{Outcome: Unproved}
		}
		p95 = append(p95, legs{redrawn(b, bootstrapBlock, quantile, rng), redrawn(a, bootstrapBlock, quantile, rng)})
		down = append(down, legs{
			redrawn(countedBins(p.Without, p.Without.Series.DownMbps), binBlock, mean, rng),
			redrawn(countedBins(p.With, p.With.Series.DownMbps), binBlock, mean, rng),
		})
		up = append(up, legs{
			redrawn(countedBins(p.Without, p.Without.Series.UpMbps), binBlock, mean, rng),
			redrawn(countedBins(p.With, p.With.Series.UpMbps), binBlock, mean, rng),
		})
	}
	p := Proof{
		P95Ms:       change(p95, func(without, with float64) float64 { return with - without }, rng),
		GoodputDown: change(down, share, rng),
		GoodputUp:   change(up, share, rng),
	}
	switch {
	case p.P95Ms.Hi < 0:
		p.Outcome = Improved
	case p.P95Ms.Lo > 0:
		p.Outcome = Worsened
	default:
		p.Outcome = NoDifference
	}
	return p
}

// A figure is one leg's: as measured, and redrawn from its blocks.
type figure struct {
	value   float64
	redrawn []float64 // nil: there was nothing to measure
}

// legs are the two figures of a pair.
type legs struct{ without, with figure }

// redrawn measures a leg by f, which may reorder what it is given.
func redrawn(src []float64, block int, f func([]float64) float64, rng *rand.Rand) figure {
	if len(src) == 0 {
		return figure{}
	}
	out := figure{value: f(slices.Clone(src)), redrawn: make([]float64, innerDraws)}
	dst := make([]float64, len(src))
	for i := range out.redrawn {
		out.redrawn[i] = f(redraw(dst, src, block, rng))
	}
	return out
}

// change draws the median of the pairs' changes; nil if a leg has no figure.
func change(pairs []legs, by func(without, with float64) float64, rng *rand.Rand) *Change {
	measured := make([]float64, len(pairs))
	for i, p := range pairs {
		if p.without.redrawn == nil || p.with.redrawn == nil || p.without.value <= 0 {
			return nil
		}
		measured[i] = by(p.without.value, p.with.value)
	}
	draws, drawn := make([]float64, pairedDraws), make([]float64, len(pairs))
	for i := range draws {
		for k := range drawn {
			p := &pairs[rng.IntN(len(pairs))]
			drawn[k] = by(p.without.redrawn[rng.IntN(innerDraws)], p.with.redrawn[rng.IntN(innerDraws)])
		}
		draws[i] = middle(drawn)
	}
	slices.Sort(draws)
	m, q := milli(middle(measured)), expandedTail(len(pairs))
	// What was measured is always inside, though redrawn blocks may be biased.
	return &Change{m, Interval{min(m, milli(atRank(draws, q))), max(m, milli(atRank(draws, 1-q)))}}
}

// expandedTail returns what is left out at each end of n pairs' draws: 2.5 %, but
// less of few pairs, whose own spread is too small by √((n−1)/n) and not known
// well, by as much as Student's t is wider than the normal distribution
// (Hesterberg 2015, "expanded percentile interval").
func expandedTail(n int) float64 {
	const z = 1.959964
	nu := float64(n - 1)
	// Student's 97.5 % quantile: Abramowitz and Stegun 26.7.5.
	t := z + (z*z*z+z)/(4*nu) + (5*math.Pow(z, 5)+16*z*z*z+3*z)/(96*nu*nu) +
		(3*math.Pow(z, 7)+19*math.Pow(z, 5)+17*z*z*z-15*z)/(384*nu*nu*nu)
	return math.Erfc(t*math.Sqrt(float64(n)/nu)/math.Sqrt2) / 2
}

// share is the change as a fraction of what there was without.
func share(without, with float64) float64 {
	if without <= 0 {
		return 0
	}
	return with/without - 1
}

// middle sorts v and returns its median.
func middle(v []float64) float64 {
	slices.Sort(v)
	n := len(v)
	return (v[(n-1)/2] + v[n/2]) / 2
}

func mean(v []float64) float64 {
	var sum float64
	for _, x := range v {
		sum += x
	}
	return sum / float64(len(v))
}

// countedBins returns the bins that lie wholly in a phase's counted part.
func countedBins(p *Phase, bins []float64) []float64 {
	s := p.Series
	if s.BinS <= 0 {
		return nil
	}
	from, to := countedSpan(p)
	first := max(int((from-s.StartS)/s.BinS+0.999), 0)
	last := min(int((to-s.StartS)/s.BinS+0.001), len(bins))
	if first >= last {
		return nil
	}
	return bins[first:last]
}
