package pf_test

import (
	"testing"

	. "unbloat/internal/cure/lang/pf"
)

// FuzzParseShown: pfctl's output is parsed into named queues, or refused.
func FuzzParseShown(f *testing.F) {
	f.Add("queue outq on em0 bandwidth 11M, max 11M flows 1024 qlimit 1024\n  [ pkts: 0 bytes: 0 dropped pkts: 0 bytes: 0 ]\n  [ qlength: 0/1024 ]\n")
	f.Add("queue a parent outq bandwidth 1K default\n")
	f.Fuzz(func(t *testing.T, text string) {
		queues, err := ParseShown(text)
		for _, q := range queues {
			if err == nil && q.Name == "" {
				t.Fatalf("%q: a queue without a name: %+v", text, q)
			}
		}
		if r, err := ParseRate(text); err == nil && r < 0 {
			t.Fatalf("%q: %d bit/s", text, r)
		}
	})
}
