package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/all"
	"unbloat/internal/cure/platform/testdata/toy"
	"unbloat/internal/cure/remote"
	"unbloat/internal/cure/tune"
	"unbloat/testkit/await"
	"unbloat/testkit/conform"
	"unbloat/testkit/fake"
	"unbloat/testkit/opnsensefake"
	"unbloat/testkit/pfctl"
	"unbloat/testkit/pfsensefake"
)

// nobody is a watchdog that never acts.
type nobody struct{}

func (nobody) Arm(context.Context, *apply.Journal) error   { return nil }
func (nobody) Renew(context.Context, *apply.Journal) error { return nil }
func (nobody) Alive(context.Context, *apply.Journal) bool  { return true }
func (nobody) Close(context.Context, *apply.Journal) error { return nil }

// An opnsenseRouter is a fake that the real client reaches by TLS.
type opnsenseRouter struct {
	*opnsensefake.Router
	*remote.REST
}

func (r opnsenseRouter) Run(ctx context.Context, argv []string, stdin []byte) ([]byte, []byte, error) {
	return r.REST.Run(ctx, argv, stdin)
}

func newOPNsense(t *testing.T) opnsenseRouter {
	t.Helper()
	o := opnsensefake.NewWithGuests()
	server := httptest.NewTLSServer(o)
	t.Cleanup(server.Close)
	api, err := remote.NewREST(server.URL, "key", "secret", fmt.Sprintf("%X", sha256.Sum256(server.Certificate().Raw)))
	if err != nil {
		t.Fatal(err)
	}
	return opnsenseRouter{o, api}
}

// TestTuneOnEveryPlatform: a tuning is kept; a second one starts at the line's
// own rates, not at those of the first; one without improvement changes
// nothing; and revert undoes what was kept, to the byte.
func TestTuneOnEveryPlatform(t *testing.T) {
	await.NotShort(t)
	for _, c := range []struct {
		platform, wan, lan string
		r                  tunable
	}{
		{"openwrt", "wan", "lan", fake.NewOpenWrt()},
		{"clearos", "wan", "lan", fake.NewClearOS()},
		{"openbsd", "em0", "em1", fake.NewOpenBSD(pfctl.Today)},
		{"openbsd-altq", "em0", "em1", fake.NewOpenBSD(pfctl.ALTQWithMatch)},
		{"freebsd", "igb0", "igb1", fake.NewFreeBSD()},
		{"pfsense", "igb0", "igb1", pfsensefake.New()},
		{"opnsense", "wan", "lan", newOPNsense(t)},
	} {
		t.Run(c.platform, func(t *testing.T) {
			driver, err := all.Find(c.platform)
			if err != nil {
				t.Fatal(err)
			}
			tuneOn(t, driver, c.wan, c.lan, c.r)
		})
	}
}

// A tunable is a router that can show everything that a change touches.
type tunable interface {
	platform.Runner
	Text() string
}

// tuneOn tunes a router three times, and then reverts.
func tuneOn(t *testing.T, driver *platform.Driver, wan, lan string, r tunable) {
	t.Helper()
	where := &router{driver: driver, runner: r}
	if err := new(routerFlags).configure(where, driver.Scheme != ""); err != nil {
		t.Fatal(err)
	}
	where.engine.Dir, where.engine.Watchdog = t.TempDir(), nobody{}
	caps := driver.Language.Assume(wan, lan)
	start := r.Text()
	once := func(line *conform.TunedLine) *tune.Result {
		t.Helper()
		router := &tunedRouter{engine: where.engine}
		if err := router.open(t.Context(), caps, plan.Preferences{}); err != nil {
			t.Fatal(err)
		}
		wideOpen := r.Text()
		line.Shaped = func() bool { return r.Text() != wideOpen }
		result, err := tune.Run(t.Context(), tune.Config{Capabilities: caps, Now: line.Now}, line, router)
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	first := once(&conform.TunedLine{})
	if !first.Kept || first.Plan == nil || first.Plan.Platform != driver.Name() || r.Text() == start {
		t.Fatalf("kept %v: %s", first.Kept, first.Reason)
	}
	kept := r.Text()
	if second := once(&conform.TunedLine{}); !second.Kept || second.Plan.DownBps != first.Plan.DownBps || second.Plan.UpBps != first.Plan.UpBps {
		t.Errorf("a second tuning ends at %v/%v, the first at %v/%v", second.Plan.DownBps, second.Plan.UpBps, first.Plan.DownBps, first.Plan.UpBps)
	}
	if third := once(&conform.TunedLine{Useless: true}); third.Kept || third.Reason == "" {
		t.Errorf("kept, though no better: %s", third.Reason)
	}
	if r.Text() != kept {
		t.Errorf("a tuning that kept nothing left a change:\n%s\nbefore:\n%s", r.Text(), kept)
	}
	if _, done, err := where.engine.Revert(t.Context(), apply.Journal{WAN: caps.WAN}); err != nil || !done {
		t.Fatal(done, err)
	}
	if now := r.Text(); now != start {
		t.Errorf("reverted, and this is not the start:\n%s", strings.TrimSpace(now))
	}
}

// TestTuneOnToy: the same on a platform that is only a driver.
func TestTuneOnToy(t *testing.T) {
	tuneOn(t, toy.Driver(), "t0", "t1", toy.NewRouter())
}
