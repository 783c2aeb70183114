package verdict

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func durations(t *rapid.T) []time.Duration {
	return rapid.SliceOfN(rapid.Map(rapid.Int64Range(0, 1e10), func(n int64) time.Duration { return time.Duration(n) }), 1, 200).Draw(t, "values")
}

// Law: nearest-rank follows its definition: the smallest value that at least
// the share q of all values do not exceed.
func TestRankIsNearestRank(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := durations(t)
		slices.Sort(v)
		q := rapid.SampledFrom([]float64{0.01, 0.1, 0.5, 0.9, 0.95, 0.99, 1}).Draw(t, "q")
		got := Rank(v, q)
		covered := func(x time.Duration) float64 {
			n, _ := slices.BinarySearch(v, x+1)
			return float64(n) / float64(len(v))
		}
		if !slices.Contains(v, got) || covered(got) < q-1e-9 {
			t.Fatalf("rank %v of %v is %v", q, v, got)
		}
		if i := slices.Index(v, got); i > 0 && covered(v[i-1]) >= q+1e-9 {
			t.Fatalf("rank %v of %v is %v, but %v is enough", q, v, got, v[i-1])
		}
	})
}

// Law: quantiles rise, stay within min and max, and shift with the values.
func TestSummariseLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := durations(t)
		by := time.Duration(rapid.Int64Range(-1e9, 1e9).Draw(t, "by"))
		q := Summarise(slices.Clone(v))
		s := []float64{q.Min, q.P50, q.P90, q.P95, q.P99, q.Max}
		if !slices.IsSorted(s) || q.Mean < q.Min-1e-4 || q.Mean > q.Max+1e-4 {
			t.Fatalf("%+v", q)
		}
		moved := Summarise(shift(v, by))
		for _, d := range []float64{q.Min - moved.Min, q.P50 - moved.P50, q.P95 - moved.P95, q.Max - moved.Max} {
			if math.Abs(d-float64(by)/1e6) > 2e-4 {
				t.Fatalf("shifted by %v: %+v became %+v", by, q, moved)
			}
		}
	})
}

func TestSummariseKnown(t *testing.T) {
	var v []time.Duration
	for i := 100; i >= 1; i-- {
		v = append(v, time.Duration(i)*time.Millisecond)
	}
	if got, want := Summarise(v), (Quantiles{1, 50.5, 50, 90, 95, 99, 100}); got != want {
		t.Errorf("1…100 ms: %+v, want %+v", got, want)
	}
	if got := Summarise(nil); got != (Quantiles{}) {
		t.Errorf("nothing: %+v", got)
	}
}
