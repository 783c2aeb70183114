package openbsd_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/all"
	"unbloat/internal/cure/platform/openbsd"
	"unbloat/testkit/conform"
	"unbloat/testkit/fake"
	"unbloat/testkit/pfctl"
	"unbloat/unit"
)

// TestContract: the contract of every backend, for both grammars.
func TestContract(t *testing.T) {
	for _, of := range []string{"openbsd", "openbsd-altq"} {
		t.Run(of, func(t *testing.T) {
			old, most := of == "openbsd-altq", 10*unit.GbitPerSecond
			if old {
				most = 4294967295 // 32 bits
			}
			conform.Run(t, conform.Case{
				WAN: "em0",
				New: func() (conform.Router, platform.Backend) {
					o := fake.NewOpenBSD(map[bool]pfctl.Grammar{false: pfctl.Today, true: pfctl.ALTQWithMatch}[old])
					return o, &openbsd.Backend{Runner: o, Altq: old}
				},
				Plan: func(t *rapid.T, name string) plan.Plan {
					prefs := conform.AnyPreferences(t, name, most, plan.FIFO)
					if rapid.Bool().Draw(t, name+" classes") {
						prefs.Classes.Rules = []plan.Rule{{Class: plan.Voice, Protocol: "udp", FarPort: []plan.PortRange{{From: 19302, To: 19309}}}}
					}
					p, err := plan.Make(plan.Line{}, plan.Capabilities{Language: all.Must(of), WAN: "em0", LAN: rapid.SampledFrom([]string{"em1", "vlan100"}).Draw(t, name+" lan")}, prefs)
					if err != nil {
						t.Fatal(err)
					}
					return p
				},
			})
		})
	}
}

// TestOldClasses: with ALTQ, too, each class has its queue, which status
// explains and counts, and which revert removes. If the order of the pf.conf
// leaves no place for our rules, nothing is changed.
func TestOldClasses(t *testing.T) {
	p, err := plan.Make(plan.Line{Down: 20 * unit.MbitPerSecond, Up: 2 * unit.MbitPerSecond}, plan.Capabilities{Language: openbsd.LanguageAltq(), WAN: "em0", LAN: "em1"},
		plan.Preferences{Up: plan.RatePreference{Rate: 2e6}, Classes: plan.ClassPreferences{Rules: []plan.Rule{{Class: plan.Voice, Protocol: "udp", FarPort: []plan.PortRange{{From: 5060, To: 5061}}}}}})
	if err != nil {
		t.Fatal(err)
	}
	o := fake.NewOpenBSD(pfctl.ALTQWithMatch)
	b := &openbsd.Backend{Runner: o, Altq: true}
	e := &apply.Engine{Backend: b, Runner: o, Dir: t.TempDir(), Watchdog: nobody{}}
	start := o.Text()
	tr, err := e.Begin(t.Context(), p, apply.Options{Confirm: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	said, err := b.Shapers(t.Context(), "em0")
	if err != nil {
		t.Fatal(err)
	}
	if len(said) != 10 {
		t.Fatalf("%d queues, want 4 and what they share for each direction", len(said))
	}
	for _, want := range []string{
		"queue em0_voice on em0 is guaranteed 600 kbit/s and held to 785 kbit/s, by HFSC with a FIFO of 16 packets (unbloat's), which is up to 247 ms; its packets go first up to 600 kbit/s; it takes",
		"what leaves em0 is held to 2.00 Mbit/s by ALTQ and shared among em0_voice, em0_interactive, em0_normal, em0_bulk (unbloat's)",
		"it takes `match out on em0 proto udp from any to any port 5060:5061 queue em0_voice`",
		"queue em0_normal on em0 is guaranteed 500 kbit/s and held to 2.00 Mbit/s, by HFSC with a FIFO of 18 packets (unbloat's), which is up to 109 ms; it takes what no rule assigns",
		"it takes `match in on em1 proto tcp all queue(em1_normal, em1_interactive)`",
	} {
		if !slices.ContainsFunc(said, func(s platform.Shaped) bool { return strings.Contains(s.Says, want) }) {
			t.Errorf("%q is not said in\n%+v", want, said)
		}
	}
	for _, s := range said {
		if s.Queue != "HFSC" && (len(s.Counters) != 1 || s.Counters[0].Packets != 1042 || s.Counters[0].Drops != 3) {
			t.Errorf("%s counts %+v", s.Says, s.Counters)
		}
	}
	if err := tr.Revert(t.Context()); err != nil || o.Text() != start {
		t.Errorf("undone: %v\n%s", err, o.Text())
	}
	tr.Close()

	o.Files[openbsd.PfConf] = "nat on em0 from em1:network to any -> (em0)\npass all\n"
	if _, _, err := o.Run(t.Context(), []string{"pfctl", "-f", openbsd.PfConf}, nil); err != nil {
		t.Fatal(err)
	}
	start = o.Text()
	if _, err := e.Begin(t.Context(), p, apply.Options{Confirm: time.Minute}); err == nil || !strings.Contains(err.Error(), "set require-order no") || o.Text() != start {
		t.Errorf("between translation rules: %v", err)
	}
	o.Files[openbsd.PfConf] = "set require-order no\n" + o.Files[openbsd.PfConf]
	if tr, err = e.Begin(t.Context(), p, apply.Options{Confirm: time.Minute}); err != nil {
		t.Fatal(err)
	}
	tr.Close()
}

// TestReleases: releases between the ALTQ grammar that we write and flow queues
// support neither. On these, and if pfctl's grammar does not fit the release,
// nothing is changed and the error says why.
func TestReleases(t *testing.T) {
	for _, c := range []struct {
		release string
		altq    bool
		says    string // "": the plan is applied
	}{
		{"4.6", true, ""}, {"5.4", true, ""}, {"5.5", true, "upgrade OpenBSD to 6.2"}, {"5.6", true, "upgrade OpenBSD to 6.2"},
		{"6.1", true, "upgrade OpenBSD to 6.2"}, {"6.2", true, "--for openbsd"}, {"7.8", true, "--for openbsd"},
		{"5.4", false, "--for openbsd-altq"}, {"5.5", false, "upgrade OpenBSD to 6.2"}, {"6.1", false, "upgrade OpenBSD to 6.2"},
		{"6.2", false, ""}, {"7.8", false, ""}, {"-current", false, ""},
	} {
		name, grammar := openbsd.Name, pfctl.Today
		if c.altq {
			name, grammar = openbsd.NameAltq, pfctl.ALTQ
		}
		p, err := plan.Make(plan.Line{}, plan.Capabilities{Language: all.Must(name), WAN: "em0", LAN: "em1"}, plan.Preferences{Up: plan.RatePreference{Rate: 5e6}, Down: plan.RatePreference{Rate: 50e6}})
		if err != nil {
			t.Fatal(err)
		}
		o := fake.NewOpenBSD(grammar)
		o.SetRelease(c.release)
		start := o.Text()
		e := &apply.Engine{Backend: &openbsd.Backend{Runner: o, Altq: c.altq}, Runner: o, Dir: t.TempDir(), Watchdog: nobody{}}
		tr, err := e.Begin(t.Context(), p, apply.Options{Confirm: time.Minute})
		var refused *platform.PreconditionError
		switch {
		case c.says == "" && err != nil, c.says != "" && (!errors.As(err, &refused) || !strings.Contains(err.Error(), c.says) || o.Text() != start):
			t.Errorf("OpenBSD %s, ALTQ %v: %v, want %q", c.release, c.altq, err, c.says)
		case err == nil:
			if err := tr.Revert(t.Context()); err != nil || o.Text() != start {
				t.Errorf("OpenBSD %s, ALTQ %v: undone: %v", c.release, c.altq, err)
			}
			tr.Close()
		}
		if got := platform.Detect(t.Context(), o, all.Drivers()).Name(); c.release != "-current" && (got == openbsd.NameAltq) != (c.release < "5.5") {
			t.Errorf("OpenBSD %s takes itself for %s", c.release, got)
		}
	}
}

// nobody is a watchdog that never acts.
type nobody struct{}

func (nobody) Arm(context.Context, *apply.Journal) error   { return nil }
func (nobody) Renew(context.Context, *apply.Journal) error { return nil }
func (nobody) Alive(context.Context, *apply.Journal) bool  { return true }
func (nobody) Close(context.Context, *apply.Journal) error { return nil }
