package linux_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
	"pgregory.net/rapid"

	"unbloat/internal/cure/lang/tc"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform/linux"
	"unbloat/testkit/linuxfake"
	"unbloat/unit"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// An input is the first part of a golden file.
type input struct {
	Line        plan.Line        `json:"line"`
	Preferences plan.Preferences `json:"wishes"`
}

// run runs commands on the fake kernel and returns them as text.
func run(t testing.TB, k *linuxfake.Kernel, cs []tc.Command) string {
	t.Helper()
	var out strings.Builder
	for _, c := range cs {
		out.WriteString(c.String() + "\n")
		if _, errOut, err := k.Run(t.Context(), c, nil); err != nil {
			t.Fatalf("%s: %s", c, errOut)
		}
	}
	return out.String()
}

// look observes the devices of p.
func look(t testing.TB, k *linuxfake.Kernel, p plan.Plan) tc.State {
	t.Helper()
	b := linux.Backend{Runner: k}
	raw, err := b.Observe(t.Context(), p, nil)
	if err != nil {
		t.Fatal(err)
	}
	var s tc.State
	if err := json.Unmarshal(raw, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestGolden compares capabilities and preferences, plan, commands, readback
// and revert with golden files. TestParseOfRender does the same for random
// plans.
func TestGolden(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatal("no golden files", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			ar, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var in input
			dec := json.NewDecoder(bytes.NewReader(ar.Comment))
			dec.DisallowUnknownFields()
			if err := dec.Decode(&in); err != nil {
				t.Fatal(err)
			}
			k := linuxfake.New()
			facts, err := linux.Detect(t.Context(), k, "wan", "lan")
			if err != nil {
				t.Fatal(err)
			}
			p, err := plan.Make(in.Line, facts, in.Preferences)
			if err != nil {
				t.Fatal(err)
			}
			before := look(t, k, p)
			want, err := tc.Desire(p, before, false)
			if err != nil {
				t.Fatal(err)
			}
			p.Basis, p.Reasons = nil, nil
			got := map[string]string{"1 facts.json": text(t, facts), "2 plan.json": text(t, p)}
			got["3 commands"] = run(t, k, tc.Commands(before, want))
			after := look(t, k, p)
			if d := tc.Differences(after, want); d != nil {
				t.Errorf("read back: %q", d)
			}
			got["4 read back"] = k.Text()
			got["5 way back"] = run(t, k, tc.Commands(after, before))
			if d := tc.Differences(look(t, k, p), before); d != nil {
				t.Errorf("back again: %q", d)
			}
			compareGolden(t, path, ar, got)
		})
	}
}

func text(t testing.TB, v any) string {
	t.Helper()
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b) + "\n"
}

func compareGolden(t *testing.T, path string, ar *txtar.Archive, got map[string]string) {
	t.Helper()
	names := make([]string, 0, len(got))
	for n := range got {
		names = append(names, n)
	}
	slices.Sort(names)
	if *update {
		ar.Files = nil
		for _, n := range names {
			ar.Files = append(ar.Files, txtar.File{Name: n, Data: []byte(got[n])})
		}
		if err := os.WriteFile(path, txtar.Format(ar), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	for _, n := range names {
		i := slices.IndexFunc(ar.Files, func(f txtar.File) bool { return f.Name == n })
		if i < 0 || string(ar.Files[i].Data) != got[n] {
			t.Errorf("%s: %s is now\n%s(run with -update if that is right)", path, n, got[n])
		}
	}
}

// TestParseOfRender: after rendering and running any plan the parsed state
// equals the wanted one, and the steps from any plan to any other lead exactly
// there.
func TestParseOfRender(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		k := linuxfake.New()
		for i := range 3 {
			rate := rapid.Int64Range(64_000, 3_000_000_000)
			w := plan.Preferences{
				AQM:   rapid.SampledFrom([]plan.AQM{plan.CAKE, plan.FQCoDel, plan.FIFO}).Draw(rt, "aqm"),
				Side:  rapid.SampledFrom([]plan.Side{plan.SideIFB, plan.SideLAN}).Draw(rt, "side"),
				Style: rapid.SampledFrom([]plan.Style{plan.StyleDefault, plan.StyleArticle}).Draw(rt, "style"),
				Down:  plan.RatePreference{Rate: unit.Rate(rate.Draw(rt, "down"))},
				Up:    plan.RatePreference{Rate: unit.Rate(rate.Draw(rt, "up"))},
			}
			if w.AQM != plan.FIFO {
				w.Interval = time.Duration(rapid.Int64Range(50, 900).Draw(rt, "interval")) * time.Millisecond
			}
			line := plan.Line{LinkLayer: rapid.SampledFrom([]plan.LinkLayer{"", plan.DOCSIS, plan.ATM, plan.PTM}).Draw(rt, "layer")}
			p, err := plan.Make(line, plan.Capabilities{Language: linux.Language(), WAN: "wan", LAN: "lan", IFB: true}, w)
			if err != nil {
				rt.Skip(err)
			}
			now := look(t, k, p)
			want, err := tc.Desire(p, now, false)
			if err != nil {
				rt.Fatal(err)
			}
			run(t, k, tc.Commands(now, want))
			got := look(t, k, p)
			if d := tc.Differences(got, want); d != nil {
				rt.Fatalf("plan %d: %q", i, d)
			}
			if c := tc.Commands(got, want); c != nil {
				rt.Fatalf("plan %d: equal, and yet %q", i, c)
			}
		}
	})
}

// TestKeeper: what --persist writes, that foreign files are kept, and that it
// is removed again.
func TestKeeper(t *testing.T) {
	root := t.TempDir()
	k := linux.Persister{Root: root, Exe: "/usr/bin/unbloat"}
	if err := k.Persist(t.Context(), plan.Plan{WAN: "wan"}); err == nil {
		t.Error("there is no systemd, and yet it kept something")
	}
	dir := filepath.Join(root, "etc/systemd/system")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := k.Persist(t.Context(), plan.Plan{Schema: plan.Schema, WAN: "wan"}); err != nil {
			t.Fatal(err)
		}
	}
	unitFile, err := os.ReadFile(filepath.Join(dir, "unbloat.service"))
	if err != nil || !strings.Contains(string(unitFile), "ExecStart=/usr/bin/unbloat apply --yes --quiet /etc/unbloat/plan.json") || !k.Persists() {
		t.Errorf("the unit is %q, %v", unitFile, err)
	}
	if done, err := k.Forget(t.Context()); !done || err != nil || k.Persists() {
		t.Errorf("forget: %v %v", done, err)
	}
	if done, err := k.Forget(t.Context()); done || err != nil {
		t.Errorf("forget again: %v %v", done, err)
	}
	foreign := filepath.Join(dir, "unbloat.service")
	if err := os.WriteFile(foreign, []byte("[Unit]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := k.Persist(t.Context(), plan.Plan{WAN: "wan"}); err == nil {
		t.Error("somebody else's unit was overwritten")
	}
	if done, _ := k.Forget(t.Context()); done {
		t.Error("somebody else's unit was removed")
	}
}

// TestDetect reads what the kernel really supports, and changes nothing.
func TestDetect(t *testing.T) {
	k := linuxfake.New()
	k.Missing = []string{"cake", "ifb"}
	start := k.Text()
	f, err := linux.Detect(t.Context(), k, "wan", "lan")
	if err != nil {
		t.Fatal(err)
	}
	if f.IFB || slices.Contains(f.AQMs, plan.CAKE) || !slices.Contains(f.AQMs, plan.FQCoDel) || f.MTU != 1500 {
		t.Errorf("%+v", f)
	}
	if k.Text() != start || len(k.Ran) > 0 {
		t.Errorf("detecting changed something: %q", k.Ran)
	}
	if _, err := linux.Detect(t.Context(), k, "", ""); err == nil || !strings.Contains(err.Error(), "--wan") {
		t.Errorf("without a default route: %v", err)
	}
}
