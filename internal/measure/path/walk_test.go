package path

import (
	"context"
	"errors"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"unbloat/internal/measure/netio"
	"unbloat/testkit/await"
)

// These tests check no times, since the machine may be busy. The lab checks
// them, in virtual time.

func here(t *testing.T) WalkConfig {
	t.Helper()
	to := netip.MustParseAddr("127.0.0.1")
	s, err := netio.DialHops(netio.NewClock(), to, netio.HopAuto)
	if err != nil {
		t.Skipf("SKIPPED: %v", err)
	}
	s.Close()
	return WalkConfig{
		Host: "here", To: to, Path: Config{Interval: MinInterval}, Idle: time.Second, HomeHops: -1,
	}
}

// On this machine itself the path has one hop. Every goroutine ends.
func TestRun(t *testing.T) {
	cfg := here(t)
	cfg.Names = true
	events := map[string]int{}
	cfg.Progress = func(p WalkProgress) { events[p.Phase]++ }
	before := runtime.NumGoroutine()
	r, err := Walk(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if !r.Reached || len(r.Hops) != 1 || r.Hops[0].Idle.Received < 1 || r.Host != "here" || r.Load != nil || events["idle"] == 0 {
		t.Errorf("%+v, events %v", r, events)
	}
	if !await.True(5*time.Second, func() bool { return runtime.NumGoroutine() <= before }) {
		t.Errorf("%d goroutines before, %d after", before, runtime.NumGoroutine())
	}
}

// An interruption before anything was measured is an error. Later, the trace
// ends early and says so.
func TestRunInterrupted(t *testing.T) {
	cfg := here(t)
	cfg.Idle = time.Minute
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Walk(ctx, cfg); !errors.Is(err, ErrInterrupted) {
		t.Errorf("got %v", err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	cfg.Progress = func(p WalkProgress) {
		if p.Phase == "idle" && p.Elapsed > 300*time.Millisecond {
			cancel()
		}
	}
	r, err := Walk(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Hops) != 1 || !strings.Contains(strings.Join(r.Notes, " "), "Interrupted in the idle phase") {
		t.Errorf("%d hops, notes %q", len(r.Hops), r.Notes)
	}
}

func TestResolve(t *testing.T) {
	if a, err := Resolve(t.Context(), "ip", "127.0.0.1"); err != nil || a != netip.MustParseAddr("127.0.0.1") {
		t.Errorf("%v, %v", a, err)
	}
	if _, err := Resolve(t.Context(), "ip6", "127.0.0.1"); !errors.Is(err, ErrUnknownHost) {
		t.Errorf("an IPv4 address for IPv6: %v", err)
	}
}

// A name from the DNS cannot send escape sequences to the terminal.
func TestPrintable(t *testing.T) {
	if got := printable("core\x1b[2J1.example\u202e net"); got != "core[2J1.examplenet" {
		t.Errorf("%q", got)
	}
}
