package linux_test

import (
	"strings"
	"testing"

	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/linux"
	"unbloat/testkit/linuxfake"
	"unbloat/unit"
)

// TestReplacedRule: a rule replaced, moved or inserted by hand is found in the
// readback, not by counting rules, and applying the plan again repairs it.
func TestReplacedRule(t *testing.T) {
	k, ctx := linuxfake.New(), t.Context()
	p, b := ruledPlan(t), &linux.Backend{Runner: k}
	observe := func() platform.State {
		t.Helper()
		s, err := b.Observe(ctx, p, nil)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	run := func(steps []platform.Step) {
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
	for _, x := range []struct{ what, old, new string }{
		{"replaced", calm, drops},
		{"moved", calm + calm6, calm6 + calm},
		{"a set", "\t\ttimeout 1h\n", "\t\ttimeout 2h\n"},
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
	without, err := b.Baseline(ctx, observe(), before)
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

// TestUnknownForm: with an nft(8) that lists rules in an unknown form the plan
// is applied and read back equal, a second time there is nothing to do, and
// status reports nothing. A change by hand is still found.
func TestUnknownForm(t *testing.T) {
	k, b, p := unknownForm(t)
	ctx := t.Context()
	want := bring(t, k, b, p)
	if lost := linux.LostClasses(ctx, k, p); lost != nil {
		t.Errorf("status says %q", lost)
	}
	now, err := b.Observe(ctx, p, nil)
	if err != nil {
		t.Fatal(err)
	}
	if steps, diffs, err := b.Compare(now, want); err != nil || steps != nil || diffs != nil {
		t.Errorf("read back: %v, %q, %v", steps, diffs, err)
	}
	again, err := b.Desire(ctx, p, now, now)
	if err != nil {
		t.Fatal(err)
	}
	if steps, diffs, err := b.Compare(now, again); err != nil || steps != nil || diffs != nil {
		t.Errorf("once more: %v, %q, %v", steps, diffs, err)
	}
	if diffs, err := b.Drift(p, now, want); err != nil || diffs != nil {
		t.Errorf("drifted: %q, %v", diffs, err)
	}
	for _, x := range [][2]string{
		{calm, drops},
		{calm, strings.Replace(calm, "19302", "19303", 1)},
		{calm, ""},
		{"\t\ttimeout 1h\n", "\t\ttimeout 2h\n"},
	} {
		kept := k.Table
		if k.Table = strings.Replace(k.Table, x[0], x[1], 1); k.Table == kept {
			t.Fatalf("there is no %q", x[0])
		}
		if lost := linux.LostClasses(ctx, k, p); len(lost) != 1 {
			t.Errorf("%q in place of %q: status says %q", x[1], x[0], lost)
		}
		if now, err = b.Observe(ctx, p, nil); err != nil {
			t.Fatal(err)
		}
		if steps, diffs, err := b.Compare(now, want); err != nil || len(steps) != 1 || len(diffs) != 1 {
			t.Errorf("%q in place of %q: %v, %q, %v", x[1], x[0], steps, diffs, err)
		}
		k.Table = kept
	}
}

// TestUnknownFormUntried: the same without scratch namespaces: the readback
// counts as different, and the message says what to do.
func TestUnknownFormUntried(t *testing.T) {
	k, b, p := unknownForm(t)
	k.Missing = append(k.Missing, "unshare")
	want := bring(t, k, b, p)
	now, err := b.Observe(t.Context(), p, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, diffs, err := b.Compare(now, want)
	if err != nil || len(diffs) < 2 || !strings.Contains(diffs[len(diffs)-1], "install unshare") {
		t.Errorf("%q, %v", diffs, err)
	}
	k.Lists = nil
	if now, err = b.Observe(t.Context(), p, nil); err != nil {
		t.Fatal(err)
	}
	if steps, diffs, err := b.Compare(now, want); err != nil || steps != nil || diffs != nil {
		t.Errorf("a known form: %v, %q, %v", steps, diffs, err)
	}
}

// Rules of the tables here, and what they may become.
const (
	calm  = "\t\tmeta nfproto ipv4 meta l4proto udp th dport { 19302-19309 } goto named_voice_voice\n"
	calm6 = "\t\tmeta nfproto ipv6 meta l4proto udp th dport { 19302-19309 } goto named_voice_voice\n"
	drops = "\t\tmeta nfproto ipv4 meta l4proto udp th dport { 19302-19309 } goto named_bulk_bulk\n"
)

// ruledPlan has rules that name traffic.
func ruledPlan(t *testing.T) plan.Plan {
	t.Helper()
	p, err := plan.Make(plan.Line{Down: 30 * unit.MbitPerSecond, Up: 5 * unit.MbitPerSecond}, plan.Capabilities{Language: linux.Language(), WAN: "wan", LAN: "lan", IFB: true},
		plan.Preferences{Classes: plan.ClassPreferences{Rules: []plan.Rule{{Class: plan.Voice, Protocol: "udp", FarPort: []plan.PortRange{{From: 19302, To: 19309}}},
			{Class: plan.Bulk, Home: []string{"02:00:00:00:00:01"}, From: unit.MB}}}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// unknownForm returns a router whose nft(8) lists the bytes of a connection under
// another name.
func unknownForm(t *testing.T) (*linuxfake.Kernel, *linux.Backend, plan.Plan) {
	t.Helper()
	p := ruledPlan(t)
	k := linuxfake.New()
	k.Lists = func(table string) string { return strings.ReplaceAll(table, "ct bytes", "ct octets") }
	return k, &linux.Backend{Runner: k}, p
}

// bring applies a plan and returns the state that it asked for.
func bring(t *testing.T, k *linuxfake.Kernel, b *linux.Backend, p plan.Plan) platform.State {
	t.Helper()
	before, err := b.Observe(t.Context(), p, nil)
	if err != nil {
		t.Fatal(err)
	}
	want, err := b.Desire(t.Context(), p, before, before)
	if err != nil {
		t.Fatal(err)
	}
	steps, _, err := b.Compare(before, want)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range steps {
		if _, said, err := k.Run(t.Context(), s.Argv, []byte(s.Stdin)); err != nil {
			t.Fatalf("%s: %s", s, said)
		}
	}
	return want
}
