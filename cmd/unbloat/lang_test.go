package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/tune"
	"unbloat/internal/measure/verdict"
	"unbloat/internal/show/cli"
	"unbloat/internal/show/report"
	"unbloat/reason"
	"unbloat/unit"
)

// aTest returns a result with everything that a table may show.
func aTest(added float64) *verdict.Test {
	phase := func(rtt, plus float64) *verdict.Phase {
		q := func(v float64) verdict.Quantiles {
			return verdict.Quantiles{P50: v * 0.9, P90: v, P95: v, P99: v * 1.1, Max: v * 1.2}
		}
		return &verdict.Phase{Seconds: 9.75, Saturated: true, CPU: 0.12, Latency: verdict.Latency{
			Sent: 1000, Received: 940, Loss: 0.06, LossUp: 0.0525, LossDown: 0.0075, RTTMs: q(rtt + plus), IncreaseMs: q(plus), UpMs: q(plus), IPDVMs: 1.25}}
	}
	t := &verdict.Test{Time: "2026-03-01T14:13:20Z", Label: "Keller", Server: "192.0.2.7:7676", Valid: true,
		Grade: verdict.GradeD, GradeDown: verdict.GradeC, GradeUp: verdict.GradeD, RPM: 211, Voice: &verdict.Voice{R: 61.2, MOS: 3.15},
		Idle: phase(20.5, 0), Download: phase(20.5, added/2), Upload: phase(20.5, added), Both: phase(20.5, added*0.8)}
	t.Download.GoodputDownBps, t.Download.FlowsDown = 48.25e6, 4
	t.Upload.GoodputUpBps, t.Upload.FlowsUp = 4.713e6, 4
	t.Both.GoodputDownBps, t.Both.GoodputUpBps, t.Both.FlowsDown, t.Both.FlowsUp = 31e6, 4.5e6, 4, 4
	t.Both.Saturated = false
	t.Both.Unsaturated = []verdict.Unsaturated{{Direction: "down", Starved: true, Reason: reason.Of(reason.SendersIdle, "direction", "down", "busy", 0.61)}}
	t.Upload.Queue = &verdict.Queue{Ms: 310, Bytes: 182000, Packets: 121, Direction: "up"}
	t.Upload.Secondary = []verdict.Named{{Name: "icmp 192.0.2.1", Latency: t.Upload.Latency}}
	t.Download.OnLoad = &t.Download.Latency
	t.Runs = []verdict.Run{{Grade: "D", IncreaseMs: added}, {Grade: "", IncreaseMs: 0.25}}
	t.Remark(reason.Of(reason.OverWiFi), reason.Of(reason.CPUNotJudged, "why", "this system does not tell it"))
	t.Verdict = t.Sentence(reason.English(), reason.Terminal)
	return t
}

// spoilt returns the same result, invalid for three reasons.
func spoilt() *verdict.Test {
	t := aTest(310)
	full := reason.Of(reason.LoadNotFull).In(verdict.PhaseUpload)
	full.Causes = []reason.Reason{reason.Of(reason.RateRising, "direction", "up", "first_bps", 1.5e6, "last_bps", 4.8e6)}
	t.Spoil(reason.Terminal, reason.Of(reason.ProbesLate, "p99_ms", 3.25, "most_ms", 1.0).In(verdict.PhaseIdle),
		reason.Of(reason.OthersTraffic, "others", 0.31, "direction", "down", "most", 0.1, "others_bps", 5.25e6).In(verdict.PhaseDownload), full)
	return t
}

func aTuning() *tune.Result {
	r := &tune.Result{Kept: true, GoalMs: 7.5, LineDownBps: 50 * unit.MbitPerSecond, LineUpBps: 4900 * unit.KbitPerSecond,
		Plan: &plan.Plan{AQM: plan.CAKE, DownBps: 47 * unit.MbitPerSecond, UpBps: 4600 * unit.KbitPerSecond}, Before: aTest(310), After: aTest(6.2)}
	r.After.Grade, r.After.GradeDown, r.After.GradeUp = verdict.GradeA, verdict.GradeAPlus, verdict.GradeA
	r.After.Download.GoodputDownBps *= 0.8
	r.Reasons = []reason.Reason{reason.Of(reason.TuneBetter, "before_ms", 310.0, "after_ms", 6.2), reason.Of(reason.TuneGoalMissed, "goal_ms", 7.5)}
	return r
}

// The tables of every language match the golden files. Every figure of the
// English one is in the German one too, with a decimal comma, and a tuning's
// table fits into 78 columns.
func TestTablesInEveryLanguage(t *testing.T) {
	figures := regexp.MustCompile(`\d+([.,]\d+)?`)
	said := map[string][]string{}
	for _, l := range reason.Languages() {
		for name, print := range map[string]func(*bytes.Buffer){
			"test":         func(b *bytes.Buffer) { printTest(b, l, aTest(310), 0, true) },
			"test-short":   func(b *bytes.Buffer) { printTest(b, l, aTest(310), 80, false) },
			"test-invalid": func(b *bytes.Buffer) { printTest(b, l, spoilt(), 0, true) },
			"tune": func(b *bytes.Buffer) {
				if err := report.TuningIn(b, l, aTuning(), 0); err != nil {
					t.Error(err)
				}
			},
			"tune-good": func(b *bytes.Buffer) {
				if err := report.TuningIn(b, l, &tune.Result{Before: aTest(2)}, 0); err != nil {
					t.Error(err)
				}
			},
		} {
			var b bytes.Buffer
			print(&b)
			file := filepath.Join("testdata", "tables", name+"."+l.Tag+".txt")
			if *updatePlans {
				if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), b.String()); d != "" {
				t.Errorf("%s (-update rewrites it): %s", file, d)
			}
			table := b.String() // whole sentences follow
			if i := strings.LastIndex(table, "\n\n"); name == "tune" {
				table = table[:i]
			}
			for i, line := range strings.Split(table, "\n") {
				if n := utf8.RuneCountInString(line); strings.HasPrefix(name, "tune") && n > 78 {
					t.Errorf("%s: line %d has %d columns: %s", file, i+1, n, line)
				}
			}
			found := figures.FindAllString(b.String(), -1)
			for i := range found {
				found[i] = strings.ReplaceAll(found[i], ",", ".")
			}
			if english, ok := said[name]; ok {
				for _, f := range english {
					if !strings.Contains(strings.Join(found, " "), f) {
						t.Errorf("%s does not have the figure %s", file, f)
					}
				}
			} else {
				said[name] = found
			}
		}
	}
}

// The flag overrides the environment, which is read as POSIX says. An unknown
// language is an error as a flag, and means English in the environment.
func TestLanguageIsChosen(t *testing.T) {
	for _, c := range []struct{ flag, all, messages, lang, want string }{
		{"", "", "", "", "en"},
		{"", "", "", "de_AT.UTF-8", "de"},
		{"", "", "C", "de_DE.UTF-8", "en"},
		{"", "POSIX", "de_DE", "de_DE", "en"},
		{"", "", "de_DE@euro", "fr_FR", "de"},
		{"", "", "", "fr_FR.UTF-8", "en"},
		{"de", "C", "", "", "de"},
		{"en-GB", "", "", "de_DE", "en"},
	} {
		t.Setenv("LC_ALL", c.all)
		t.Setenv("LC_MESSAGES", c.messages)
		t.Setenv("LANG", c.lang)
		l, err := language("test", c.flag)
		if err != nil || l.Tag != c.want {
			t.Errorf("%+v: %v, %v", c, l, err)
		}
	}
	if _, _, code, err := runTestCommand(t, "--server", "127.0.0.1:1", "--lang", "tlh"); code != cli.Usage || !strings.Contains(err.Error(), "en or de") {
		t.Errorf("an unknown language: exit code %d, %v", code, err)
	}
}
