package linux_test

import (
	"strings"
	"testing"

	"unbloat/internal/host"
	"unbloat/internal/host/linux"
	"unbloat/internal/host/linux/fakekernel"
	"unbloat/internal/plan"
	"unbloat/unit"
)

// A rule that somebody replaces, moves or puts in changes nothing of how many there
// are, or little; what is read back tells it, and the plan applied again mends it.
func TestReplacedRule(t *testing.T) {
	k, ctx := fakekernel.New(), t.Context()
	p, err := plan.Make(plan.Line{Down: 30 * unit.MbitPerSecond, Up: 5 * unit.MbitPerSecond}, plan.Facts{Language: linux.Language(), WAN: "wan", LAN: "lan", IFB: true}, plan.Wishes{})
	if err != nil {
		t.Fatal(err)
	}
	b := &linux.Backend{Runner: k}
	observe := func() host.State {
		t.Helper()
		s, err := b.Observe(ctx, p, nil)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	run := func(steps []host.Step) {
		t.Helper()
		for _, s := range steps {
			if _, said, err := k.Run(ctx, s.Argv, []byte(s.Stdin)); err != nil {
				t.Fatalf("%s: %s", s, said)
			}
		}
	}
	before := observe()
	want, err := b.Desire(ctx, p, before, before)
	if err != nil {
		t.Fatal(err)
	}
	steps, _, err := b.Compare(before, want)
	if err != nil {
		t.Fatal(err)
	}
	run(steps)
	const calm, drops = "\t\tmeta length <= 511 goto up_voice\n", "\t\tmeta length <= 511 goto up_bulk\n"
	for _, x := range []struct{ what, old, new string }{
		{"replaced", calm, drops},
		{"moved", "\t\tmeta l4proto tcp goto up_interactive\n" + calm, calm + "\t\tmeta l4proto tcp goto up_interactive\n"},
		{"a limit", "\t\trate over 1052/second burst 1052 packets\n", "\t\trate over 1051/second burst 1052 packets\n"},
		{"a set", "\t\ttimeout 20s\n", "\t\ttimeout 21s\n"},
	} {
		if !strings.Contains(k.Table, x.old) {
			t.Fatalf("%s: there is no %q", x.what, x.old)
		}
		k.Table = strings.Replace(k.Table, x.old, x.new, 1)
		if lost := linux.LostClasses(ctx, k, p); len(lost) != 1 {
			t.Errorf("%s: status says %q", x.what, lost)
		}
		steps, diffs, err := b.Compare(observe(), want)
		if err != nil || len(diffs) != 1 || len(steps) != 1 {
			t.Errorf("%s: read back: %q, %v, %v", x.what, diffs, steps, err)
		}
		run(steps)
		if lost := linux.LostClasses(ctx, k, p); lost != nil {
			t.Errorf("%s: mended, and yet %q", x.what, lost)
		}
	}
	k.Table = strings.Replace(k.Table, calm, drops, 1)
	without, err := b.Undesire(ctx, observe(), before)
	if err != nil {
		t.Fatal(err)
	}
	steps, _, err = b.Compare(observe(), without)
	if err != nil {
		t.Fatal(err)
	}
	if run(steps); k.Table != "" {
		t.Error("reverted, and the table is still there")
	}
}
