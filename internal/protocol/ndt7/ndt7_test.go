package ndt7

import (
	"testing"

	"pgregory.net/rapid"

	"unbloat/unit"
)

// Law: messages double, never beyond the bound, and only when a sixteenth of
// what was sent pays for them.
func TestNextMessageLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := MinMessage << rapid.IntRange(0, 7).Draw(t, "doublings")
		sent := unit.Size(rapid.Int64Range(0, 1<<40).Draw(t, "sent"))
		next := NextMessage(size, sent)
		if next > MaxMessage || next != size && (next != 2*size || size > sent/16) {
			t.Fatalf("%v after %v of %v", next, size, sent)
		}
	})
}

// FuzzParse: no text message panics.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"AppInfo":{"ElapsedTime":1,"NumBytes":2},"Origin":"server","Test":"upload","TCPInfo":{"MinRTT":3}}`))
	f.Add([]byte(`{"AppInfo":{"NumBytes":-1}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, err := Parse(b); err == nil && m.AppInfo != nil && m.AppInfo.NumBytes < 0 {
			t.Errorf("%+v", m)
		}
	})
}
