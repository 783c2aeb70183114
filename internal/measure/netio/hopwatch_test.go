package netio

import "testing"

// A path that stays changed counts as one change; alternating paths count as
// none.
func TestHopWatch(t *testing.T) {
	for _, c := range []struct {
		name string
		seen func(i int) int
		want int
	}{
		{"steady", func(int) int { return 60 }, 0},
		{"unknown", func(int) int { return 0 }, 0},
		{"alternating", func(i int) int { return 60 + i%2 }, 0},
		{"changed", func(i int) int { return 60 - i/500 }, 1},
		{"and back", func(i int) int { return []int{60, 58, 60, 60}[i/250] }, 2},
		{"three strays", func(i int) int { return 60 + min(1, max(0, 3-(i+50)%100)) }, 0},
	} {
		var h hopWatch
		for i := range 1000 {
			h.see(c.seen(i))
		}
		if h.changes != c.want {
			t.Errorf("%s: %d changes, want %d", c.name, h.changes, c.want)
		}
	}
}
