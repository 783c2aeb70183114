package remote

import (
	"errors"
	"strings"
	"testing"
)

// FuzzTarget: a value of --router is refused, with a message that does not
// contain its password, or names a host, a port and a user.
func FuzzTarget(f *testing.F) {
	for _, s := range []string{"ssh://root@192.0.2.1:22", "ssh://h", "ssh://u:secret@h", "ssh://[fe80::1%25eth0]", "ssh://@h", "ssh://-oProxyCommand=x", "opnsense+https://h"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		target, err := ParseTarget(s)
		if err != nil {
			var usage *AddressError
			if !errors.As(err, &usage) {
				t.Fatalf("%q: %v", s, err)
			}
			if _, secret, ok := strings.Cut(s, ":secret"); ok && strings.Contains(err.Error(), "secret") {
				t.Fatalf("%q: %v tells the password (%s)", s, err, secret)
			}
			return
		}
		if target.User == "" || target.Host == "" || target.Port < 1 || target.Port > 65535 {
			t.Fatalf("%q: %+v", s, target)
		}
	})
}
