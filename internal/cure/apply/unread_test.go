package apply_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/linux"
	"unbloat/testkit/linuxfake"
	"unbloat/unit"
)

// TestOldOutput: with iproute2 5.10, which prints u32's options as text, and beside a
// tunnel whose options are no JSON, a plan is applied, read back, and taken away.
func TestOldOutput(t *testing.T) {
	k := linuxfake.New()
	k.Old = true
	k.Devices = append(k.Devices, &linuxfake.Device{Name: "er", Kind: "erspan", Up: true, MTU: 1464})
	start := k.Text()
	e := fakeEngine(t, k)
	defer os.RemoveAll(e.Dir)
	p, err := plan.Make(plan.Line{}, plan.Capabilities{Language: linux.Language(), WAN: "wan", LAN: "lan", IFB: true},
		plan.Preferences{AQM: plan.CAKE, Down: plan.RatePreference{Rate: 20 * unit.MbitPerSecond}, Up: plan.RatePreference{Rate: 4 * unit.MbitPerSecond}, Classes: plan.ClassPreferences{Use: plan.ClassesOn}})
	if err != nil {
		t.Fatal(err)
	}
	tr, err := e.Begin(t.Context(), p, apply.Options{Confirm: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	if err := tr.Commit(); err != nil {
		t.Fatal(err)
	}
	if diffs, err := e.Drift(t.Context(), "wan"); err != nil || diffs != nil {
		t.Errorf("%q, %v", diffs, err)
	}
	shapers, err := linux.Shapers(t.Context(), k)
	if i := slices.IndexFunc(shapers, func(s platform.Shaped) bool { return s.Device == "wan" }); err != nil || i < 0 || !shapers[i].OwnIngress {
		t.Errorf("%+v, %v", shapers, err)
	}
	tr.Close()
	if _, done, err := e.Revert(t.Context(), apply.Journal{WAN: "wan"}); err != nil || !done || k.Text() != start {
		t.Errorf("%v: reverted, it is\n%s\nbefore:\n%s", err, k.Text(), start)
	}
}

// blind is a Runner on which, once something was changed, reading fails: for ever, or
// only as long as packets are redirected.
type blind struct {
	*linuxfake.Kernel
	forEver bool
	cut     bool // tc prints half of what it should, and says that all is well
	over    bool // it works again
}

func (b *blind) Run(ctx context.Context, argv []string, stdin []byte) ([]byte, []byte, error) {
	out, said, err := b.Kernel.Run(ctx, argv, stdin)
	redirects := strings.Contains(b.Text(), "dev:ifb4wan")
	reads := !linuxfake.Changes(argv) && (argv[0] == "tc" || argv[0] == "ip")
	if b.over || !reads || len(b.Ran) == 0 || !redirects && !b.forEver {
		return out, said, err
	}
	if b.cut {
		return out[:len(out)/2], said, err
	}
	return nil, []byte("Dump terminated"), errors.New("exit status 1")
}

// TestUndoWithoutReading: what was changed can't be read back, so it is undone, and that
// takes no reading: the router is as before, and it is said if nobody could see that.
func TestUndoWithoutReading(t *testing.T) {
	for _, of := range []blind{{}, {cut: true}, {forEver: true}, {forEver: true, cut: true}} {
		k := linuxfake.New()
		r := &of
		r.Kernel = k
		start := k.Text()
		e := fakeEngine(t, k)
		defer os.RemoveAll(e.Dir)
		e.Runner, e.Backend = r, &linux.Backend{Runner: r}
		_, err := e.Begin(t.Context(), smallPlan(t), apply.Options{Confirm: time.Minute})
		var undo *apply.UndoError
		if err == nil || k.Text() != start || errors.As(err, &undo) != of.forEver {
			t.Fatalf("for ever %v, cut %v: %v, and it is\n%s", of.forEver, of.cut, err, k.Text())
		}
		j, _ := e.Pending("wan")
		if (j != nil) != of.forEver || of.forEver && !strings.Contains(err.Error(), "whether it is restored can't be read") {
			t.Errorf("for ever %v: journal %v, %v", of.forEver, j != nil, err)
		}
		r.over = true
		if _, _, err := e.Revert(t.Context(), apply.Journal{WAN: "wan"}); err != nil || k.Text() != start {
			t.Errorf("for ever %v: once it can be read again: %v", of.forEver, err)
		}
	}
}

// TestRevertWithoutReading: the same of what was kept. Somebody else's queues that the
// plan left alone are left alone then too.
func TestRevertWithoutReading(t *testing.T) {
	k := linuxfake.New()
	r := &blind{Kernel: k, over: true, forEver: true}
	for _, c := range []string{"ip link add name ifb0 type ifb", "tc qdisc add dev wan handle ffff: ingress",
		"tc filter add dev wan parent ffff: protocol all pref 10 u32 classid 1:1 match u32 0 0 at 0 action mirred egress redirect dev ifb0"} {
		if _, said, err := k.Run(t.Context(), strings.Fields(c), nil); err != nil {
			t.Fatalf("%s: %s", c, said)
		}
	}
	start := k.Text()
	e := fakeEngine(t, k)
	defer os.RemoveAll(e.Dir)
	e.Runner, e.Backend = r, &linux.Backend{Runner: r}
	p, err := plan.Make(plan.Line{}, plan.Capabilities{Language: linux.Language(), WAN: "wan", LAN: "lan", IFB: true},
		plan.Preferences{AQM: plan.CAKE, Only: plan.DirectionUp, Up: plan.RatePreference{Rate: 4 * unit.MbitPerSecond}})
	if err != nil {
		t.Fatal(err)
	}
	tr, err := e.Begin(t.Context(), p, apply.Options{Confirm: time.Minute})
	if err == nil {
		err = tr.Commit()
		tr.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	r.over = false
	k.Ran = []string{"once"}
	_, _, err = e.Revert(t.Context(), apply.Journal{WAN: "wan"})
	var undo *apply.UndoError
	if !errors.As(err, &undo) || !undo.Unread || k.Text() != start {
		t.Errorf("%v: it is\n%s\nbefore:\n%s", err, k.Text(), start)
	}
	if ran := strings.Join(k.Ran, "\n"); strings.Contains(ran, "ingress") || strings.Contains(ran, "ifb0") {
		t.Errorf("it ran\n%s", ran)
	}
	r.over = true
	if _, _, err := e.Revert(t.Context(), apply.Journal{WAN: "wan"}); err != nil || k.Text() != start {
		t.Errorf("once it can be read again: %v", err)
	}
}

// odd is a Runner whose tc(8) prints the actions of filters in a form that nobody knows.
type odd struct{ *linuxfake.Kernel }

func (o *odd) Run(ctx context.Context, argv []string, stdin []byte) ([]byte, []byte, error) {
	out, said, err := o.Kernel.Run(ctx, argv, stdin)
	return bytes.ReplaceAll(out, []byte(`"mirred_action":"redirect","direction":"egress"`), []byte(`egress redirect`)), said, err
}

// TestUnreadBefore: a tc(8) whose output of our own queues can't be read is found before
// anything is changed. Such a filter of somebody else stops nothing that leaves it alone.
func TestUnreadBefore(t *testing.T) {
	k := linuxfake.New()
	e := fakeEngine(t, k)
	defer os.RemoveAll(e.Dir)
	r := &odd{k}
	e.Runner, e.Backend = r, &linux.Backend{Runner: r}
	p := smallPlan(t)
	_, err := e.Begin(t.Context(), p, apply.Options{Confirm: time.Minute})
	var pre *platform.PreconditionError
	if !errors.As(err, &pre) || !strings.Contains(err.Error(), "can't be read") || len(k.Ran) > 0 {
		t.Errorf("%v, and it ran %q", err, k.Ran)
	}
	if _, _, err := k.Run(t.Context(), strings.Fields("tc qdisc add dev lan handle ffff: ingress"), nil); err != nil {
		t.Fatal(err)
	}
	if _, said, err := k.Run(t.Context(), strings.Fields("tc filter add dev lan parent ffff: protocol all pref 10 u32 match u32 0 0 at 0 action mirred egress redirect dev wan"), nil); err != nil {
		t.Fatalf("%s", said)
	}
	start := k.Text()
	p, err = plan.Make(plan.Line{}, plan.Capabilities{Language: linux.Language(), WAN: "wan", LAN: "lan"},
		plan.Preferences{AQM: plan.CAKE, Side: plan.SideLAN, Down: plan.RatePreference{Rate: 20 * unit.MbitPerSecond}, Up: plan.RatePreference{Rate: 4 * unit.MbitPerSecond}})
	if err != nil {
		t.Fatal(err)
	}
	tr, err := e.Begin(t.Context(), p, apply.Options{Confirm: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	if err := tr.Revert(t.Context()); err != nil || k.Text() != start {
		t.Errorf("%v: reverted, it is\n%s\nbefore:\n%s", err, k.Text(), start)
	}
}
