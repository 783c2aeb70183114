package fake_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/lang/pf"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform/all"
	"unbloat/internal/cure/platform/openbsd"
	"unbloat/testkit/conform"
	"unbloat/testkit/fake"
	"unbloat/testkit/pfctl"
)

// grammar returns the pfctl version for a plan: with ALTQ the oldest one that
// accepts it.
func grammar(p plan.Plan) pfctl.Grammar {
	switch {
	case p.Platform == openbsd.Name:
		return pfctl.Today
	case p.Classes != nil:
		return pfctl.ALTQWithMatch
	}
	return pfctl.ALTQ
}

// router returns a router with the plan's devices.
func router(p plan.Plan) *fake.OpenBSD {
	r := fake.NewOpenBSD(grammar(p))
	for _, s := range []*plan.Shaper{p.Up, p.Down} {
		if s != nil && !slices.ContainsFunc(r.Pfctl.Interfaces, func(i pfctl.Interface) bool { return i.Name == s.Device }) {
			r.Pfctl.Interfaces = append(r.Pfctl.Interfaces, pfctl.Interface{Name: s.Device, Speed: 1e9, MTU: 1500})
		}
	}
	return r
}

// TestMatrix: every plan of the matrix is taken by pfctl without a word, as text
// to paste, and what it then shows is what was meant.
func TestMatrixOpenBSD(t *testing.T) {
	for _, platform := range []string{openbsd.Name, openbsd.NameAltq} {
		m, err := conform.Matrix(platform)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range m {
			r := router(c.Plan)
			text := pasted(t, c.Plan)
			r.Files["pf.conf"] = text
			if out, errs, exit := r.Pfctl.Run([]string{"-nvf", "pf.conf"}); exit != 0 || errs != "" || out == "" {
				t.Errorf("%s, %s: exit %d\n%s\n%s", platform, c.Name, exit, errs, text)
				continue
			}
			if out, errs, exit := r.Pfctl.Run([]string{"-f", "pf.conf"}); exit != 0 || out+errs != "" {
				t.Errorf("%s, %s: loaded: exit %d\n%s%s", platform, c.Name, exit, out, errs)
			}
			shown, _, _ := r.Pfctl.Run([]string{"-vsq"})
			if d := cmp.Diff(meant(t, c.Plan), read(t, platform, shown)); d != "" {
				t.Errorf("%s, %s: -meant +shown\n%s", platform, c.Name, d)
			}
		}
		t.Logf("%s: %d plans", platform, len(m))
	}
}

// pasted returns the text that a person pastes into pf.conf.
func pasted(t *testing.T, p plan.Plan) string {
	t.Helper()
	text, err := all.Text(p)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "pfctl ") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// meant returns the output that our own parsers expect of pfctl for a plan.
func meant(t *testing.T, p plan.Plan) []string {
	t.Helper()
	if p.Platform == openbsd.NameAltq {
		rs, _, err := pf.RenderALTQ(p)
		if err != nil {
			t.Fatal(err)
		}
		return slices.Sorted(slices.Values(rs.Shown()))
	}
	rs, _, err := pf.Render(p)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, q := range rs.Queues {
		out = append(out, q.String())
	}
	return slices.Sorted(slices.Values(out))
}

func read(t *testing.T, platform, shown string) []string {
	t.Helper()
	if platform == openbsd.NameAltq {
		return slices.Sorted(slices.Values(pf.ShownALTQ(shown)))
	}
	queues, err := pf.ParseShown(shown)
	if err != nil {
		t.Error(err)
	}
	var out []string
	for _, q := range queues {
		out = append(out, q.String())
	}
	return slices.Sorted(slices.Values(out))
}

// TestFromEndToEnd: plans of each kind are applied, read back, shown by status,
// applied again without a command, and undone to the byte.
func TestFromEndToEnd(t *testing.T) {
	for _, platform := range []string{openbsd.Name, openbsd.NameAltq} {
		m, err := conform.Matrix(platform)
		if err != nil {
			t.Fatal(err)
		}
		tried := map[string]bool{}
		for i, c := range m {
			parts := strings.SplitN(c.Name, "/", 2)
			if tried[parts[1]] || i%2 != 0 { // each style with each kind of classes on each interface, at some rate
				continue
			}
			tried[parts[1]] = true
			r := router(c.Plan)
			b := &openbsd.Backend{Runner: r, Altq: platform == openbsd.NameAltq}
			e := &apply.Engine{Backend: b, Runner: r, Dir: t.TempDir(), Watchdog: nobody{}}
			start := r.Text()
			tr, err := e.Begin(t.Context(), c.Plan, apply.Options{Confirm: time.Minute})
			if err != nil {
				t.Errorf("%s, %s: %v", platform, c.Name, err)
				continue
			}
			shapers, err := b.Shapers(t.Context(), c.Plan.WAN)
			if err != nil || len(shapers) == 0 {
				t.Errorf("%s, %s: status: %v, %d shapers", platform, c.Name, err, len(shapers))
			}
			for _, s := range shapers {
				if !s.Ours {
					t.Errorf("%s, %s: not ours: %s", platform, c.Name, s.Says)
				}
			}
			if err := tr.Revert(t.Context()); err != nil || r.Text() != start {
				t.Errorf("%s, %s: undone: %v", platform, c.Name, err)
			}
			tr.Close()
		}
		if len(tried) < 12 {
			t.Errorf("%s: only %d kinds of plans", platform, len(tried))
		}
	}
}

// nobody is a watchdog that never acts.
type nobody struct{}

func (nobody) Arm(context.Context, *apply.Journal) error   { return nil }
func (nobody) Renew(context.Context, *apply.Journal) error { return nil }
func (nobody) Alive(context.Context, *apply.Journal) bool  { return true }
func (nobody) Close(context.Context, *apply.Journal) error { return nil }
