package irtt

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"unbloat/unit"
)

func drawParams(t *rapid.T) Params {
	return Params{
		Version: 1, Duration: time.Duration(rapid.Int64Range(1, 1e15).Draw(t, "duration")),
		Interval: time.Duration(rapid.Int64Range(1, 1e12).Draw(t, "interval")),
		Length:   unit.Size(rapid.IntRange(0, 1472).Draw(t, "length")),
		Stats:    rapid.IntRange(0, 3).Draw(t, "stats"), StampAt: rapid.IntRange(0, 4).Draw(t, "at"),
		Clock: rapid.IntRange(1, 3).Draw(t, "clock"), DSCP: rapid.IntRange(0, 255).Draw(t, "dscp"),
		Fill: rapid.StringN(0, 8, 32).Draw(t, "fill"),
	}
}

func drawKey(t *rapid.T) []byte { return []byte(rapid.StringN(0, 8, 16).Draw(t, "key")) }

// Law: parse ∘ render = identity, with and without a key.
func TestParamsLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, key := drawParams(t), drawKey(t)
		token := rapid.Uint64().Draw(t, "token")
		got, gotParams, f, err := func() (uint64, Params, Flags, error) { return ParseOpenReply(OpenReply(token, p, 0, key), key) }()
		if err != nil || got != token || !cmp.Equal(gotParams, p) || !f.Has(FlagOpen|FlagReply) {
			t.Fatalf("%x %+v %v: %v", got, gotParams, f, err)
		}
		_, rest, err := Open(OpenRequest(p, key), key)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := ParseParams(rest); err != nil || !cmp.Equal(again, p) {
			t.Fatalf("%+v: %v", again, err)
		}
	})
}

// Law: an echo contains what was put into it, as far as the parameters provide
// a field for it, and request and answer have the same length.
func TestEchoLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, key := drawParams(t), drawKey(t)
		e := Echo{
			Token: rapid.Uint64().Draw(t, "token"), Seq: rapid.Uint32().Draw(t, "seq"),
			Count: rapid.Uint32().Draw(t, "count"), Window: rapid.Uint64().Draw(t, "window"),
			Receive: Stamp{unit.Instant(rapid.Int64Range(1, 1e18).Draw(t, "wall")), time.Duration(rapid.Int64Range(1, 1e18).Draw(t, "mono"))},
		}
		e.Send = e.Receive
		b := make([]byte, p.EchoSize(key))
		PutReply(b, e, p, key)
		got, err := ParseReply(b, p, key)
		if err != nil {
			t.Fatal(err)
		}
		got.Flags = 0
		if p.Stats&StatsCount == 0 {
			e.Count = 0
		}
		if p.Stats&StatsWindow == 0 {
			e.Window = 0
		}
		e.Receive, e.Send = placed(e.Receive, p, AtReceive), placed(e.Send, p, AtSend)
		if got != e {
			t.Fatalf("%+v, want %+v", got, e)
		}
		PutRequest(b, e.Token, e.Seq, key)
		_, rest, err := Open(b, key)
		if token, seq, err2 := Token(rest); err != nil || err2 != nil || token != e.Token || seq != e.Seq {
			t.Fatalf("%x %d: %v %v", token, seq, err, err2)
		}
	})
}

func placed(s Stamp, p Params, at int) Stamp {
	if p.StampAt&(at|AtMidpoint) == 0 {
		return Stamp{}
	}
	if p.Clock&ClockWall == 0 {
		s.Wall = 0
	}
	if p.Clock&ClockMono == 0 {
		s.Mono = 0
	}
	return s
}

// The bytes of an open request, and the requests that are refused.
func TestOpen(t *testing.T) {
	b := OpenRequest(Params{Version: 1, Duration: time.Second, Interval: 10 * time.Millisecond, Stats: 3, StampAt: 3, Clock: 3}, nil)
	if !bytes.HasPrefix(b, []byte{0x14, 0xa7, 0x5b, 1, 1, 2, 2}) || !bytes.HasSuffix(b, []byte{5, 6, 6, 6, 7, 6}) {
		t.Errorf("%x", b)
	}
	key := []byte("secret")
	signed := OpenRequest(Params{Version: 1}, key)
	broken := bytes.Clone(signed)
	broken[len(broken)-1] ^= 1
	for _, c := range []struct {
		name string
		b    []byte
		key  []byte
		want error
	}{
		{"short", b[:3], nil, ErrShort},
		{"magic", append([]byte{0}, b[1:]...), nil, ErrMagic},
		{"flags", append([]byte{0x14, 0xa7, 0x5b, 0x1f}, b[4:]...), nil, ErrFlags},
		{"unsigned", b, key, ErrNoHMAC},
		{"signed", signed, nil, ErrHMAC},
		{"another key", signed, []byte("other"), ErrBadHMAC},
		{"broken", broken, key, ErrBadHMAC},
		{"cut", signed[:10], key, ErrShort},
		{"well", signed, key, nil},
	} {
		if _, _, err := Open(c.b, c.key); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

// FuzzDatagram: no datagram makes a parser panic, and Open leaves checked
// datagrams unchanged.
func FuzzDatagram(f *testing.F) {
	p := Params{Version: 1, Duration: time.Minute, Interval: time.Second, Stats: 3, StampAt: 3, Clock: 3, Fill: "rand"}
	f.Add(OpenRequest(p, nil), "")
	f.Add(OpenReply(7, p, 0, []byte("k")), "k")
	f.Add(CloseRequest(7, nil), "")
	f.Fuzz(func(t *testing.T, b []byte, key string) {
		before := bytes.Clone(b)
		f, rest, err := Open(b, []byte(key))
		if !bytes.Equal(b, before) {
			t.Fatal("the datagram was changed")
		}
		if err != nil {
			return
		}
		_, _, _ = Token(rest)
		if q, err := ParseParams(rest); err == nil {
			if again, err := ParseParams(q.Append(nil)); err != nil || again != q {
				t.Fatalf("%+v became %+v: %v", q, again, err)
			}
		}
		_, _, _, _ = ParseOpenReply(b, []byte(key))
		for _, at := range []int{0, AtBoth, AtMidpoint} {
			_, _ = ParseReply(b, Params{Stats: int(f) & 3, StampAt: at, Clock: 3}, []byte(key))
		}
	})
}
