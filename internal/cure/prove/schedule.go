package prove

import "math/rand/v2"

// Schedule returns for each pair whether its second side is measured first.
// Two pairs in a row have opposite orders, at random which comes first (A B B A or
// B A A B). So neither a drifting line nor the effect of one leg on the next favours
// a side. The order of an odd last pair is random.
func Schedule(pairs int, rng *rand.Rand) []bool {
	order := make([]bool, pairs)
	for i := range order {
		if i%2 == 0 {
			order[i] = rng.IntN(2) == 1
		} else {
			order[i] = !order[i-1]
		}
	}
	return order
}
