package pf_test

import (
	"strings"
	"testing"

	. "unbloat/internal/cure/lang/pf"
)

// FuzzParseALTQShown: no line kept of pfctl's output contains a line break.
func FuzzParseALTQShown(f *testing.F) {
	f.Add("queue root_em0 on em0 bandwidth 1Mb priority 0 hfsc( wrr root ) {a, b}\n  [ pkts: 0  bytes: 0 ]\nqueue  a on em0 bandwidth 500Kb hfsc( default )\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, line := range ShownALTQ(text) {
			if line == "" || strings.ContainsAny(line, "\n") {
				t.Fatalf("%q: %q", text, line)
			}
		}
	})
}
