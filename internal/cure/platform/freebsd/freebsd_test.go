package freebsd_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/lang/dummynet"
	"unbloat/internal/cure/lang/tc"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/freebsd"
	"unbloat/testkit/conform"
	"unbloat/testkit/dnctl"
	"unbloat/testkit/fake"
	"unbloat/unit"
)

func anyPlan(t *rapid.T, name string) plan.Plan {
	w := conform.AnyPreferences(t, name, 4294967294, plan.FIFO)
	w.Style = rapid.SampledFrom([]plan.Style{"", plan.StyleArticle}).Draw(t, name+" style")
	if rapid.Bool().Draw(t, name+" classes") {
		w.Classes.Rules = []plan.Rule{{Class: plan.Voice, Protocol: "udp", FarPort: []plan.PortRange{{From: 19302, To: 19309}}},
			{Class: plan.Bulk, Far: []string{"198.51.100.0/24", "2001:db8::/32"}, DSCP: rapid.SampledFrom([][]string{nil, {"cs1"}}).Draw(t, name+" dscp")}}
		w.Classes.Shares = []plan.SharePreference{{Class: plan.Voice, Guarantee: plan.RatePreference{Fraction: rapid.SampledFrom([]float64{0.1, 0.4}).Draw(t, name+" guarantee")}}}
	}
	if rapid.Bool().Draw(t, name+" by behaviour") {
		w.Classes.Use = plan.ClassesOn
	}
	p, err := plan.Make(plan.Line{}, plan.Capabilities{Language: freebsd.Language(), WAN: "igb0", LAN: "igb1"}, w)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestContract: the contract of every backend.
func TestContract(t *testing.T) {
	conform.Run(t, conform.Case{
		WAN: "igb0",
		New: func() (conform.Router, platform.Backend) {
			f := fake.NewFreeBSD()
			return f, &freebsd.Backend{Runner: f}
		},
		Plan: anyPlan,
	})
}

// An older unbloat's plan had a table of flows, and rules that look it up. What it left is
// taken back with the rest; one of somebody else is left alone.
func TestFlowTable(t *testing.T) {
	p, err := plan.Make(plan.Line{}, plan.Capabilities{Language: freebsd.Language(), WAN: "igb0", LAN: "igb1"},
		plan.Preferences{Down: plan.RatePreference{Rate: 28e6}, Up: plan.RatePreference{Rate: 4.8e6}, Classes: plan.ClassPreferences{Use: plan.ClassesOn}})
	if err != nil {
		t.Fatal(err)
	}
	f := fake.NewFreeBSD()
	b := &freebsd.Backend{Runner: f}
	run := func(steps []platform.Step) {
		t.Helper()
		for _, s := range steps {
			if _, errOut, err := f.Run(t.Context(), s.Argv, []byte(s.Stdin)); err != nil {
				t.Fatalf("%q: %v %s", s.Argv, err, errOut)
			}
		}
	}
	observe := func() platform.State {
		t.Helper()
		s, err := b.Observe(t.Context(), p, nil)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	before, start := observe(), f.Dnctl.State()
	wanted, err := b.Desire(t.Context(), p, before, before)
	if err != nil {
		t.Fatal(err)
	}
	steps, _, err := b.Compare(before, wanted)
	if err != nil {
		t.Fatal(err)
	}
	run(steps)
	var older []platform.Step
	for _, line := range []string{
		"ipfw table unbloat create type flow:src-ip,proto,src-port,dst-ip,dst-port missing",
		fmt.Sprintf("ipfw add %05d queue tablearg ip from any to any flow table(unbloat) out xmit igb0", dummynet.FirstRule+2),
	} {
		f.Files[freebsd.RulesFile] += line + "\n"
		older = append(older, platform.Step{Argv: strings.Fields(line)})
	}
	run(older)
	run([]platform.Step{{Argv: strings.Fields("ipfw -q table unbloat add 192.168.1.5,17,5004,198.51.100.9,5004 11")}})
	now := observe()
	without, err := b.Baseline(t.Context(), now, before)
	if err != nil {
		t.Fatal(err)
	}
	if steps, _, err = b.Compare(now, without); err != nil {
		t.Fatal(err)
	}
	run(steps)
	if got := f.Dnctl.State(); got != start {
		t.Errorf("it is not as before:\n%s", got)
	}

	run([]platform.Step{{Argv: strings.Fields("ipfw table unbloat create type flow:src-ip,dst-ip")}})
	if steps, err = b.Restore(observe(), nil); err != nil {
		t.Fatal(err)
	}
	run(steps)
	if f.Dnctl.Table("unbloat") == nil {
		t.Error("undoing removed somebody's table")
	}
}

// deaf is a router whose dnctl exits 0 on a command and does nothing.
type deaf struct {
	*fake.FreeBSD
	to string
}

func (d deaf) Run(ctx context.Context, argv []string, stdin []byte) ([]byte, []byte, error) {
	if strings.HasPrefix(strings.Join(argv, " "), d.to) {
		return nil, nil, nil
	}
	return d.FreeBSD.Run(ctx, argv, stdin)
}

type nobody struct{}

func (nobody) Arm(context.Context, *apply.Journal) error   { return nil }
func (nobody) Renew(context.Context, *apply.Journal) error { return nil }
func (nobody) Alive(context.Context, *apply.Journal) bool  { return true }
func (nobody) Close(context.Context, *apply.Journal) error { return nil }

func begin(t *testing.T, r platform.Runner) error {
	t.Helper()
	p, err := plan.Make(plan.Line{Down: 50 * unit.MbitPerSecond, Up: 10 * unit.MbitPerSecond}, plan.Capabilities{Language: freebsd.Language(), WAN: "igb0"}, plan.Preferences{})
	if err != nil {
		t.Fatal(err)
	}
	e := &apply.Engine{Backend: &freebsd.Backend{Runner: r}, Runner: r, Dir: t.TempDir(), Watchdog: nobody{}}
	tr, err := e.Begin(t.Context(), p, apply.Options{Confirm: time.Minute})
	if err == nil {
		tr.Close()
	}
	return err
}

// TestKernelRefuses: dnctl exits 0 on commands that the kernel refuses; the
// readback finds each one, and everything is undone.
func TestKernelRefuses(t *testing.T) {
	for _, to := range []string{"dnctl pipe 1 config", "dnctl sched 2 config", "dnctl queue 1 config", "ipfw add 59002"} {
		f := fake.NewFreeBSD()
		before := f.Text()
		var verify *apply.VerifyError
		if err := begin(t, deaf{f, to}); !errors.As(err, &verify) {
			t.Errorf("deaf to `%s`: %v", to, err)
		}
		if f.Text() != before {
			t.Errorf("deaf to `%s`, and this is left:\n%s", to, f.Text())
		}
	}
}

// TestInTheWay: everything that prevents shaping is reported with a remedy, and
// nothing is changed.
func TestInTheWay(t *testing.T) {
	for says, do := range map[string]func(f *fake.FreeBSD){
		"default_to_accept=1 && kldload -n ipfw":                     func(f *fake.FreeBSD) { f.Modules = nil },
		"kldload -n dummynet":                                        func(f *fake.FreeBSD) { f.Modules = []string{"ipfw"} },
		"there is no such interface":                                 func(f *fake.FreeBSD) { f.Interfaces = []string{"em0"} },
		"pipe 1 is there already":                                    func(f *fake.FreeBSD) { run(t, f, "dnctl pipe 1 config bw 5Mbit/s") },
		"`00300 allow tcp from any to any established` lets packets": func(f *fake.FreeBSD) { run(t, f, "ipfw add 300 allow tcp from any to any established") },
	} {
		f := fake.NewFreeBSD()
		do(f)
		before := f.Text()
		var pre *platform.PreconditionError
		if err := begin(t, f); !errors.As(err, &pre) || !strings.Contains(err.Error(), says) || f.Text() != before {
			t.Errorf("%v, want %q", err, says)
		}
	}
	f := fake.NewFreeBSD()
	run(t, f, "ipfw add 300 allow ip from any to any via igb1")
	run(t, f, "ipfw add 400 allow ipv6-icmp from any to any")
	if err := begin(t, f); err != nil {
		t.Errorf("rules for the home's side, and for what passes the shaper anyway: %v", err)
	}
}

func run(t *testing.T, r platform.Runner, line string) {
	t.Helper()
	if _, errOut, err := r.Run(t.Context(), strings.Fields(line), nil); err != nil {
		t.Fatalf("%s: %s", line, errOut)
	}
}

// TestStatusOfClasses: status shows for each class what its queue passed, holds
// and dropped.
func TestStatusOfClasses(t *testing.T) {
	f := fake.NewFreeBSD()
	p, err := plan.Make(plan.Line{Down: 50 * unit.MbitPerSecond, Up: 10 * unit.MbitPerSecond}, plan.Capabilities{Language: freebsd.Language(), WAN: "igb0"},
		plan.Preferences{Classes: plan.ClassPreferences{Rules: []plan.Rule{{Class: plan.Voice, Protocol: "udp", FarPort: []plan.PortRange{{From: 5060, To: 5061}}}}}})
	if err != nil {
		t.Fatal(err)
	}
	b := &freebsd.Backend{Runner: f}
	e := &apply.Engine{Backend: b, Runner: f, Dir: t.TempDir(), Watchdog: nobody{}}
	tr, err := e.Begin(t.Context(), p, apply.Options{Confirm: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	f.Dnctl.Counted = map[int]dnctl.Count{11: {Packets: 50, Bytes: 10_000}, 13: {Packets: 131602, Bytes: 197344212, BacklogPackets: 29, BacklogBytes: 43500, Drops: 235}}
	shapers, err := b.Shapers(t.Context(), "igb0")
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range shapers {
		if x.Device != "pipe 1" {
			continue
		}
		want := []tc.Counters{{Device: "pipe 1", Kind: "queue", Handle: "11 (voice)", Bytes: 10_000, Packets: 50},
			{Device: "pipe 1", Kind: "queue", Handle: "13 (normal)", Bytes: 197344212, Packets: 131602, Drops: 235, BacklogBytes: 43500, BacklogPkts: 29}}
		if d := cmp.Diff(want, x.Counters); d != "" || !strings.Contains(x.Says, "WF2Q+") {
			t.Errorf("%s\n%s", x.Says, d)
		}
		return
	}
	t.Errorf("%+v", shapers)
}

// TestOthersRules: a foreign rule with one of our numbers is an error if the
// plan needs the number, and is never deleted.
func TestOthersRules(t *testing.T) {
	f := fake.NewFreeBSD()
	b := &freebsd.Backend{Runner: f}
	make := func(w plan.Preferences) plan.Plan {
		p, err := plan.Make(plan.Line{Down: 50 * unit.MbitPerSecond, Up: 10 * unit.MbitPerSecond}, plan.Capabilities{Language: freebsd.Language(), WAN: "igb0"}, w)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	if _, errOut, err := f.Run(t.Context(), strings.Fields("ipfw add 59010 deny tcp from any to any dst-port 25"), nil); err != nil {
		t.Fatalf("%s", errOut)
	}
	now, err := b.Observe(t.Context(), make(plan.Preferences{}), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Desire(t.Context(), make(plan.Preferences{}), now, now); err != nil {
		t.Error(err)
	}
	few := plan.Preferences{Classes: plan.ClassPreferences{Use: plan.ClassesOn}}
	if _, err := b.Desire(t.Context(), make(few), now, now); err == nil || !strings.Contains(err.Error(), "rule 59010 is there already") {
		t.Errorf("%v", err)
	}
	steps, err := b.Restore(now, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range steps {
		if s.Argv[0] == "ipfw" && s.Argv[1] == "delete" && (len(s.Argv) < 50 || slices.Contains(s.Argv, "59010") || !slices.Contains(s.Argv, "59011")) {
			t.Errorf("%q", s.Argv)
		}
	}
}
