package verdict

import (
	"math"
	"slices"
	"time"

	"unbloat/unit"
)

// Rank returns the q-quantile (0 < q ≤ 1) of sorted by the nearest-rank rule:
// the smallest value that at least a share q of all values does not exceed. It
// is always one of the values; nothing is interpolated, smoothed or trimmed.
// sorted must not be empty.
func Rank(sorted []time.Duration, q float64) time.Duration {
	n := len(sorted)
	// Floating point makes 0.9 × 10 a little more than 9; without the slack the
	// rank would be one too high.
	i := int(math.Ceil(q*float64(n)-1e-9)) - 1
	return sorted[min(max(i, 0), n-1)]
}

// Summarise returns the quantiles of values, which it sorts; zeros if there are none.
func Summarise(values []time.Duration) Quantiles {
	if len(values) == 0 {
		return Quantiles{}
	}
	slices.Sort(values)
	var sum float64
	for _, v := range values {
		sum += float64(v)
	}
	ms := func(d time.Duration) float64 { return milli(unit.Ms(d)) }
	return Quantiles{
		Min: ms(values[0]), Mean: milli(sum / float64(len(values)) / 1e6),
		P50: ms(Rank(values, 0.50)), P90: ms(Rank(values, 0.90)), P95: ms(Rank(values, 0.95)),
		P99: ms(Rank(values, 0.99)), Max: ms(values[len(values)-1]),
	}
}

// milli rounds to 0.1 µs when the unit is ms: below it nothing is known.
func milli(v float64) float64 { return math.Round(v*1e4) / 1e4 }

// shift returns the values less by.
func shift(values []time.Duration, by time.Duration) []time.Duration {
	out := make([]time.Duration, len(values))
	for i, v := range values {
		out[i] = v - by
	}
	return out
}

// median returns the nearest-rank median, zero of nothing.
func median(values []time.Duration) time.Duration {
	if len(values) == 0 {
		return 0
	}
	return Rank(slices.Sorted(slices.Values(values)), 0.5)
}
