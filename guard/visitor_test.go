package guard

import (
	"net/netip"
	"testing"
	"time"
)

func TestSource(t *testing.T) {
	for remote, want := range map[string]string{
		"192.0.2.1:80": "192.0.2.1", "192.0.2.1": "192.0.2.1", "[::ffff:192.0.2.1]:80": "192.0.2.1",
		"[fe80::1%eth0]:80": "fe80::1", "2001:db8::1": "2001:db8::1", "": "", "@": "", "a.example:80": "",
	} {
		got := SourceOf(remote)
		if want == "" && got.IsValid() || want != "" && got != netip.MustParseAddr(want) {
			t.Errorf("%q: %v, want %q", remote, got, want)
		}
	}
	if a := Charged(SourceOf("[2001:db8:1:2:3::4]:80")); a != netip.MustParseAddr("2001:db8:1:2::") {
		t.Errorf("booked on %v", a)
	}
}

func TestDefaults(t *testing.T) {
	type limits struct {
		Sessions int
		Bytes    int64
		Idle     time.Duration
		own      bool
	}
	standard := limits{Sessions: 16, Idle: time.Minute}
	if got, want := WithDefaults(limits{Sessions: -1, own: true}, standard), (limits{Sessions: 16, Idle: time.Minute, own: true}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := WithDefaults(limits{2, 3, 4, false}, standard); got != (limits{2, 3, 4, false}) {
		t.Errorf("%+v", got)
	}
}
