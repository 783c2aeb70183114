//go:build !router

package main

import (
	"bytes"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A key is read from a flag, a file or the environment. An empty one is
// refused.
func TestServerKey(t *testing.T) {
	file, empty := filepath.Join(t.TempDir(), "key"), filepath.Join(t.TempDir(), "empty")
	for name, text := range map[string]string{file: "secret\nmore\n", empty: "\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name, key  string
		given      bool
		file       string
		env        string
		set        bool
		want, says string
	}{
		{name: "none"},
		{name: "flag", key: "a", given: true, env: "b", set: true, want: "a"},
		{name: "empty flag", given: true, says: "--key is empty"},
		{name: "file", file: file, want: "secret"},
		{name: "both", key: "a", given: true, file: file, says: "not both"},
		{name: "empty file", file: empty, says: "first line is empty"},
		{name: "no file", file: file + "x", says: "no such file"},
		{name: "environment", env: "b", set: true, want: "b"},
		{name: "empty environment", set: true, says: "UNBLOAT_KEY is empty"},
	} {
		got, err := serverKey(c.key, c.given, c.file, func(string) (string, bool) { return c.env, c.set })
		if got != c.want || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %q, %v", c.name, got, err)
		}
	}
}

// The server prints how to use it, with an address that others can reach.
func TestHowTo(t *testing.T) {
	addresses := []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("fe80::1"), netip.MustParseAddr("2001:db8::7"), netip.MustParseAddr("192.0.2.7")}
	var b bytes.Buffer
	printHowTo(&b, netip.MustParseAddrPort("[::]:7676"), netip.MustParseAddrPort("[::]:7680"), addresses, false)
	for _, want := range []string{"unbloat test --server 192.0.2.7\n", "open http://192.0.2.7:7680/ in", "▀"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in:\n%s", want, b.String())
		}
	}
	b.Reset()
	printHowTo(&b, netip.MustParseAddrPort("[2001:db8::9]:7777"), netip.AddrPort{}, addresses, true)
	if s := b.String(); !strings.Contains(s, "unbloat test --server [2001:db8::9]:7777 --key-file FILE\n") || strings.Contains(s, "browser") {
		t.Errorf("%s", s)
	}
}
