package protocol

import (
	"bytes"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"unbloat/internal/measure/probe"
)

// Law: the answer that a host returns is recognised as the answer to the
// request, and the request's checksum is right.
func TestRoundTripLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nonce, seq := rapid.Uint32().Draw(t, "nonce"), rapid.Uint32().Draw(t, "seq")
		b := make([]byte, rapid.IntRange(int(MinProbeSize), 1472).Draw(t, "size"))
		for _, six := range []bool{false, true} {
			c := ICMP{Six: six, Nonce: nonce}
			c.Request(b, seq)
			if !six && checksum(b) != 0 {
				t.Fatal("checksum")
			}
			if _, err := c.Answer(b); !errors.Is(err, ErrForeignProbe) {
				t.Fatalf("a request is no answer: %v", err)
			}
			b[0] = echoReply
			if six {
				b[0] = echo6Reply
			}
			if a, err := c.Answer(b); err != nil || a.Seq != seq {
				t.Fatalf("%+v %v", a, err)
			}
			if _, err := (ICMP{Six: six, Nonce: nonce + 1}).Answer(b); !errors.Is(err, ErrForeignProbe) {
				t.Fatalf("a stranger's: %v", err)
			}
		}
		c := Echo{nonce}
		c.Request(b, seq)
		if a, err := c.Answer(b); err != nil || a.Seq != seq {
			t.Fatalf("echo: %+v %v", a, err)
		}
		d := &DNS{}
		first := make([]byte, DNSSize)
		d.Request(first, seq)
		first[2] |= 0x80
		later := seq + uint32(rapid.IntRange(0, 60000).Draw(t, "later"))
		d.Request(make([]byte, DNSSize), later)
		if a, err := d.Answer(first); err != nil || a.Seq != seq {
			t.Fatalf("dns: %+v %v, want %d", a, err, seq)
		}
	})
}

// FuzzAnswer: no packet makes a codec panic, or is changed by it.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte{0x45, 0, 0, 36}, uint32(1))
	f.Add(bytes.Repeat([]byte{0x4f}, 100), uint32(0x4f4f4f4f))
	f.Fuzz(func(t *testing.T, b []byte, nonce uint32) {
		for _, c := range []probe.Codec{ICMP{Nonce: nonce}, ICMP{Nonce: nonce, Raw: true}, ICMP{Nonce: nonce, Six: true}, Echo{nonce}, &DNS{newest: nonce}} {
			_, _ = c.Answer(b)
		}
	})
}
