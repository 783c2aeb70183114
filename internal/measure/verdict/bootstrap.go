package verdict

import (
	"math/rand/v2"
	"slices"
)

// An Interval is a 95 % confidence interval.
type Interval struct {
	Lo float64 `json:"lo"`
	Hi float64 `json:"hi"`
}

// Bootstrap settings. Neighbouring probes wait in the same queue, so whole
// blocks are drawn (moving-block bootstrap, Künsch 1989): half a second of
// probes at the default interval.
const (
	bootstrapDraws = 500
	bootstrapBlock = 50
	bootstrapSeed  = 20130201
)

// ImprovementP95 returns by how many ms the p95 of the round trip fell from
// before to after, as an interval. It is improved only if Lo is above zero. nil
// means that a phase has no series to draw from. The same phases always give
// the same interval.
func ImprovementP95(before, after *Phase) *Interval {
	b, a := answered(before), answered(after)
	if len(b) < MinSamples || len(a) < MinSamples {
		return nil
	}
	rng := rand.New(rand.NewPCG(bootstrapSeed, uint64(len(b))<<32|uint64(len(a))))
	differences := make([]float64, bootstrapDraws)
	bs, as := make([]float64, len(b)), make([]float64, len(a))
	for i := range differences {
		differences[i] = nearestRank(redraw(bs, b, bootstrapBlock, rng), 0.95) - nearestRank(redraw(as, a, bootstrapBlock, rng), 0.95)
	}
	slices.Sort(differences)
	return &Interval{milli(atRank(differences, 0.025)), milli(atRank(differences, 0.975))}
}

// answered returns the round trips of a phase's counted part, in order.
func answered(p *Phase) []float64 {
	if p == nil || p.Series == nil {
		return nil
	}
	s := p.Series
	from, to := countedSpan(p)
	var out []float64
	for i, t := range s.TS {
		if t >= from && t < to && s.RTTMs[i] != nil {
			out = append(out, *s.RTTMs[i])
		}
	}
	return out
}

// countedSpan returns from when to when a phase counts, in its series' seconds:
// the edges are in the series but do not count.
func countedSpan(p *Phase) (from, to float64) {
	from, to = p.Series.StartS, p.Series.EndS
	if cut := (to - from) - p.Seconds; cut > 0 {
		from += cut // nearly all of what is cut is cut at the head
	}
	return from, to
}

// redraw fills dst with blocks of src of the given length, drawn at random.
func redraw(dst, src []float64, block int, rng *rand.Rand) []float64 {
	block = min(block, len(src))
	for n := 0; n < len(dst); {
		at := rng.IntN(len(src) - block + 1)
		n += copy(dst[n:], src[at:at+block])
	}
	return dst
}

// nearestRank returns v's q-quantile by the nearest-rank method, and reorders v: by Hoare's
// selection, since a bootstrap takes thousands, and sorting was four fifths of its time.
func nearestRank(v []float64, q float64) float64 {
	k := rankOf(q, len(v))
	for lo, hi := 0, len(v)-1; lo < hi; {
		pivot, i, j := v[k], lo, hi
		for i <= j {
			switch {
			case v[i] < pivot:
				i++
			case v[j] > pivot:
				j--
			default:
				v[i], v[j], i, j = v[j], v[i], i+1, j-1
			}
		}
		if k < i {
			hi = j
		}
		if k > j {
			lo = i
		}
	}
	return v[k]
}

func atRank(sorted []float64, q float64) float64 { return sorted[rankOf(q, len(sorted))] }

// rankOf is where a quantile is among n values in their order.
func rankOf(q float64, n int) int { return min(max(int(q*float64(n)), 0), n-1) }
