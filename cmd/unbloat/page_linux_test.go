//go:build !omit_daemon && !omit_ui

package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"unbloat/internal/await"
	"unbloat/internal/daemon"
	"unbloat/internal/daemon/keep"
	"unbloat/internal/lab/labtest"
	"unbloat/web/webscript"
)

// TestPageOfDaemon: a person's first evening with the page of a daemon that keeps a
// stand-in of an OpenBSD router, in a real browser: the token, new speeds that are
// kept and written, shaping turned off and undone by itself, the events.
func TestPageOfDaemon(t *testing.T) {
	if os.Getenv("UNBLOAT_LONG") == "" {
		t.Skip("SKIPPED: an undo takes half a minute; set UNBLOAT_LONG=1")
	}
	labtest.NeedSeccomp(t)
	i := slices.IndexFunc(stages(), func(p place) bool { return p.platform == "openbsd" })
	p := stages()[i]
	s := p.make(t)
	config := filepath.Join(t.TempDir(), "unbloat.toml")
	text := fmt.Sprintf("[ui]\nlisten = \"127.0.0.1:%d\"\n[[wan]]\ninterface = %q\nlan = %q\nplatform = %q\ndown = \"50 Mbit/s\"\nup = \"10 Mbit/s\" # sold\n", freePort(t), p.wan, p.lan, p.platform)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	_, log := s.daemon(t, config)
	await.Until(t, 2*time.Minute, "the daemon to apply its configuration", func() bool { return s.kept(t.Context()).State == keep.InPlace })
	out, code := s.run(t, "ui", "token", "--json")
	var at struct{ daemon.Page }
	if err := json.Unmarshal([]byte(out), &at); err != nil || code != 0 || len(at.URLs) == 0 || at.Token == "" {
		t.Fatalf("exit %d, %v: %s\n%s", code, err, out, log)
	}
	before := s.Text()
	o, err := json.Marshal(map[string]any{"token": at.Token, "shots": os.Getenv("UNBLOAT_SHOTS")})
	if err != nil {
		t.Fatal(err)
	}
	var f struct {
		Errors, Axe, Spills, Faint, Unnamed, Small, Said []string
		Steps                                            map[string]any
	}
	if err := json.Unmarshal(webscript.Run(t, 5*time.Minute, "real", at.URLs[0], string(o)), &f); err != nil {
		t.Fatal(err)
	}
	if len(f.Errors)+len(f.Axe)+len(f.Spills)+len(f.Faint)+len(f.Unnamed)+len(f.Small) > 0 {
		t.Errorf("the browser complains %q\naxe finds %q\nwider than the window %q\nfaint %q\nwithout a name %q\ntoo small %q", f.Errors, f.Axe, f.Spills, f.Faint, f.Unnamed, f.Small)
	}
	for step, want := range map[string][]string{
		"sentence":   {"The line is idle."},
		"limits":     {"The line carries 50 Mbit/s.", "The limit is"},
		"speeds":     {"[50 10]"},
		"question":   {"New speeds are set on " + p.wan, "Does everything still work?", "undone in"},
		"kept":       {"The change is kept."},
		"keptSpeeds": {"[50 8]"},
		"off":        {"off", "Turn on"},
		"undone":     {"undone by itself"},
		"events":     {"Nobody confirmed a change, so it was undone", "A change was kept by this page", "A change was made by this page"},
	} {
		for _, w := range want {
			if got := fmt.Sprint(f.Steps[step]); !strings.Contains(got, w) {
				t.Errorf("%s: %q lacks %q", step, got, w)
			}
		}
	}
	t.Logf("%v\na screen reader heard %q", f.Steps, f.Said)
	written, err := os.ReadFile(config)
	if err != nil || !strings.Contains(string(written), "up = \"8 Mbit/s\" # sold") {
		t.Errorf("%v: the configuration is\n%s", err, written)
	}
	if s.Text() == before || s.kept(t.Context()).State != keep.InPlace {
		t.Errorf("the router is %v\n%s", s.kept(t.Context()), s.Text())
	}
}

// freePort returns a port of the loopback that nobody listens on.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
