package platform_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/all"
	"unbloat/internal/cure/platform/linux"
	"unbloat/internal/cure/platform/openwrt"
	"unbloat/testkit/fake"
	"unbloat/testkit/linuxfake"
	"unbloat/testkit/opnsensefake"
	"unbloat/testkit/pfctl"
	"unbloat/testkit/pfsensefake"
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

// TestClassesOfSeveralWANs: each WAN has BPF programs of its own, by its name. There is
// one nftables table, so rules on a second WAN are refused, and the first keeps its own.
func TestClassesOfSeveralWANs(t *testing.T) {
	rule := plan.ClassPreferences{Rules: []plan.Rule{{Class: plan.Voice, Protocol: "udp", FarPort: []plan.PortRange{{From: 5060, To: 5061}}}}}
	l, o := fake.NewLinux(), fake.NewOpenWrt()
	for name, c := range map[string]struct {
		backend platform.Backend
		router  interface {
			platform.Runner
			Text() string
		}
		kernel *linuxfake.Kernel
	}{"linux": {&linux.Backend{Runner: l}, l, l.Kernel}, "openwrt": {&openwrt.Backend{Runner: o}, o, o.Kernel}} {
		for _, dev := range []string{"wan2", "lan2"} {
			c.kernel.Devices = append(c.kernel.Devices, &linuxfake.Device{Name: dev, Kind: "veth", Up: true, MTU: 1500})
		}
		e := &apply.Engine{Backend: c.backend, Runner: c.router, Dir: t.TempDir(), Watchdog: nobody{}}
		start := c.router.Text()
		change := func(wan, lan string, classes plan.ClassPreferences) error {
			t.Helper()
			p, err := plan.Make(plan.Line{}, plan.Capabilities{Language: all.Must(name), WAN: wan, LAN: lan, IFB: true, Offloads: []plan.Offload{}},
				plan.Preferences{Classes: classes, Up: plan.RatePreference{Rate: 5 * unit.MbitPerSecond}, Down: plan.RatePreference{Rate: 30 * unit.MbitPerSecond}})
			if err != nil || !p.Classes.ByBPF() {
				t.Fatal(err)
			}
			tr, err := e.Begin(t.Context(), p, apply.Options{Confirm: time.Minute})
			if err != nil {
				return err
			}
			defer tr.Close()
			return tr.Commit()
		}
		if err := change("wan", "lan", rule); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		before := c.router.Text()
		if err := change("wan2", "lan2", rule); err == nil || !strings.Contains(err.Error(), "--classes off") || c.router.Text() != before {
			t.Errorf("%s: rules for a second WAN: %v", name, err)
		}
		if err := change("wan2", "lan2", plan.ClassPreferences{}); err != nil {
			t.Fatalf("%s: the second WAN: %v", name, err)
		}
		if len(c.kernel.Pins) != 2 || c.kernel.Pins[0][:4] == c.kernel.Pins[1][:4] {
			t.Errorf("%s: programs %q", name, c.kernel.Pins)
		}
		if _, _, err := e.Revert(t.Context(), apply.Journal{WAN: "wan2"}); err != nil || c.router.Text() != before {
			t.Errorf("%s: the second is reverted: %v\n%s\nwant\n%s", name, err, c.router.Text(), before)
		}
		if _, _, err := e.Revert(t.Context(), apply.Journal{WAN: "wan"}); err != nil || c.router.Text() != start {
			t.Errorf("%s: both are reverted: %v\n%s\nwant\n%s", name, err, c.router.Text(), start)
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
		return fake.NewOpenBSD(pfctl.Today), "em0"
	case "openbsd-altq":
		return fake.NewOpenBSD(pfctl.ALTQWithMatch), "em0"
	case "freebsd":
		return fake.NewFreeBSD(), "igb0"
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
