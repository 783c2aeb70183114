package apply_test

import (
	"context"
	"errors"
	"flag"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/lang/tc"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/linux"
	"unbloat/testkit/linuxfake"
	"unbloat/unit"
)

// fakeEngine returns an engine on a router in memory, whose watchdog is a stub.
func fakeEngine(t interface{ Fatal(...any) }, k *linuxfake.Kernel) *apply.Engine {
	e := &apply.Engine{Backend: &linux.Backend{Runner: k, Replace: true}, Runner: k, Dir: inMemory(t)}
	e.StubWatchdog(func(string, string) error { return nil })
	return e
}

// inMemory returns a new directory, in memory if possible: every step of a journal is
// synced to disk.
func inMemory(t interface{ Fatal(...any) }) string {
	base := ""
	if _, err := os.Stat("/dev/shm"); err == nil {
		base = "/dev/shm"
	}
	dir, err := os.MkdirTemp(base, "unbloat-law-")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// check runs a law for so many random cases, new ones each time, or with UNBLOAT_LONG=1 for the
// number in -rapid.checks, which is 100 by default.
func check(t *testing.T, cases int, law func(t *rapid.T)) {
	t.Helper()
	if checks := flag.Lookup("rapid.checks"); os.Getenv("UNBLOAT_LONG") == "" && checks.Value.String() == checks.DefValue {
		if err := checks.Value.Set(strconv.Itoa(cases)); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = checks.Value.Set(checks.DefValue) }()
	}
	rapid.Check(t, law)
}

// anyPlan draws a plan that Linux can apply.
func anyPlan(t *rapid.T, name string) plan.Plan {
	rate := rapid.Int64Range(int64(64*unit.KbitPerSecond), int64(2*unit.GbitPerSecond))
	w := plan.Preferences{
		AQM:  rapid.SampledFrom([]plan.AQM{plan.CAKE, plan.FQCoDel, plan.FIFO}).Draw(t, name+" aqm"),
		Side: rapid.SampledFrom([]plan.Side{plan.SideIFB, plan.SideLAN}).Draw(t, name+" side"),
		Only: rapid.SampledFrom([]plan.Direction{"", "", plan.DirectionUp, plan.DirectionDown}).Draw(t, name+" only"),
		Down: plan.RatePreference{Rate: unit.Rate(rate.Draw(t, name+" down"))},
		Up:   plan.RatePreference{Rate: unit.Rate(rate.Draw(t, name+" up"))},
	}
	line := plan.Line{LinkLayer: rapid.SampledFrom([]plan.LinkLayer{"", plan.Ethernet, plan.DOCSIS, plan.ATM, plan.PTM}).Draw(t, name+" layer")}
	p, err := plan.Make(line, plan.Capabilities{Language: linux.Language(), WAN: "wan", LAN: "lan", IFB: true}, w)
	if err != nil {
		t.Skip(err)
	}
	return p
}

// maybeForeign puts a foreign shaper on the router, or not.
func maybeForeign(t *rapid.T, k *linuxfake.Kernel) {
	if !rapid.Bool().Draw(t, "foreign") {
		return
	}
	for _, c := range []string{
		"tc qdisc add dev wan root handle 1: stab overhead 18 htb default 20",
		"tc class add dev wan parent 1: classid 1:1 htb rate 5000kbit ceil 5000kbit burst 4000 cburst 4000",
		"tc class add dev wan parent 1:1 classid 1:20 htb rate 4000kbit ceil 5000kbit burst 1600 cburst 1600 quantum 3000 prio 2",
		"tc qdisc add dev wan parent 1:20 handle 120: fq_codel limit 900 target 7000us noecn",
		"ip link add name ifb4wan type ifb",
		"tc qdisc add dev ifb4wan root handle 8003: cake bandwidth 11000kbit",
		"tc qdisc add dev wan handle ffff: ingress",
		"tc filter add dev wan parent ffff: protocol all pref 10 u32 classid 1:1 match u32 0 0 at 0 action mirred egress redirect dev ifb4wan",
	} {
		if _, errOut, err := k.Run(context.Background(), strings.Fields(c), nil); err != nil {
			t.Fatalf("%s: %s", c, errOut)
		}
	}
	k.Ran = nil
}

// begin applies and commits a plan.
func begin(t *rapid.T, e *apply.Engine, p plan.Plan) {
	tr, err := e.Begin(context.Background(), p, apply.Options{Confirm: time.Minute})
	if err != nil {
		t.Fatalf("apply: %v", err)
	}
	defer tr.Close()
	if err := tr.Commit(); err != nil {
		t.Fatal(err)
	}
}

// TestLaws: applying B after A equals applying B; applying twice equals once;
// revert restores the origin.
func TestLaws(t *testing.T) {
	check(t, 40, func(t *rapid.T) {
		k, direct := linuxfake.New(), linuxfake.New()
		maybeForeign(t, k)
		start := k.Text()
		e, d := fakeEngine(t, k), fakeEngine(t, direct)
		defer os.RemoveAll(e.Dir)
		defer os.RemoveAll(d.Dir)
		foreign := start != direct.Text()
		a, b := anyPlan(t, "A"), anyPlan(t, "B")
		begin(t, e, a)
		begin(t, e, b)
		k.Ran = nil
		begin(t, e, b)
		if len(k.Ran) > 0 {
			t.Fatalf("applied twice, it ran %q", k.Ran)
		}
		if !foreign {
			begin(t, d, b)
			if got, want := k.Text(), direct.Text(); got != want {
				t.Fatalf("B after A is not B alone:\n%s\nalone:\n%s", got, want)
			}
		}
		if _, _, err := e.Revert(context.Background(), apply.Journal{WAN: "wan"}); err != nil {
			t.Fatal(err)
		}
		if k.Text() != start {
			t.Fatalf("reverted, but it is not as before:\n%s\nbefore:\n%s", k.Text(), start)
		}
	})
}

// TestFailureEverywhere lets each command in turn fail, without and with
// effect, and lets commands of the undo fail too. The old state must return
// every time.
func TestFailureEverywhere(t *testing.T) {
	check(t, 40, func(t *rapid.T) {
		k := linuxfake.New()
		maybeForeign(t, k)
		start := k.Text()
		e := fakeEngine(t, k)
		defer os.RemoveAll(e.Dir)
		p := anyPlan(t, "plan")
		undoFails := rapid.IntRange(0, 3).Draw(t, "failures of the undo")
		for n := 1; ; n++ {
			count := 0
			k.Fail = func([]string) (bool, bool) {
				count++
				inUndo := count > n && count <= n+undoFails
				return count == n || inUndo, n%2 == 0
			}
			tr, err := e.Begin(context.Background(), p, apply.Options{Confirm: time.Minute})
			k.Fail = nil
			if err == nil {
				tr.Close()
				return // n is beyond the last command
			}
			if count < n {
				t.Fatalf("no command failed, and yet: %v", err)
			}
			var undo *apply.UndoError
			if errors.As(err, &undo) { // three attempts were not enough: the next command continues
				if _, _, err := e.Revert(context.Background(), apply.Journal{WAN: "wan"}); err != nil {
					t.Fatalf("revert after a failed undo: %v", err)
				}
			}
			if k.Text() != start {
				t.Fatalf("command %d failed (%v), and this is not the old state:\n%s\nbefore:\n%s", n, err, k.Text(), start)
			}
			if _, err := os.Stat(e.JournalPath("wan")); err == nil {
				t.Fatalf("command %d failed, and the journal is still there", n)
			}
		}
	})
}

// dies is a Runner whose process is killed after the nth changing command.
type dies struct {
	*linuxfake.Kernel
	left int
}

var errDead = errors.New("the process is dead")

func (d *dies) Run(ctx context.Context, argv []string, stdin []byte) ([]byte, []byte, error) {
	if d.left <= 0 {
		return nil, nil, errDead
	}
	before := len(d.Ran)
	out, errOut, err := d.Kernel.Run(ctx, argv, stdin)
	if len(d.Ran) > before {
		d.left--
	}
	return out, errOut, err
}

// TestRecovery: a process and its watchdog die after any command. The next
// command finds the journal and first undoes the change.
func TestRecovery(t *testing.T) {
	check(t, 40, func(t *rapid.T) {
		k := linuxfake.New()
		maybeForeign(t, k)
		start := k.Text()
		e := fakeEngine(t, k)
		defer os.RemoveAll(e.Dir)
		d := &dies{k, rapid.IntRange(1, 12).Draw(t, "dies after")}
		dead := *e
		dead.Runner, dead.Backend = d, &linux.Backend{Runner: d, Replace: true}
		p := anyPlan(t, "plan")
		tr, err := dead.Begin(context.Background(), p, apply.Options{Confirm: time.Minute})
		if tr != nil {
			tr.Close()
		}
		if _, _, err := e.Revert(context.Background(), apply.Journal{WAN: "wan"}); err != nil {
			t.Fatal(err)
		}
		if k.Text() != start {
			t.Fatalf("died (%v), recovered, and this is not the old state:\n%s\nbefore:\n%s", err, k.Text(), start)
		}
	})
}

// TestBusyAndConfirm: only one transaction at a time is possible, and confirm
// ends it.
func TestBusyAndConfirm(t *testing.T) {
	k := linuxfake.New()
	e := fakeEngine(t, k)
	defer os.RemoveAll(e.Dir)
	p, err := plan.Make(plan.Line{}, plan.Capabilities{Language: linux.Language(), WAN: "wan", LAN: "lan", IFB: true},
		plan.Preferences{Down: plan.RatePreference{Rate: 20 * unit.MbitPerSecond}, Up: plan.RatePreference{Rate: 4 * unit.MbitPerSecond}})
	if err != nil {
		t.Fatal(err)
	}
	tr, err := e.Begin(t.Context(), p, apply.Options{Confirm: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	var busy *apply.BusyError
	if _, err := e.Begin(t.Context(), p, apply.Options{Confirm: time.Minute}); !errors.As(err, &busy) {
		t.Fatalf("a second transaction: %v", err)
	}
	tr.Close()
	j, err := e.Confirm(t.Context(), "wan", nil)
	if err != nil || j.Plan.UpBps != p.UpBps {
		t.Fatalf("confirm: %v %+v", err, j)
	}
	if _, err := e.Confirm(t.Context(), "wan", nil); err == nil {
		t.Error("a second confirm has nothing to confirm")
	}
	rec, err := e.Record("wan")
	if err != nil || rec == nil || !slices.Contains(e.WANs(), "wan") {
		t.Fatalf("record: %v %v", rec, err)
	}
	for _, bad := range []string{"", "..", "a/b", ".x"} {
		q := p
		q.WAN = bad
		if _, err := e.Begin(t.Context(), q, apply.Options{Confirm: time.Minute}); err == nil {
			t.Errorf("WAN %q was accepted", bad)
		}
	}
}

// TestForeignAndMissing: an obstacle is reported as a typed error, and nothing
// is run.
func TestForeignAndMissing(t *testing.T) {
	p, err := plan.Make(plan.Line{}, plan.Capabilities{Language: linux.Language(), WAN: "wan", LAN: "lan", IFB: true},
		plan.Preferences{Down: plan.RatePreference{Rate: 20 * unit.MbitPerSecond}, Up: plan.RatePreference{Rate: 4 * unit.MbitPerSecond}})
	if err != nil {
		t.Fatal(err)
	}
	for _, missing := range []string{"cake", "ifb", "ingress", "mirred"} {
		k := linuxfake.New()
		k.Missing = []string{missing}
		e := fakeEngine(t, k)
		var pre *platform.PreconditionError
		if _, err := e.Begin(t.Context(), p, apply.Options{Confirm: time.Minute}); !errors.As(err, &pre) || !strings.Contains(pre.Error(), "modprobe") {
			t.Errorf("without %s: %v", missing, err)
		}
		if len(k.Ran) > 0 {
			t.Errorf("without %s it ran %q", missing, k.Ran)
		}
		os.RemoveAll(e.Dir)
	}
	k := linuxfake.New()
	if _, _, err := k.Run(t.Context(), strings.Fields("tc qdisc add dev wan root handle 8001: tbf rate 1000kbit burst 3000 limit 30000"), nil); err != nil {
		t.Fatal(err)
	}
	k.Ran = nil
	e := fakeEngine(t, k)
	defer os.RemoveAll(e.Dir)
	e.Backend = &linux.Backend{Runner: k}
	var foreign *tc.ForeignError
	if _, err := e.Begin(t.Context(), p, apply.Options{Confirm: time.Minute}); !errors.As(err, &foreign) || foreign.Device != "wan" {
		t.Errorf("a foreign tbf: %v", err)
	}
	if len(k.Ran) > 0 {
		t.Errorf("it ran %q", k.Ran)
	}
}

// flapping is a Runner on whose router the WAN's link goes up and down all the
// time.
type flapping struct {
	*linuxfake.Kernel
	n int
}

func (f *flapping) Run(ctx context.Context, argv []string, stdin []byte) ([]byte, []byte, error) {
	if argv[0] == "cat" && strings.HasSuffix(argv[1], "carrier_changes") {
		f.n++
		return []byte(strconv.Itoa(f.n)), nil, nil
	}
	return f.Kernel.Run(ctx, argv, stdin)
}

// TestInterfaceInTheWay: an interface that is absent, down or flapping is an error, and
// nothing is changed.
func TestInterfaceInTheWay(t *testing.T) {
	p, err := plan.Make(plan.Line{}, plan.Capabilities{Language: linux.Language(), WAN: "wan", LAN: "lan", IFB: true},
		plan.Preferences{Down: plan.RatePreference{Rate: 20 * unit.MbitPerSecond}, Up: plan.RatePreference{Rate: 4 * unit.MbitPerSecond}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		says  string
		spoil func(k *linuxfake.Kernel) platform.Runner
	}{
		{"no such interface; name one of lan", func(k *linuxfake.Kernel) platform.Runner { k.Devices = slices.Delete(k.Devices, 1, 2); return k }},
		{"ip link set dev wan up", func(k *linuxfake.Kernel) platform.Runner { k.Devices[1].Up = false; return k }},
		{"steady", func(k *linuxfake.Kernel) platform.Runner { return &flapping{Kernel: k} }},
	} {
		k := linuxfake.New()
		r := c.spoil(k)
		start := k.Text()
		e := fakeEngine(t, k)
		e.Runner, e.Backend = r, &linux.Backend{Runner: r}
		if _, err := e.Begin(t.Context(), p, apply.Options{Confirm: time.Minute}); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("it says %v, without %q", err, c.says)
		}
		if k.Text() != start {
			t.Errorf("%s: something was changed", c.says)
		}
		os.RemoveAll(e.Dir)
	}
}

// TestRetuneAndExtend: rates change in place; a plan with other devices is
// refused; a failing retune undoes the whole transaction.
func TestRetuneAndExtend(t *testing.T) {
	k := linuxfake.New()
	start := k.Text()
	e := fakeEngine(t, k)
	defer os.RemoveAll(e.Dir)
	p, err := plan.Make(plan.Line{}, plan.Capabilities{Language: linux.Language(), WAN: "wan", LAN: "lan", IFB: true},
		plan.Preferences{AQM: plan.FQCoDel, Down: plan.RatePreference{Rate: 20 * unit.MbitPerSecond}, Up: plan.RatePreference{Rate: 14 * unit.MbitPerSecond}})
	if err != nil {
		t.Fatal(err)
	}
	tr, err := e.Begin(t.Context(), p, apply.Options{Confirm: time.Minute, Hold: true})
	if err != nil {
		t.Fatal(err)
	}
	k.Ran = nil
	if err := tr.Retune(t.Context(), p.WithRates(21*unit.MbitPerSecond, 14*unit.MbitPerSecond)); err != nil {
		t.Fatal(err)
	}
	for _, c := range k.Ran {
		if !strings.Contains(c, " change ") {
			t.Errorf("a retune ran %q", c)
		}
	}
	if err := tr.Extend(time.Hour); err != nil || tr.Left() < 59*time.Minute {
		t.Errorf("extend: %v, %s left", err, tr.Left())
	}
	calls := 0
	k.Fail = func([]string) (bool, bool) { calls++; return calls == 2, false }
	if err := tr.Retune(t.Context(), p.WithRates(22*unit.MbitPerSecond, 15*unit.MbitPerSecond)); err == nil {
		t.Error("a failing command was not noticed")
	}
	if k.Text() != start {
		t.Errorf("the transaction was not taken back:\n%s", k.Text())
	}
	if err := tr.Commit(); err == nil {
		t.Error("an undone transaction was committed")
	}
}

// TestRetuneBeyond: a plan for devices that are not in the snapshot is refused,
// and the transaction then leaves neither shaping nor a lock.
func TestRetuneBeyond(t *testing.T) {
	k := linuxfake.New()
	start := k.Text()
	e := fakeEngine(t, k)
	defer os.RemoveAll(e.Dir)
	p := smallPlan(t)
	tr, err := e.Begin(t.Context(), p, apply.Options{Confirm: time.Minute, Hold: true})
	if err != nil {
		t.Fatal(err)
	}
	other := p
	other.WAN = "lan2"
	if err := tr.Retune(t.Context(), other); err == nil || !strings.Contains(err.Error(), "lan2") {
		t.Errorf("another device: %v", err)
	}
	if k.Text() != start {
		t.Errorf("the transaction was not taken back:\n%s", k.Text())
	}
	again, err := e.Begin(t.Context(), p, apply.Options{Confirm: time.Minute})
	if err != nil {
		t.Fatalf("the lock is not free: %v", err)
	}
	again.Close()
}

// TestLease: while its owner runs a transaction has no deadline, however often
// it is retuned. After the owner has ended, the next command undoes the change.
func TestLease(t *testing.T) {
	k := linuxfake.New()
	start := k.Text()
	e := fakeEngine(t, k)
	defer os.RemoveAll(e.Dir)
	now := time.Hour
	e.Uptime = func() time.Duration { return now }
	p := smallPlan(t)
	tr, err := e.Begin(t.Context(), p, apply.Options{Confirm: time.Minute, Hold: true, Lease: true})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		now += 1000 * time.Hour
		if err := tr.Retune(t.Context(), p.WithRates(p.DownBps, p.UpBps-unit.MbitPerSecond)); err != nil {
			t.Fatal(err)
		}
		now += 1000 * time.Hour
		if err := tr.Retune(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	shaped := k.Text()
	if _, err := e.Begin(t.Context(), p, apply.Options{Confirm: time.Minute}); err == nil || k.Text() != shaped {
		t.Errorf("while the owner lives: %v", err)
	}
	tr.Close() // as when its process dies
	if _, done, err := e.Revert(t.Context(), apply.Journal{WAN: p.WAN}); err != nil || !done || k.Text() != start {
		t.Errorf("once it is gone: %v, %v\n%s", done, err, k.Text())
	}
}
