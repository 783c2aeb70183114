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

// begin applies and commits a plan for the upload.
func begin(t *testing.T, e *apply.Engine, platform, wan string) error {
	t.Helper()
	p, err := plan.Make(plan.Line{}, plan.Capabilities{Language: all.Must(platform), WAN: wan, IFB: true, Offloads: []plan.Offload{}}, plan.Preferences{Only: plan.DirectionUp, Up: plan.RatePreference{Rate: 5 * unit.MbitPerSecond}})
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

// ruleFor gives a class to a port.
func ruleFor(class plan.Class, port uint16) plan.ClassPreferences {
	return plan.ClassPreferences{Rules: []plan.Rule{{Class: class, Protocol: "udp", FarPort: []plan.PortRange{{From: port, To: port}}}}}
}

// TestClassesOfSeveralWANs: each WAN has BPF programs and a table of rules of its own, by
// its name. A change of one leaves the other's as they are, and a table that an earlier version
// made for all WANs is replaced by the WAN that has it.
func TestClassesOfSeveralWANs(t *testing.T) {
	voice, bulk := ruleFor(plan.Voice, 5060), ruleFor(plan.Bulk, 5060)
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
		must := func(what string, err error, want string) {
			t.Helper()
			if err != nil || c.router.Text() != want {
				t.Errorf("%s: %s: %v\n%s\nwant\n%s", name, what, err, c.router.Text(), want)
			}
		}
		table := func(wan string) string {
			t.Helper()
			return linux.ReadTable(t.Context(), c.router, wan).Text
		}
		revert := func(wan string) error {
			_, _, err := e.Revert(t.Context(), apply.Journal{WAN: wan})
			return err
		}
		if err := change("wan", "lan", voice); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		one, first := c.router.Text(), table("wan")
		if err := change("wan2", "lan2", bulk); err != nil || table("wan") != first || !strings.Contains(table("wan2"), `oifname "wan2"`) {
			t.Fatalf("%s: the second WAN: %v\n%s", name, err, c.router.Text())
		}
		if len(c.kernel.Pins) != 2 || c.kernel.Pins[0][:4] == c.kernel.Pins[1][:4] {
			t.Errorf("%s: programs %q", name, c.kernel.Pins)
		}
		second := table("wan2")
		must("the second is reverted", revert("wan2"), one)

		// holds applies rules to a WAN, after which both have their tables.
		holds := func(what, wan, lan string, rules plan.ClassPreferences, first, second string) {
			t.Helper()
			if err := change(wan, lan, rules); err != nil || table("wan") != first || table("wan2") != second {
				t.Errorf("%s: %s: %v\n%s", name, what, err, c.kernel.Table)
			}
		}
		rename := func() {
			c.kernel.Table = strings.Replace(c.kernel.Table, "table inet unbloat_wan {", "table inet unbloat {", 1)
			script := "/usr/lib/sqm/unbloat_wan.qos"
			if text := o.Files[script]; text != "" {
				o.Files[script] = strings.ReplaceAll(text, "table inet unbloat_wan", "table inet unbloat")
			}
		}
		rename()
		holds("beside the table of an earlier version", "wan2", "lan2", bulk, strings.Replace(first, "_wan", "", 1), second)
		holds("its WAN is applied", "wan", "lan", voice, first, second)
		if err := change("wan", "lan", bulk); err != nil || table("wan") == first || table("wan2") != second {
			t.Errorf("%s: another rule for the first: %v\n%s", name, err, c.kernel.Table)
		}
		rename()
		if err := revert("wan"); err != nil || table("wan") != "" || table("wan2") != second {
			t.Errorf("%s: its WAN is reverted: %v\n%s", name, err, c.kernel.Table)
		}
		must("both are reverted", revert("wan2"), start)
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
