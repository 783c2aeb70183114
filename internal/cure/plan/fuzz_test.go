package plan_test

import (
	"testing"

	"unbloat/internal/cure/classify"
	"unbloat/internal/cure/plan"
)

// FuzzWords: a value of a flag or class file is refused, or is the same after it
// was printed and read again.
func FuzzWords(f *testing.F) {
	for _, s := range []string{"19302-19309", "ef", "af41", "cs6", "46", "95%", "29.1 Mbit/s", "+3%", "0x2e", "le"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if p, err := classify.ParsePortRange(s); err == nil {
			if back, err := classify.ParsePortRange(p.String()); err != nil || back != p || p.From == 0 || p.From > p.To {
				t.Fatalf("%q: %v, read back as %v, %v", s, p, back, err)
			}
		}
		if d, err := plan.ParseDSCP(s); err == nil && d > 63 {
			t.Fatalf("%q: code point %d", s, d)
		}
		if w, err := plan.ParseRatePreference(s); err == nil {
			text, err := w.MarshalText()
			if err != nil {
				t.Fatalf("%q: %v", s, err)
			}
			if back, err := plan.ParseRatePreference(string(text)); err != nil || back != w {
				t.Fatalf("%q → %q: %v, %v", s, text, back, err)
			}
		}
	})
}
