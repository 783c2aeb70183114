package linux_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/verdict"
	"unbloat/lab"
	"unbloat/testkit/labtest"
)

// This file has what tests need that sit at a machine of the home, and work on its router.

// onRouter returns what runs a command there, which succeeds or fails as is wanted.
func onRouter(t *testing.T) func(want bool, args ...string) string {
	return func(want bool, args ...string) string {
		t.Helper()
		out, err := labtest.In(t.Context(), lab.NodeRouter, args...).CombinedOutput()
		if (err == nil) != want {
			t.Fatalf("%q: %v: %s", args, err, out)
		}
		return string(out)
	}
}

// stateOf is what shapes on the router, and its rules.
func stateOf(router func(bool, ...string) string) string {
	return router(true, "tc", "-d", "qdisc", "show") + router(true, "nft", "-s", "list", "ruleset")
}

// planFile makes a plan on the router of 27/4.75 Mbit/s, and returns its file.
func planFile(t *testing.T, router func(bool, ...string) string, args ...string) string {
	t.Helper()
	text := router(true, append([]string{labtest.Unbloat(), "plan", "--here", "--json", "--quiet", "--wan", "wan", "--lan", "lan", "--shape-down", "27mbit", "--shape-up", "4.75mbit"}, args...)...)
	file := filepath.Join(t.TempDir(), "plan.json")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// loads returns what measures the line full of so many connections each way.
func loads(t *testing.T, agent string) func(label string, lasts time.Duration, flows int) *verdict.Phase {
	t.Helper()
	c, err := phases.Dial(t.Context(), lab.Server(), phases.Options{Agent: agent})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return func(label string, lasts time.Duration, flows int) *verdict.Phase {
		t.Helper()
		idle, err := c.Idle(t.Context(), 3*time.Second, nil)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := c.Phase(t.Context(), phases.PhaseSpec{Name: verdict.PhaseLoaded, Duration: lasts, CutHead: 5 * time.Second, CutTail: time.Second, FlowsUp: flows, FlowsDown: flows})
		if err != nil {
			t.Fatal(err)
		}
		return c.Judge(label, []phases.RawPhase{*idle, *raw}).Loaded
	}
}
