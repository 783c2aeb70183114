package web

import (
	"testing"

	"pgregory.net/rapid"

	"unbloat/unit"
)

// Law: message sizes double, up to the limit, and only when a message is at
// most a sixteenth of what was sent.
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
