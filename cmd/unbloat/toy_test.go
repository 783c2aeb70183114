package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/testdata/toy"
	"unbloat/internal/show/cli"
	"unbloat/testkit/conform"
	"unbloat/unit"
)

// TestToy: a ninth platform is one directory and one line in the list of
// drivers. The program detects this router, plans for it, applies, shows,
// examines and reverts, and has no other code for it.
func TestToy(t *testing.T) {
	m := toy.NewRouter()
	s := newStage(t, m, m, m.Text)
	done := func(want int, args ...string) string {
		t.Helper()
		out, code := s.run(t, args...)
		if code != want {
			t.Fatalf("%q: exit %d, want %d\n%s", args, code, want, out)
		}
		return out
	}
	done(cli.Usage, "plan", "--down", "50mbit", "--up", "10mbit", "--for", toy.Name) // without the line in the list
	t.Setenv(withToy, "1")
	start := s.Text()
	if out := done(cli.Done, "plan", "--commands", "--down", "50mbit", "--up", "10mbit", "--for", toy.Name); !strings.Contains(out, "\ntoyctl set t0 up 9500000 ") || !strings.Contains(out, "# wind it up") {
		t.Errorf("plan:\n%s", out)
	}
	file := filepath.Join(t.TempDir(), "plan.json")
	if err := os.WriteFile(file, []byte(done(cli.Done, "plan", "--down", "50mbit", "--up", "10mbit", "--json", "--quiet", "--for", toy.Name)), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := done(cli.Done, "doctor", "--wan", "t0", "--down", "50mbit"); !strings.Contains(out, "Nothing stands in the way on toy") {
		t.Errorf("doctor:\n%s", out)
	}
	done(cli.Done, "apply", file)
	if out := done(cli.Done, "status", "--wan", "t0"); !strings.Contains(out, "is undone in") || !strings.Contains(out, "up of t0 is held to 9.5 Mbit/s (unbloat's)") || !strings.Contains(out, "guests") {
		t.Errorf("status while it waits:\n%s", out)
	}
	done(cli.Done, "confirm")
	if out := done(cli.Done, "why", "udp 10.1.0.2:5004 > 203.0.113.9:5004"); !strings.Contains(out, "up ") {
		t.Errorf("why:\n%s", out)
	}
	applied := s.Text()
	s.Lock()
	if _, _, err := m.Run(t.Context(), strings.Fields("toyctl clear t0 up"), nil); err != nil {
		t.Fatal(err)
	}
	m.Files["/toy/spring"] = "slack\n"
	s.Unlock()
	if out := done(cli.Precondition, "doctor", "--wan", "t0"); !strings.Contains(out, "t0 is not what was applied") || !strings.Contains(out, "the spring has run down") {
		t.Errorf("doctor of what was taken away:\n%s", out)
	}
	done(cli.Failed, "status", "--wan", "t0")
	s.Lock()
	m.Files["/toy/spring"] = "wound\n"
	s.Unlock()
	done(cli.Done, "apply", "--again", "--yes", "--wan", "t0")
	if s.Text() != applied {
		t.Errorf("applied again, it is\n%s\nit was\n%s", s.Text(), applied)
	}
	done(cli.Done, "revert")
	if s.Text() != start {
		t.Errorf("reverted, and this is not the start:\n%s", s.Text())
	}
}

// TestToyContract: the toy's backend keeps the contract of all backends.
func TestToyContract(t *testing.T) {
	conform.Run(t, conform.Case{
		WAN: "t0",
		New: func() (conform.Router, platform.Backend) {
			m := toy.NewRouter()
			return m, &toy.Backend{Runner: m}
		},
		Plan: func(t *rapid.T, name string) plan.Plan {
			p, err := plan.Make(plan.Line{}, plan.Capabilities{Language: toy.Language(), WAN: "t0", LAN: "t1"}, conform.AnyPreferences(t, name, 10*unit.GbitPerSecond, plan.FIFO))
			if err != nil {
				t.Fatal(err)
			}
			return p
		},
	})
}
