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
	"unbloat/internal/platform/clearos"
	"unbloat/internal/platform/fake"
	"unbloat/internal/platform/fake/pfctl"
	"unbloat/internal/platform/freebsd"
	freebsdfake "unbloat/internal/platform/freebsd/fake"
	"unbloat/internal/platform/linux"
	"unbloat/internal/platform/openbsd"
	openbsdfake "unbloat/internal/platform/openbsd/fake"
	"unbloat/internal/platform/openwrt"
	"unbloat/internal/platform/opnsense"
	opnsensefake "unbloat/internal/platform/opnsense/fake"
	"unbloat/internal/platform/pfsense"
	pfsensefake "unbloat/internal/platform/pfsense/fake"
	"unbloat/unit"
)

// nobody is a watchdog who never acts.
type nobody struct{}

func (nobody) Arm(context.Context, *apply.Journal) error   { return nil }
func (nobody) Renew(context.Context, *apply.Journal) error { return nil }
func (nobody) Alive(context.Context, *apply.Journal) bool  { return true }
func (nobody) Close(context.Context, *apply.Journal) error { return nil }

// begin applies and commits an upload; on Linux and OpenWrt only the first WAN's traffic is
// divided into classes.
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

// TestClassesOfSeveralWANs: there is one table of nftables, so a second WAN with
// classes is refused, and the first keeps its own.
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

// TestSeveralWANs: a second WAN is shaped beside the first, and each is undone
// by itself; or it is refused with the reason, and nothing is changed.
func TestSeveralWANs(t *testing.T) {
	type texter interface{ Text() string }
	for _, c := range []struct {
		platform, first, second string
		refused                 string
		make                    func() (texter, platform.Runner, apply.Backend)
	}{
		{"linux", "wan", "lan", "", func() (texter, platform.Runner, apply.Backend) {
			f := fake.NewLinux()
			return f, f, &linux.Backend{Runner: f}
		}},
		{"openwrt", "wan", "lan", "", func() (texter, platform.Runner, apply.Backend) {
			f := fake.NewOpenWrt()
			return f, f, &openwrt.Backend{Runner: f}
		}},
		{"openbsd", "em0", "pppoe0", "", func() (texter, platform.Runner, apply.Backend) {
			f := openbsdfake.New(pfctl.Today)
			return f, f, &openbsd.Backend{Runner: f}
		}},
		{"openbsd-altq", "em0", "pppoe0", "another WAN here already", func() (texter, platform.Runner, apply.Backend) {
			f := openbsdfake.New(pfctl.ALTQWithMatch)
			return f, f, &openbsd.Backend{Runner: f, Altq: true}
		}},
		{"freebsd", "igb0", "igb1", "another WAN here already", func() (texter, platform.Runner, apply.Backend) {
			f := freebsdfake.New()
			return f, f, &freebsd.Backend{Runner: f}
		}},
		{"clearos", "wan", "lan", "another WAN here already", func() (texter, platform.Runner, apply.Backend) {
			f := fake.NewClearOS()
			return f, f, &clearos.Backend{Runner: f}
		}},
		{"opnsense", "wan", "opt1", "shapes wan here already", func() (texter, platform.Runner, apply.Backend) {
			f := opnsensefake.NewWithGuests()
			return f, rest{f}, &opnsense.Backend{Runner: rest{f}}
		}},
		{"pfsense", "igb0", "pppoe0", "shapes wan here already", func() (texter, platform.Runner, apply.Backend) {
			f := pfsensefake.New()
			return f, f, &pfsense.Backend{Runner: f}
		}},
	} {
		t.Run(c.platform, func(t *testing.T) {
			f, r, b := c.make()
			e := &apply.Engine{Backend: b, Runner: r, Dir: t.TempDir(), Watchdog: nobody{}}
			revert := func(wan string) {
				t.Helper()
				if _, _, err := e.Revert(t.Context(), apply.Journal{WAN: wan}); err != nil {
					t.Fatal(err)
				}
			}
			start := f.Text()
			if err := begin(t, e, c.platform, c.first); err != nil {
				t.Fatal(err)
			}
			one := f.Text()
			err := begin(t, e, c.platform, c.second)
			if c.refused != "" {
				var pre *platform.PreconditionError
				if !errors.As(err, &pre) || !strings.Contains(err.Error(), c.refused) || f.Text() != one {
					t.Fatalf("%v, want %q", err, c.refused)
				}
				revert(c.first)
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
				revert(c.first)
				revert(c.second)
			}
			if f.Text() != start {
				t.Errorf("reverted, and this is not the start:\n%s\nstart:\n%s", f.Text(), start)
			}
		})
	}
}
