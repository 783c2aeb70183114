package iperf3

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// Law: parse ∘ render = identity.
func TestLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Params{
			TCP: true, Time: rapid.IntRange(0, 86400).Draw(t, "time"), Parallel: rapid.IntRange(1, MaxParallel).Draw(t, "parallel"),
			Reverse: rapid.Bool().Draw(t, "reverse"), Bidirectional: rapid.Bool().Draw(t, "both"),
			TOS: rapid.IntRange(0, 255).Draw(t, "tos"), Congestion: rapid.SampledFrom([]string{"", "cubic", "bbr"}).Draw(t, "cc"),
		}
		frame, err := Frame(p)
		if err != nil {
			t.Fatal(err)
		}
		b, err := ReadFrame(bytes.NewReader(frame))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ParseParams(b); err != nil || !cmp.Equal(got, p) {
			t.Fatalf("%+v: %v", got, err)
		}
		if p.Up()+p.Down() == 0 || p.Up()+p.Down() > 2*p.Parallel {
			t.Fatalf("%d up, %d down", p.Up(), p.Down())
		}
		var r [CookieSize - 1]byte
		copy(r[:], rapid.SliceOfN(rapid.Byte(), len(r), len(r)).Draw(t, "cookie"))
		c := MakeCookie(r)
		if got, err := ParseCookie(c[:]); err != nil || got != c {
			t.Fatalf("%q: %v", got, err)
		}
	})
}

// FuzzControl: no input on a control connection panics, and accepted values are
// within bounds.
func FuzzControl(f *testing.F) {
	for _, v := range []any{Params{TCP: true, Parallel: 4, Time: 10}, Results{Streams: []StreamResult{{ID: 1, Bytes: 7}}}} {
		b, err := Frame(v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add(binary.BigEndian.AppendUint32(nil, 1<<31))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = ParseCookie(b)
		j, err := ReadFrame(bytes.NewReader(b))
		if err != nil {
			return
		}
		if p, err := ParseParams(j); err == nil && (p.Parallel < 1 || p.Parallel > MaxParallel || p.Up()+p.Down() == 0) {
			t.Errorf("%+v", p)
		}
		_, _ = ParseResults(j)
	})
}
