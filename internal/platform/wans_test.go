package platform_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"unbloat/internal/apply"
	"unbloat/internal/plan"
	"unbloat/internal/platform"
	"unbloat/internal/platform/all"
	"unbloat/internal/platform/fake"
	"unbloat/internal/platform/fake/pfctl"
	freebsdfake "unbloat/internal/platform/freebsd/fake"
	"unbloat/internal/platform/linux"
	openbsdfake "unbloat/internal/platform/openbsd/fake"
	"unbloat/internal/platform/openwrt"
	opnsensefake "unbloat/internal/platform/opnsense/fake"
	pfsensefake "unbloat/internal/platform/pfsense/fake"
	"unbloat/unit"
)

// nobody is a watchdog that never acts.
type nobody struct{}

func (nobody) Arm(context.Context, *apply.Journal) error   { return nil }
func (nobody) Renew(context.Context, *apply.Journal) error { return nil }
func (nobody) Alive(context.Context, *apply.Journal) bool  { return true }
func (nobody) Close(context.Context, *apply.Journal) error { return nil }

// begin applies and commits a plan for the upload; on Linux and OpenWrt only
// the first WAN has classes.
func begin(t *testing.T, e *apply.Engine, platform, wan string) error {
	t.Helper()
	var classes plan.ClassPreferences
	if (platform == "linux" || platform == "openwrt") && wan != "wan" {
		classes.Use = plan.ClassesOff
	}
	p, err := plan.Make(plan.Line{}, plan.Capabilities{Language: all.Must(platform), WAN: wan, IFB: true, Offloads: []plan.Offload{}}, plan.Preferences{Only: plan.DirectionUp, Classes: classes, Up: plan.RatePreference{Rate: 5 * unit.MbitPerSecond}})
	if err != nil {
		t.Fatal(err)
	}
	tr, err := e.Begin(t.Context(), p, apply.Options{Confirm: time.Minute})
	if err != nil {
		return err
	}
	defer tr.Close()
	return tr.Commit()
}

// TestClassesOfSeveralWANs: there is only one nftables table, so classes on a
// second WAN are refused, and the first WAN keeps its own.
func TestClassesOfSeveralWANs(t *testing.T) {
	l, o := fake.NewLinux(), fake.NewOpenWrt()
	for platform, c := range map[string]struct {
		backend apply.Backend
		router  interface {
			platform.Runner
			Text() string
		}
	}{"linux": {&linux.Backend{Runner: l}, l}, "openwrt": {&openwrt.Backend{Runner: o}, o}} {
		e := &apply.Engine{Backend: c.backend, Runner: c.router, Dir: t.TempDir(), Watchdog: nobody{}}
		if err := begin(t, e, platform, "wan"); err != nil {
			t.Fatal(err)
		}
		before := c.router.Text()
		p, err := plan.Make(plan.Line{}, plan.Capabilities{Language: all.Must(platform), WAN: "lan", IFB: true}, plan.Preferences{Up: plan.RatePreference{Rate: 5 * unit.MbitPerSecond}, Only: plan.DirectionUp})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Begin(t.Context(), p, apply.Options{Confirm: time.Minute}); err == nil || !strings.Contains(err.Error(), "--classes off") || c.router.Text() != before {
			t.Errorf("%s: %v", platform, err)
		}
	}
}

// A standInRouter is a stand-in for a router of any platform.
type standInRouter interface {
	platform.Runner
	Text() string
}

// reached is an OPNsense router behind its API.
type reached struct {
	*opnsensefake.Router
	rest
}

func (r reached) Run(ctx context.Context, argv []string, stdin []byte) ([]byte, []byte, error) {
	return r.rest.Run(ctx, argv, stdin)
}

// standIn returns a platform's stand-in, and its WAN.
func standIn(t *testing.T, name string) (standInRouter, string) {
	t.Helper()
	switch name {
	case "linux":
		return fake.NewLinux(), "wan"
	case "openwrt":
		return fake.NewOpenWrt(), "wan"
	case "clearos":
		return fake.NewClearOS(), "wan"
	case "openbsd":
		return openbsdfake.New(pfctl.Today), "em0"
	case "openbsd-altq":
		return openbsdfake.New(pfctl.ALTQWithMatch), "em0"
	case "freebsd":
		return freebsdfake.New(), "igb0"
	case "opnsense":
		o := opnsensefake.NewWithGuests()
		return reached{o, rest{opnsensefake.API{Router: o}}}, "wan"
	case "pfsense":
		return pfsensefake.New(), "igb0"
	}
	t.Fatalf("%s has no stand-in here", name)
	return nil, ""
}

// TestSeveralWANs: a second WAN is shaped too, and each is reverted separately;
// or it is refused with a reason, and nothing is changed.
func TestSeveralWANs(t *testing.T) {
	for _, c := range []struct{ platform, second, refused string }{
		{"linux", "lan", ""},
		{"openwrt", "lan", ""},
		{"openbsd", "pppoe0", ""},
		{"openbsd-altq", "pppoe0", "another WAN here already"},
		{"freebsd", "igb1", "another WAN here already"},
		{"clearos", "lan", "another WAN here already"},
		{"opnsense", "opt1", "shapes wan here already"},
		{"pfsense", "pppoe0", "shapes wan here already"},
	} {
		t.Run(c.platform, func(t *testing.T) {
			f, first := standIn(t, c.platform)
			d, err := all.Find(c.platform)
			if err != nil {
				t.Fatal(err)
			}
			b, err := d.Backend(platform.Options{Runner: f, API: d.Scheme != ""})
			if err != nil {
				t.Fatal(err)
			}
			e := &apply.Engine{Backend: b, Runner: f, Dir: t.TempDir(), Watchdog: nobody{}}
			revert := func(wan string) {
				t.Helper()
				if _, _, err := e.Revert(t.Context(), apply.Journal{WAN: wan}); err != nil {
					t.Fatal(err)
				}
			}
			start := f.Text()
			if err := begin(t, e, c.platform, first); err != nil {
				t.Fatal(err)
			}
			one := f.Text()
			err = begin(t, e, c.platform, c.second)
			if c.refused != "" {
				var pre *platform.PreconditionError
				if !errors.As(err, &pre) || !strings.Contains(err.Error(), c.refused) || f.Text() != one {
					t.Fatalf("%v, want %q", err, c.refused)
				}
				revert(first)
			} else {
				if err != nil {
					t.Fatal(err)
				}
				both := f.Text()
				revert(c.second)
				if f.Text() != one {
					t.Fatalf("the second is reverted, and this is not the first alone:\n%s\nalone:\n%s", f.Text(), one)
				}
				if err := begin(t, e, c.platform, c.second); err != nil || f.Text() != both {
					t.Fatalf("again: %v\n%s", err, f.Text())
				}
				revert(first)
				revert(c.second)
			}
			if f.Text() != start {
				t.Errorf("reverted, and this is not the start:\n%s\nstart:\n%s", f.Text(), start)
			}
		})
	}
}
