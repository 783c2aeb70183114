package classify_test

import (
	"cmp"
	"testing"
	"time"

	"unbloat/internal/cure/classify"
	"unbloat/unit"
)

// hints are marks that ask to go first.
var hints = []string{"nqb", "cs4", "cs5", "ef"}

// markedFlood walks 20 s of a flood with a mark, and says how many of its packets go first.
func markedFlood(t *testing.T, p classify.Policy, mark string, flood func() []*stream) (first, of int) {
	t.Helper()
	dscp, err := classify.ParseDSCP(mark)
	if err != nil {
		t.Fatal(err)
	}
	all := flood()
	for _, s := range all {
		s.dscp = dscp
	}
	walk(classifier(p), 20*second, 0, all...)
	for _, s := range all {
		first, of = first+s.first, of+s.of
	}
	return first, of
}

// A machine that marks what it floods with gains nothing by it, where marks are trusted too: all
// is metered as without a mark. What nobody answers, and tunnels, have nothing without
// a mark; with one they are tried as answered datagrams are: less than a second's worth of the line
// in 20 s.
func TestMarkedFlood(t *testing.T) {
	flood := func(n uint16, one stream) func() []*stream {
		return func() (all []*stream) {
			for i := range n {
				s := one
				s.port, s.from = i+1, unit.Instant(i)*second/2500
				all = append(all, &s)
			}
			return all
		}
	}
	upload := *anUpload(0) // eight of them: six times what the line carries up
	call := stream{sizes: []unit.Size{200}, gap: 20 * time.Millisecond}
	tcp, alone, esp := upload, upload, upload
	tcp.proto, esp.proto, alone.alone = classify.TCP, classify.ESP, true
	tried := int((5 * unit.MbitPerSecond).Bytes(time.Second) / 1480)
	for name, f := range map[string]struct {
		make func() []*stream
		more int // packets that a trusted mark may gain
	}{
		"uploads by QUIC": {flood(8, upload), 0},
		"fifty calls":     {flood(50, call), 0},
		"uploads by TCP":  {flood(8, tcp), 0},
		"a tunnel":        {flood(1, esp), tried},
		"nobody answers":  {flood(8, alone), tried},
	} {
		plain, of := markedFlood(t, aPolicy(), "df", f.make)
		for _, mark := range append(hints, "") { // the last one: ef, which is not trusted
			policy, most := aPolicy(), plain
			if policy.Trust.TrustHome = mark != ""; mark != "" {
				most += f.more
			}
			if first, n := markedFlood(t, policy, cmp.Or(mark, "ef"), f.make); first > most || n != of {
				t.Errorf("%s marked %q and trusted: %d of %d packets go first; without a mark %d of %d", name, mark, first, n, plain, of)
			}
		}
	}
}

// A trusted mark lets a call go first that nobody has answered yet, and a tunnel that stays below
// the bound.
func TestTrustedMark(t *testing.T) {
	for _, s := range []*stream{
		{port: 5004, sizes: []unit.Size{190, 1248, 1248}, gap: 5500 * time.Microsecond, alone: true},
		{proto: classify.ESP, sizes: []unit.Size{1200}, gap: 10 * time.Millisecond},
	} {
		policy := aPolicy()
		policy.Trust.TrustHome = true
		s.dscp = 46
		walk(classifier(policy), 20*second, 0, s)
		if s.first < s.of || s.codes[classify.ByDSCP] < s.of {
			t.Errorf("of a flow of protocol %d %d of %d packets go first: %v", s.proto, s.first, s.of, s.codes)
		}
	}
	for _, name := range hints {
		dscp, err := classify.ParseDSCP(name)
		if c, ok := classify.ClassOfDSCP(dscp); err != nil || !ok || c != classify.Interactive && name != "ef" {
			t.Errorf("where marks are trusted, %s stands for %q", name, c)
		}
	}
	if d, _ := classify.ParseDSCP("nqb"); d != 45 {
		t.Errorf("NQB is %d, RFC 9956 says 45", d)
	}
}
