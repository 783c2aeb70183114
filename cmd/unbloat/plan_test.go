package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"unbloat/internal/plan"
	"unbloat/unit"
)

var updatePlans = flag.Bool("update", false, "rewrite the golden files")

// runPlanCommand runs `unbloat plan` and returns its output and exit code.
func runPlanCommand(t *testing.T, stdin string, args ...string) (string, int, error) {
	t.Helper()
	root := newRootCommand()
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetIn(strings.NewReader(stdin))
	root.SetArgs(append([]string{"plan"}, args...))
	err := root.Execute()
	var e *exitError
	switch {
	case err == nil:
		return out.String(), exitDone, nil
	case errors.As(err, &e):
		return out.String(), e.code, err
	default:
		return out.String(), exitFailed, err
	}
}

// TestPlanGolden runs the arguments of each golden file: the articles'
// configurations and ours, in every platform's language.
func TestPlanGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/plan/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no golden files", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got, _, err := runPlanCommand(t, "", strings.Fields(string(a.Comment))...)
			if err != nil {
				t.Fatal(err)
			}
			if *updatePlans {
				a.Files = []txtar.File{{Name: "stdout", Data: []byte(got)}}
				if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if d := cmp.Diff(string(a.Files[0].Data), got); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

// The articles' own lines, as their texts have them.
func TestPlanGivesTheArticlesLines(t *testing.T) {
	for args, want := range map[string]string{
		"--down 120mbit --up 12mbit --for openbsd --style seed --shape-down 110mbit --shape-up 11mbit": `queue outq on em0 flows 1024 bandwidth 11M max 11M qlimit 1024 default
queue inq on em1 flows 1024 bandwidth 110M max 110M qlimit 1024 default
pfctl -nf /etc/pf.conf && pfctl -f /etc/pf.conf
`,
		"--up 1.1mbit --shape-up 1mbit --for openbsd-altq --style seed": `altq on em0 bandwidth 1Mb hfsc queue { bb }
queue bb bandwidth 100% qlimit 9 hfsc ( default )
pass out on em0 keep state queue( bb )
pfctl -nf /etc/pf.conf && pfctl -f /etc/pf.conf
`,
		"--up 1mbit --style seed --wan eno1.2": `tc qdisc add dev eno1.2 root handle 1: htb default 1
tc class add dev eno1.2 parent 1: classid 1:1 htb rate 950kbit quantum 1514
tc qdisc add dev eno1.2 parent 1:1 fq_codel target 15ms noecn
`,
		"--down 15mbit --shape-down 13mbit --style seed --wan eno1.2 --lan eno1.1": `tc qdisc add dev eno1.1 root handle 1: htb default 1
tc class add dev eno1.1 parent 1: classid 1:1 htb rate 13mbit quantum 1514
tc qdisc add dev eno1.1 parent 1:1 fq_codel
`,
	} {
		got, _, err := runPlanCommand(t, "", append(strings.Fields(args), "--quiet")...)
		if d := cmp.Diff(want, got); d != "" || err != nil {
			t.Errorf("%s: %v\n%s", args, err, d)
		}
	}
}

const planResult = `{"schema":"unbloat.test/1","valid":true,
 "idle":{"latency":{"rtt_ms":{"p50":20}}},
 "download":{"goodput_down_bps":28960000},"upload":{"goodput_up_bps":4826666.67}}`

// A test's result gives the line: goodput × 1514/1448.
func TestPlanFromResult(t *testing.T) {
	out, _, err := runPlanCommand(t, planResult, "--result", "-", "--json")
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Parse([]byte(out))
	if err != nil {
		t.Fatal(err)
	}
	if l := p.Basis.Line; l.Down != 30280*unit.KbitPerSecond || l.Up/1000 != 5046 || l.RTT != unit.FromMs(20) {
		t.Errorf("%+v", l)
	}
	if p.DownBps != p.Basis.Line.Down.Scale(plan.StartDown) {
		t.Errorf("down %s", p.DownBps)
	}
	if !json.Valid([]byte(out)) {
		t.Error("not one JSON object")
	}
}

func TestPlanExitCodes(t *testing.T) {
	invalid := strings.Replace(planResult, `"valid":true`, `"valid":false,"invalid_reasons":["the load did not saturate the line"]`, 1)
	for _, c := range []struct {
		args, stdin string
		code        int
		want        string
	}{
		{"--down 30mbit --up 5mbit --explain", "", exitDone, ""},
		{"--down 30", "", exitUsage, "no unit"},
		{"", "", exitUsage, "no rate is known"},
		{"--up 1mbit --for dos", "", exitUsage, "unknown"},
		{"--up 1mbit --aqm red", "", exitUsage, "no red"},
		{"--up 1mbit --ecn maybe", "", exitUsage, "neither on nor off"},
		{"--down 30mbit --up 5mbit --shape-down 5mbit --shape-up 30mbit", "", exitUsage, "swapped"},
		{"--up 5mbit --shape-up 95", "", exitUsage, "at most 1"},
		{"--up 10gbit --for opnsense", "", exitUsage, "4.29"},
		{"--up 1mbit --wan seventeen-letters", "", exitUsage, "at most 15"},
		{"--up 1mbit extra", "", exitUsage, "no argument"},
		{"--result -", "{}", exitUsage, "schema"},
		{"--result -", "x", exitUsage, "unbloat test --json"},
		{"--result /nonexistent", "", exitUsage, "no such file"},
		{"--result -", invalid, exitInvalid, "did not saturate"},
	} {
		_, code, err := runPlanCommand(t, c.stdin, strings.Fields(c.args)...)
		if code != c.code || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: exit %d, %v; want %d, %q", c.args, code, err, c.code, c.want)
		}
	}
}
