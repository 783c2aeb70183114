package netio_test

import (
	"testing"

	"unbloat/internal/measure/netio"
)

func TestParseURL(t *testing.T) {
	for s, want := range map[string]string{
		"ssh://root@[fe80::1%eth0]":        "fe80::1%eth0",
		"ssh://root@[fe80::1%25eth0]:22":   "fe80::1%eth0",
		"https://[2001:db8::1]:443/a%20b":  "2001:db8::1",
		"https://router.example/100%25-ok": "router.example",
	} {
		u, err := netio.ParseURL(s)
		if err != nil || u.Hostname() != want {
			t.Errorf("%s: %v, %v; want %s", s, u, err, want)
		}
	}
}
