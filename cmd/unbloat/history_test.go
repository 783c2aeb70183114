//go:build !router

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"github.com/spf13/cobra"

	"unbloat/internal/cure/prove"
	"unbloat/internal/cure/tune"
	"unbloat/internal/measure/path"
	"unbloat/internal/measure/verdict"
	"unbloat/internal/show/cli"
	"unbloat/internal/show/store"
)

// commanded runs the program and returns what it printed, errors too, and its exit code.
func commanded(t *testing.T, stdin string, args ...string) (string, int) {
	t.Helper()
	var out bytes.Buffer
	root := newRootCommand()
	root.SetArgs(args)
	root.SetIn(strings.NewReader(stdin))
	root.SetOut(&out)
	root.SetErr(&out)
	err := root.ExecuteContext(t.Context())
	var e *cli.Error
	switch {
	case err == nil:
		return out.String(), cli.Done
	case errors.As(err, &e):
		return out.String() + "unbloat: " + err.Error() + "\n", e.Code
	}
	return out.String() + "unbloat: " + err.Error() + "\n", cli.Failed
}

// testOf returns a result whose upload adds ms of latency.
func testOf(label, at string, ms float64) *verdict.Test {
	phase := func(up, ms float64) *verdict.Phase {
		s := &verdict.Timeline{EndS: 10, BinS: 0.1, TS: []float64{}, RTTMs: []*float64{}, DownMbps: []float64{}, UpMbps: []float64{}}
		for i := range 1000 {
			v := 20 + ms*(1+0.1*math.Sin(float64(i)/30))/1.1
			s.TS = append(s.TS, float64(i)/100)
			s.RTTMs = append(s.RTTMs, &v)
		}
		q := func(base float64) verdict.Quantiles {
			return verdict.Quantiles{Min: base, Mean: base + ms*0.9, P50: base + ms*0.9, P90: base + ms, P95: base + ms, P99: base + ms, Max: base + ms}
		}
		return &verdict.Phase{Seconds: 10, GoodputUpBps: up, Saturated: up > 0, Series: s,
			Latency: verdict.Latency{Sent: 1000, Received: 1000, RTTMs: q(20), IncreaseMs: q(0)}}
	}
	t := &verdict.Test{
		Schema: verdict.TestSchema, Time: at, Label: label, Server: "192.0.2.1:7676", Valid: true, InvalidReasons: []string{},
		Idle: phase(0, 0), Upload: phase(4.7e6-ms*100, ms), Verdict: fmt.Sprintf("The round trip rises by %.0f ms.", ms),
	}
	t.Grade = verdict.Grade(time.Duration(ms * 1e6))
	t.GradeUp = t.Grade
	return t
}

// aPath returns a trace in which the latency begins to rise at the uplink.
func aPath() *path.Result {
	figures := func(p50, p95 float64) *path.Figures {
		return &path.Figures{Sent: 10, Received: 10, LastMs: p50, AvgMs: p50, BestMs: p50, WorstMs: p95, RTTMs: verdict.Quantiles{Min: p50, P50: p50, P95: p95, Max: p95}}
	}
	return &path.Result{
		Schema: path.Schema, Time: "2026-03-01T12:00:00Z", Host: "test.example.net", Address: "192.0.2.1", Method: "icmp", IntervalMs: 1000, Valid: true,
		InvalidReasons: []string{}, Notes: []string{}, Reached: true, HomeHops: 1, Verdict: "Under upload load latency rises by 1200 ms on the router's uplink.",
		Load:   &path.Load{Server: "192.0.2.1:7676", Direction: "up", Flows: 4, GoodputUpBps: 4.7e6},
		Begins: &path.Beginning{Hop: 2, After: 1, Place: path.Uplink, Statistic: "p50", IncreaseMs: 1200},
		Hops: []path.HopFigures{
			{Hop: 1, Address: "192.168.1.1", Idle: figures(1, 1), Loaded: figures(1, 2), Increase: &path.Increase{P50: 0, P95: 1}},
			{Hop: 2, Address: "192.0.2.1", Destination: true, Idle: figures(20, 21), Loaded: figures(1220, 1270), Increase: &path.Increase{P50: 1200, P95: 1250}},
		},
	}
}

// aHistory saves one result of each kind, and returns their ids and the file.
func aHistory(t *testing.T) (file string, ids map[string]string) {
	t.Helper()
	file, ids = filepath.Join(t.TempDir(), "results.db"), map[string]string{}
	before, after := testOf("before", "2026-03-01T10:00:00Z", 1250), testOf("after", "2026-03-01T10:05:00Z", 4)
	bad := testOf("\x1b[31mred", "2026-03-02T10:00:00Z", 9)
	bad.Valid, bad.InvalidReasons = false, []string{"upload: probes left late"}
	proof := &prove.Result{
		Schema: prove.Schema, Time: "2026-03-01T11:00:00Z", Server: "192.0.2.1:7676", WAN: "eth0", Between: [2]string{"none", "plan"},
		Proof:       verdict.Proof{Outcome: verdict.Improved, P95Ms: &verdict.Change{Median: -1200, Interval: verdict.Interval{Lo: -1240, Hi: -1150}}},
		PairsWanted: 5, PairsUsed: 5, Phase: "both", Seed: 7, LineSeconds: 101, Sentence: "Improved.",
		Sides: [2]prove.Summary{{Name: "none", P95Ms: 1270, IncreaseMs: 1250, GoodputUpBps: 4.6e6}, {Name: "plan", P95Ms: 26, IncreaseMs: 6, GoodputUpBps: 4.5e6}},
	}
	tuning := &tune.Result{Schema: tune.Schema, Kept: true, Reason: "better", Before: before, After: after, LineDownBps: 30e6, LineUpBps: 5e6}
	for _, r := range []struct {
		name, kind string
		result     any
		plan       string
	}{
		{"A", store.KindTest, before, ""}, {"B", store.KindTest, after, `{"schema":"unbloat.plan/1","wan":"eth0","aqm":"cake","down_bps":28000000,"up_bps":4600000}`},
		{"BAD", store.KindTest, bad, ""}, {"PROOF", store.KindProve, proof, ""}, {"TUNE", store.KindTune, tuning, ""},
		{"PATH", store.KindPath, aPath(), ""},
	} {
		rec, err := store.NewRecord(r.kind, r.result, time.Unix(0, 0))
		if err != nil {
			t.Fatal(err)
		}
		rec.Interface, rec.Link, rec.Tool, rec.System = "eth0", "ethernet", "1.0", "Linux 6.12"
		if r.name == "B" {
			rec.Interface, rec.Link = "wlan0", "wifi"
		}
		rec.Plan = json.RawMessage(r.plan)
		if ids[r.name], err = store.Save(t.Context(), file, rec); err != nil {
			t.Fatal(err)
		}
	}
	return file, ids
}

// TestHistoryGolden runs the commands in the comment of each golden file on
// aHistory. $A stands for the first digits of an id.
func TestHistoryGolden(t *testing.T) {
	path, ids := aHistory(t)
	t.Setenv("UNBLOAT_STORE", path)
	files, err := filepath.Glob("testdata/history/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no golden files", err)
	}
	for _, file := range files {
		a, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		got := &txtar.Archive{Comment: a.Comment}
		for _, l := range strings.Split(strings.TrimSpace(string(a.Comment)), "\n") {
			args := strings.Fields(l)
			for i, arg := range args {
				if id, ok := ids[strings.TrimPrefix(arg, "$")]; ok {
					args[i] = id[:10]
				}
			}
			out, code := commanded(t, "", args...)
			out = strings.ReplaceAll(out, path, "FILE")
			got.Files = append(got.Files, txtar.File{Name: fmt.Sprintf("%s: exit %d", l, code), Data: []byte(out)})
		}
		text := txtar.Format(got)
		if *updatePlans {
			if err := os.WriteFile(file, text, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if want := txtar.Format(a); !bytes.Equal(text, want) {
			t.Errorf("%s (-update rewrites it): %s", file, cmp.Diff(string(want), string(text)))
		}
	}
}

// TestHistoryFiles tests the commands that use files: export, import, and
// compare.
func TestHistoryFiles(t *testing.T) {
	from, ids := aHistory(t)
	dir := t.TempDir()
	to, moved, again := filepath.Join(dir, "to.db"), filepath.Join(dir, "moved.jsonl.gz"), filepath.Join(dir, "again.jsonl.gz")
	a, b := filepath.Join(dir, "a.json"), filepath.Join(dir, "b.json")
	for file, t1 := range map[string]*verdict.Test{a: testOf("a", "2026-03-01T10:00:00Z", 300), b: testOf("b", "2026-03-01T10:05:00Z", 301)} {
		text, _ := json.Marshal(t1)
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	broken := filepath.Join(dir, "broken.jsonl")
	if err := os.WriteFile(broken, []byte("{\"schema\":\"unbloat.export/1\"}\n{\"id\":\"x\"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"history", "--store", to}, 0, "No stored result matches"},
		{[]string{"export", "--store", to, "-o", moved}, 5, "no results were kept yet"},
		{[]string{"export", "--store", from, "-o", moved}, 0, "6 results written"},
		{[]string{"import", "--store", to, moved}, 0, "6 results read, 6 of them new"},
		{[]string{"import", "--store", to, moved}, 0, "6 results read, 0 of them new"},
		{[]string{"export", "--store", to, "-o", again}, 0, "6 results written"},
		{[]string{"export", "--store", to, ids["A"][:8], "-o", filepath.Join(dir, "one.jsonl.gz")}, 0, "1 result written"},
		{[]string{"export", "--store", to, "zzz", "-o", filepath.Join(dir, "none.jsonl.gz")}, 2, "there is no such result"},
		{[]string{"export", "--store", to}, 2, "-o FILE is missing"},
		{[]string{"import", "--store", to, broken}, 2, "line 2: "},
		{[]string{"import", "--store", to, filepath.Join(dir, "absent")}, 2, "absent"},
		{[]string{"import", "--store", a, moved}, 1, "the file holds no results"},
		{[]string{"history", "--store", to, ids["TUNE"]}, 0, "Kept: better."},
		{[]string{"history", "--store", to, ids["A"]}, 0, "Grade F (download –, upload F). The round trip rises by 1250 ms."},
		{[]string{"history", "--store", to, ids["A"], "--json"}, 0, `"kind":"test","label":"before"`},
		{[]string{"history", "--store", to, "--json"}, 0, `{"schema":"unbloat.history/1","results":[{"id":"`},
		{[]string{"compare", "--store", to, a, ids["TUNE"]}, 0, "upload: p95 fell by "},
		{[]string{"compare", "--store", to, a, a, "--json"}, 0, `"improvement_ms":{"lo":`},
		{[]string{"compare", "--store", to, a, b}, 0, "upload: "},
		{[]string{"compare", "--store", to, a, ids["B"]}, 0, "before: " + a},
		{[]string{"compare", "--store", to, a, "ffffffffff"}, 2, "there is no such result"},
		{[]string{"compare", "--store", to, a, filepath.Join(dir, "absent.json")}, 2, "absent.json"},
		{[]string{"compare", "--store", to, a, broken}, 2, "broken.jsonl: not JSON"},
		{[]string{"compare", a}, 2, "takes two results"},
		{[]string{"history", "--since", "yesterday"}, 2, "--since"},
		{[]string{"history", "a", "b"}, 2, "takes one ID"},
	} {
		if out, code := commanded(t, "", c.args...); code != c.code || !strings.Contains(out, c.want) {
			t.Errorf("%v: exit %d, want %d with %q: %s", c.args, code, c.code, c.want, out)
		}
	}
	x, _ := os.ReadFile(moved)
	y, _ := os.ReadFile(again)
	if !bytes.Equal(x, y) || len(x) == 0 {
		t.Error("an export of the import is another one")
	}
	if _, err := os.Stat(filepath.Join(dir, "none.jsonl.gz")); err == nil {
		t.Error("a failed export left a file")
	}
}

// TestKeep: if a result cannot be saved the program warns, and with --no-store
// it saves nothing.
func TestKeep(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text.db")
	if err := os.WriteFile(text, bytes.Repeat([]byte("no database "), 99), 0o600); err != nil {
		t.Fatal(err)
	}
	result := testOf("x", "2026-03-01T10:00:00Z", 4)
	keep := func(f keepFlags) string {
		var errs bytes.Buffer
		c := &cobra.Command{}
		c.SetErr(&errs)
		c.SetContext(t.Context())
		f.keep(c, result, conditions{stateDir: dir})
		return errs.String()
	}
	if s := keep(keepFlags{storeFlag: storeFlag{text}}); !strings.Contains(s, "warning: this result is not kept: ") || !strings.Contains(s, "holds no results") {
		t.Errorf("a damaged file: %q", s)
	}
	if s := keep(keepFlags{storeFlag: storeFlag{text}, noStore: true}); s != "" {
		t.Errorf("--no-store: %q", s)
	}
	fine := filepath.Join(dir, "sub", "results.db")
	if s := keep(keepFlags{storeFlag: storeFlag{fine}}); s != "" {
		t.Errorf("a new file: %q", s)
	}
	if out, code := commanded(t, "", "history", "--store", fine); code != 0 || !strings.Contains(out, "x, to 192.0.2.1:7676") {
		t.Errorf("%d: %s", code, out)
	}
}

func TestParseSince(t *testing.T) {
	now := time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)
	for s, want := range map[string]string{
		"12h": "2026-03-10T00:00:00Z", "7d": "2026-03-03T12:00:00Z", "2w": "2026-02-24T12:00:00Z", "0.5d": "2026-03-10T00:00:00Z",
		"2026-03-01": "2026-03-01T00:00:00Z", "2026-03-01T10:00:00Z": "2026-03-01T10:00:00Z",
		"": "", "d": "", "-1d": "", "x": "", "1e99w": "", "-3h": "",
	} {
		got, err := parseSince(s, now)
		if want == "" {
			if err == nil {
				t.Errorf("%q: %v", s, got)
			}
		} else if err != nil || got.Format(time.RFC3339) != want {
			t.Errorf("%q: %v, %v, want %s", s, got, err, want)
		}
	}
}

// TestExpireByDay: a date is the reader's own day, in --expire as in the list: what was
// measured in that day's first hour stays, and what was an hour before it goes.
func TestExpireByDay(t *testing.T) {
	for _, zone := range []*time.Location{time.UTC, time.FixedZone("east", 9*3600), time.FixedZone("west", -8*3600)} {
		midnight := time.Date(2026, 3, 1, 0, 0, 0, 0, zone)
		file := filepath.Join(t.TempDir(), "results.db")
		for label, at := range map[string]time.Time{"evening": midnight.Add(-time.Hour), "morning": midnight.Add(time.Hour)} {
			r, err := store.NewRecord(store.KindTest, testOf(label, at.Format(time.RFC3339), 100), at)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := store.Save(t.Context(), file, r); err != nil {
				t.Fatal(err)
			}
		}
		var out bytes.Buffer
		c := newHistoryCommand()
		c.SetOut(&out)
		c.SetContext(t.Context())
		f := &historyFlags{storeFlag: storeFlag{file: file}, expire: "2026-03-01"}
		if err := f.expireOld(c, midnight.AddDate(0, 0, 9)); err != nil || !strings.HasPrefix(out.String(), "1 results") {
			t.Errorf("%s: %v, %s", zone, err, out.String())
		}
		if left, code := commanded(t, "", "history", "--store", file); code != 0 || strings.Contains(left, "evening") || !strings.Contains(left, "morning") {
			t.Errorf("%s: it leaves %s", zone, left)
		}
	}
}

// TestProveUsage: wrong use of `prove` is reported before it changes anything.
func TestProveUsage(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"", "--server is missing"},
		{"--server x --pairs 4", "--pairs 4: must be 5 to 100"},
		{"--server x --between none", "give two sides"},
		{"--server x --between none,red", `"red" is no side`},
		{"--server x --seconds 1", "--seconds 1s"},
		{"--server x --load idle", "--load \"idle\""},
		{"--server x --plan p.json --down 5mbit", "not both"},
		{"--server x --aqm cake", "--aqm goes with"},
		{"--server x --flows-up 0", "--flows-up 0"},
		{"--server x:y:z", "prove: "},
		{"more", "takes no arguments"},
	} {
		if out, code := commanded(t, "", append([]string{"prove"}, strings.Fields(c.args)...)...); code != cli.Usage || !strings.Contains(out, c.want) {
			t.Errorf("prove %s: exit %d, want %q: %s", c.args, code, c.want, out)
		}
	}
}
