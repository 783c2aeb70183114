package prove

import "math/rand/v2"

// Schedule returns for each pair whether its second side is measured first.
// Pairs come in twos of opposite order, at random which one leads (A B B A or
// B A A B), so that neither a line that drifts nor a leg that suffers from the
// one before it favours a side; an odd last pair is at random.
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
