package serve

import (
	"testing"

	"pgregory.net/rapid"
)

// A stream table finds the same as a map after any insertions and removals,
// also for tokens in the same bucket.
func TestStreamTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var table streamTable
		want := map[uint64]*stream{}
		token := rapid.Custom(func(t *rapid.T) uint64 {
			return rapid.Uint64Range(0, 2).Draw(t, "bucket") + streamBuckets*rapid.Uint64Range(0, 4).Draw(t, "turn")
		})
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			k := token.Draw(t, "token")
			if rapid.Bool().Draw(t, "put") && want[k] == nil {
				want[k] = &stream{token: k}
				table.put(want[k])
			} else {
				table.remove(k)
				delete(want, k)
			}
			for _, k := range []uint64{k, token.Draw(t, "other")} {
				if table.find(k) != want[k] {
					t.Fatalf("token %d: %p, want %p", k, table.find(k), want[k])
				}
			}
			if table.n != len(want) {
				t.Fatalf("%d, want %d", table.n, len(want))
			}
		}
	})
}
