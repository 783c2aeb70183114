package probe

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"unbloat/unit"
)

func headers(t *rapid.T) Header {
	return Header{
		Kind:           Kind(rapid.IntRange(int(KindEcho), int(KindStream)).Draw(t, "kind")),
		Seq:            rapid.Uint32().Draw(t, "seq"),
		Token:          rapid.Uint64().Draw(t, "token"),
		ServerReceived: unit.Instant(rapid.Int64().Draw(t, "received")),
		Residence:      time.Duration(rapid.Int64Range(0, math.MaxUint32).Draw(t, "residence")),
		Count:          rapid.Uint32().Draw(t, "count"),
	}
}

func TestHeaderRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := headers(t)
		b := make([]byte, rapid.IntRange(int(MinSize), int(MaxSize)).Draw(t, "size"))
		PutHeader(b, want)
		got, err := ParseHeader(b)
		if err != nil || got != want {
			t.Fatalf("parse(put(%+v)) = %+v, %v", want, got, err)
		}
	})
}

func TestResidenceSaturates(t *testing.T) {
	b := make([]byte, MinSize)
	for _, d := range []time.Duration{-time.Second, math.MaxUint32 + 1, time.Hour} {
		PutHeader(b, Header{Kind: KindReply, Residence: d})
		h, err := ParseHeader(b)
		if want := min(max(d, 0), math.MaxUint32); err != nil || h.Residence != want {
			t.Errorf("a residence of %v is read as %v, %v; want %v", d, h.Residence, err, want)
		}
	}
}

func TestDefaultProbeFitsItsBudget(t *testing.T) {
	const ethernet, ipv4, udp = 14, 20, 8
	if n := int(MinSize) + ethernet + ipv4 + udp; n > 80 {
		t.Errorf("a default probe occupies %d bytes on the wire, must be at most 80", n)
	}
}

func FuzzParseHeader(f *testing.F) {
	b := make([]byte, MinSize)
	PutHeader(b, Header{Kind: KindReply, Seq: 7, Token: 9, Count: 3})
	f.Add(b)
	f.Add(b[:31])
	f.Fuzz(func(t *testing.T, in []byte) {
		h, err := ParseHeader(in)
		if err != nil {
			return
		}
		out := make([]byte, MinSize)
		PutHeader(out, h)
		out[2], out[3] = in[2], in[3] // reserved
		if !bytes.Equal(out, in[:MinSize]) {
			t.Errorf("put(parse(%x)) = %x", in[:MinSize], out)
		}
		// No input makes either end panic, and no answer is longer than the
		// request.
		r := NewReflector(h.Token)
		reply := make([]byte, len(in))
		n, err := r.Reflect(5, 6, in, reply)
		if n > len(in) || err != nil && n != 0 {
			t.Errorf("an answer of %d bytes to %d, error %v", n, len(in), err)
		}
		s := NewSession(Config{Interval: time.Second, Token: h.Token})
		s.Poll(0)
		_ = s.Receive(1, in)
		_ = s.Receive(2, reply[:n])
		_ = NewSink(h.Token).Receive(1, in)
	})
}

func FuzzParseRequest(f *testing.F) {
	for _, s := range []string{
		`{"op":"hello","versions":[1]}`,
		`{"op":"data","token":"00","group":1,"dir":"up","cc":"cubic","dscp":46}`,
		`{"op":"start","group":1,"flows":4,"limit_ns":10000000000,"bin_ns":100000000}`,
		`{"op":"udp","dir":"down","interval_ns":20000000,"size":172}`,
		`{"op":"fly"}`, `[]`, `{"op":"data","cc":"\u0000"}`, `{"op":"start","flows":-1}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		r, err := ParseRequest(in)
		if err != nil {
			return
		}
		again, err := ParseRequest(AppendLine(nil, r))
		if err != nil {
			t.Fatalf("parse(append(%+v)): %v", r, err)
		}
		if again.Op != r.Op || again.CC != r.CC || again.Limit != r.Limit || again.Size != r.Size {
			t.Fatalf("parse(append(%+v)) = %+v", r, again)
		}
		if r.Flows < 0 || r.Flows > MaxFlows || r.DSCP < 0 || r.DSCP > 63 || r.Limit < 0 || r.Limit > MaxLimit {
			t.Fatalf("out of bounds: %+v", r)
		}
	})
}

func FuzzParseReply(f *testing.F) {
	for _, s := range []string{
		`{"version":1,"token":"ab"}`, `{"error":"\u001b[2J"}`, `{}`,
		`{"load":{"start":5,"bin_ns":100000000,"flows":[[1,2],[3]],"cpu":0.5}}`,
		`{"load":{"flows":[[-1]]}}`, `{"udp":{"received":4}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		r, err := ParseReply(in)
		if err == nil && strings.ContainsFunc(r.Error, func(c rune) bool { return c < ' ' || c > '~' }) {
			t.Errorf("an error that must not reach a terminal: %q", r.Error)
		}
	})
}

func TestRequestsOutOfBounds(t *testing.T) {
	for _, s := range []string{
		"", "null", `{"op":"fly"}`, `{"op":"start","flows":1025}`, `{"op":"start","flows":-1}`,
		`{"op":"start","limit_ns":-1}`, `{"op":"start","limit_ns":3600000000001}`, `{"op":"data","dscp":64}`,
		`{"op":"data","dir":"sideways"}`, `{"op":"data","cc":"` + strings.Repeat("x", 65) + `"}`,
		`{"op":"data","cc":"a\u0000b"}`, `{"op":"udp","size":1473}`, `{"op":"hello","versions":"1"}`,
		`{"op":"hello","agent":"` + strings.Repeat("x", 5000) + `"}`,
	} {
		if r, err := ParseRequest([]byte(s)); err == nil {
			t.Errorf("%.60s is taken as %+v", s, r)
		}
	}
}
