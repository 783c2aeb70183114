package verdict

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// The selection finds what sorting would, with many equal values too.
func TestNearestRank(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		v := make([]float64, 1+rng.IntN(60))
		for i := range v {
			v[i] = float64(rng.IntN(1 + rng.IntN(40)))
		}
		sorted := slices.Sorted(slices.Values(v))
		for _, q := range []float64{0, 0.05, 0.5, 0.95, 1} {
			if got, want := nearestRank(slices.Clone(v), q), atRank(sorted, q); got != want {
				t.Fatalf("%v: quantile %v is %v, want %v", v, q, got, want)
			}
		}
	}
}
