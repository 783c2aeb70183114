package phases

import (
	"errors"
	"net"
	"strconv"
	"testing"
)

func TestParseServer(t *testing.T) {
	for in, want := range map[string]string{
		"host":                  "host:7676",
		"host:1":                "host:1",
		"192.0.2.1":             "192.0.2.1:7676",
		"2001:db8::1":           "[2001:db8::1]:7676",
		"[2001:db8::1]":         "[2001:db8::1]:7676",
		"[2001:db8::1]:99":      "[2001:db8::1]:99",
		"[fe80::1%eth0]:99":     "[fe80::1%eth0]:99",
		"unbloat://host":        "host:7676",
		"unbloat://host:5/":     "host:5",
		"unbloat://[::1]:65535": "[::1]:65535",
	} {
		if got, err := ParseServer(in); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", in, got, err, want)
		}
	}
	for _, in := range []string{
		"", "unbloat://", "http://host", "irtt://host", "host:0", "host:65536", "host:x", "host:", ":7676",
		"a:b:c", "[::1", "host/path", "user@host", "two words", "host\n", "[host]:", "https://",
	} {
		if got, err := ParseServer(in); !errors.As(err, new(*AddressError)) {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
}

func FuzzParseServer(f *testing.F) {
	for _, s := range []string{"host", "[::1]:5", "unbloat://a:1/", "fe80::1%x", "a:b:c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := ParseServer(s)
		if err != nil {
			return
		}
		host, port, err := net.SplitHostPort(got)
		if n, perr := strconv.Atoi(port); err != nil || perr != nil || host == "" || n < 1 || n > 65535 {
			t.Errorf("%q is taken for %q", s, got)
		}
		if again, err := ParseServer(got); err != nil || again != got {
			t.Errorf("%q, read again: %q, %v", got, again, err)
		}
	})
}
