package clearos_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"unbloat/internal/cure/apply"
	mech "unbloat/internal/cure/lang/clearos"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/clearos"
	"unbloat/testkit/conform"
	"unbloat/testkit/fake"
	"unbloat/unit"
)

func anyPlan(t *rapid.T, name string) plan.Plan {
	w := conform.AnyPreferences(t, name, 10*unit.GbitPerSecond)
	if w.Only == "" {
		w.AQM = rapid.SampledFrom([]plan.AQM{"", plan.SFQ}).Draw(t, name+" aqm")
	}
	if w.AQM == plan.SFQ && rapid.Bool().Draw(t, name+" classes") {
		w.Classes.Rules = []plan.Rule{{Class: plan.Voice, Protocol: "udp", FarPort: []plan.PortRange{{From: 19302, To: 19309}}}}
		w.Classes.Shares = []plan.SharePreference{{Class: plan.Bulk, Limit: plan.RatePreference{Fraction: rapid.SampledFrom([]float64{0.5, 0.8}).Draw(t, name+" limit")}}}
	}
	if w.AQM != plan.SFQ && rapid.Bool().Draw(t, name+" by behaviour") {
		w.Classes.Use = plan.ClassesOn
	}
	p, err := plan.Make(plan.Line{}, plan.Capabilities{Language: clearos.Language(), WAN: "wan", LAN: "lan", IFB: true, Offloads: []plan.Offload{}}, w)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestContract: the contract of every backend.
func TestContract(t *testing.T) {
	conform.Run(t, conform.Case{
		WAN: "wan",
		New: func() (conform.Router, platform.Backend) {
			c := fake.NewClearOS()
			return c, &clearos.Backend{Runner: c}
		},
		Plan: anyPlan,
	})
}

// TestInTheWay: an active old bandwidth manager, a missing app, and settings
// that crash ClearOS's own engine are refused with a remedy, and nothing is
// changed.
func TestInTheWay(t *testing.T) {
	for name, c := range map[string]struct {
		prefs plan.Preferences
		wan   string
		do    func(o *fake.ClearOS)
		says  string
	}{
		"bandwidth manager": {plan.Preferences{}, "wan", func(o *fake.ClearOS) { o.Files[mech.BandwidthConf] = "# old\nBANDWIDTH_QOS=\"on\"\n" }, `set BANDWIDTH_QOS="off"`},
		"no app":            {plan.Preferences{}, "wan", func(o *fake.ClearOS) { delete(o.Files, mech.QoSConf) }, "yum install app-qos"},
		"a broken file":     {plan.Preferences{}, "wan", func(o *fake.ClearOS) { o.Files[mech.QoSConf] = "QOS_ENABLE=\"on\n" }, "mend that file"},
		"one direction":     {plan.Preferences{AQM: plan.SFQ, Only: plan.DirectionUp}, "wan", func(*fake.ClearOS) {}, "one direction only"},
		"eth0.100":          {plan.Preferences{AQM: plan.SFQ}, "eth0.100", func(*fake.ClearOS) {}, "letters and digits alone"},
	} {
		o := fake.NewClearOS()
		c.do(o)
		before := o.Text()
		only := c.prefs.Only
		c.prefs.Only = ""
		p, err := plan.Make(plan.Line{Down: 25 * unit.MbitPerSecond, Up: unit.MbitPerSecond}, plan.Capabilities{Language: clearos.Language(), WAN: "wan", IFB: true, Offloads: []plan.Offload{}}, c.prefs)
		if err != nil {
			t.Fatal(err)
		}
		if p.WAN = c.wan; only == plan.DirectionUp { // Make refuses this; the plan was edited by hand
			p.Down, p.DownBps = nil, 0
		}
		b := &clearos.Backend{Runner: o}
		now, err := b.Observe(t.Context(), p, nil)
		if err == nil {
			_, err = b.Desire(t.Context(), p, now, now)
		}
		if err == nil || !strings.Contains(err.Error(), c.says) || o.Text() != before {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}

// TestOwnEngine: ClearOS's own engine, enabled by the article's settings, runs
// without error and shapes both directions. Settings that our plans avoid end
// it or leave no shaper: an interface with a dot, shares without an entry for
// "*", a single direction, a missing speed.
func TestOwnEngine(t *testing.T) {
	for name, c := range map[string]struct{ old, with, log string }{
		"as planned":             {"", "", ""},
		"a name with a dot":      {"wan:auto", "eth0.100:auto", `Cannot find device "100"`},
		"a missing entry for *":  {"QOS_DOWNSTREAM_BWRES=\"*:", "QOS_DOWNSTREAM_BWRES=\"eth9:", "nil value"},
		"in one direction alone": {"QOS_DOWNSTREAM=\"wan:auto\"", "QOS_DOWNSTREAM=\"\"", "libqos.lua:573: attempt to index field '?' (a nil value)"},
		"no speed":               {"WAN_MAX_DOWNSTREAM", "LAN_MAX_DOWNSTREAM", `"rate" is required`},
	} {
		o := fake.NewClearOS()
		p, err := plan.Make(plan.Line{Down: 25 * unit.MbitPerSecond, Up: unit.MbitPerSecond}, plan.Capabilities{Language: clearos.Language(), WAN: "wan", IFB: true}, plan.Preferences{Style: plan.StyleArticle})
		if err != nil {
			t.Fatal(err)
		}
		s, _, err := mech.Render(p)
		if err != nil {
			t.Fatal(err)
		}
		change := func(text string) string {
			if c.old == "" {
				return text
			}
			return strings.ReplaceAll(text, c.old, c.with)
		}
		o.Files[mech.QoSConf], o.Files[mech.NetworkConf] = change(mech.Format(s.QoS, true)), change(mech.Format(s.Network, false))
		if _, _, err := o.Run(t.Context(), []string{"service", "firewall", "restart"}, nil); err != nil {
			t.Fatal(err)
		}
		const begins = "Running external QoS bandwidth manager"
		got := strings.Join(o.Log, "\n")
		if !strings.HasPrefix(got, begins) || !strings.Contains(got, c.log) || c.log == "" && got != begins {
			t.Errorf("%s: %q, want %q", name, got, c.log)
		}
		text := o.Kernel.Text()
		if holds := strings.Count(text, "class htb 1:16 ") == 2 && strings.Contains(text, "rate 25Mbit"); holds != (c.log == "") {
			t.Errorf("%s: it holds both directions: %v\n%s", name, holds, text)
		}
	}
}

// TestOwnEngineIsReplaced: ClearOS's own engine never removes its queues, on
// imq0 even when it runs again. Still, new rates apply to both directions, our
// engine replaces its queues, and after revert none of them is left.
func TestOwnEngineIsReplaced(t *testing.T) {
	o := fake.NewClearOS()
	start := o.Text()
	e := &apply.Engine{Backend: &clearos.Backend{Runner: o}, Runner: o, Dir: t.TempDir(), Watchdog: nobody{}}
	for _, c := range []struct {
		aqm  plan.AQM
		mbit unit.Rate
		want []string // lines of the running state
		not  string
	}{
		{plan.SFQ, 25, []string{"class htb 1:1 root rate 25Mbit", "class htb 1:1 root rate 1Mbit", "class htb 1:16"}, "b10a"},
		{plan.SFQ, 50, []string{"class htb 1:1 root rate 50Mbit", "class htb 1:1 root rate 1Mbit", "class htb 1:16"}, "25Mbit"},
		{plan.FQCoDel, 50, []string{"class htb b10a:10"}, "class htb 1:16"},
		{plan.SFQ, 25, []string{"class htb 1:1 root rate 25Mbit"}, "b10a"},
	} {
		p, err := plan.Make(plan.Line{}, plan.Capabilities{Language: clearos.Language(), WAN: "wan", IFB: true, Offloads: []plan.Offload{}},
			plan.Preferences{AQM: c.aqm, Down: plan.RatePreference{Rate: c.mbit * unit.MbitPerSecond}, Up: plan.RatePreference{Rate: unit.MbitPerSecond}})
		if err != nil {
			t.Fatal(err)
		}
		tr, err := e.Begin(t.Context(), p, apply.Options{Confirm: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		if err := tr.Commit(); err != nil {
			t.Fatal(err)
		}
		tr.Close()
		text := o.Kernel.Text()
		for _, w := range c.want {
			if !strings.Contains(text, w) {
				t.Errorf("%s %d: %q is not there:\n%s", c.aqm, c.mbit, w, text)
			}
		}
		if strings.Contains(text, c.not) {
			t.Errorf("%s %d: %q is still there:\n%s", c.aqm, c.mbit, c.not, text)
		}
	}
	if _, _, err := e.Revert(t.Context(), apply.Journal{WAN: "wan"}); err != nil {
		t.Fatal(err)
	}
	if o.Text() != start {
		t.Errorf("reverted:\n%s\nat first:\n%s", o.Text(), start)
	}
}

// nobody is a watchdog that never acts.
type nobody struct{}

func (nobody) Arm(context.Context, *apply.Journal) error   { return nil }
func (nobody) Renew(context.Context, *apply.Journal) error { return nil }
func (nobody) Alive(context.Context, *apply.Journal) bool  { return true }
func (nobody) Close(context.Context, *apply.Journal) error { return nil }
