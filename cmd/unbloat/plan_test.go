package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"unbloat/internal/cure/plan"
	"unbloat/internal/show/cli"
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
	err := root.ExecuteContext(context.WithValue(t.Context(), aRouter{}, false))
	var e *cli.Error
	switch {
	case err == nil:
		return out.String(), cli.Done, nil
	case errors.As(err, &e):
		return out.String(), e.Code, err
	default:
		return out.String(), cli.Failed, err
	}
}

// inFull adds --commands, unless the arguments ask for something else.
func inFull(args []string) []string {
	for _, a := range []string{"--json", "--explain", "--quiet"} {
		if slices.Contains(args, a) {
			return args
		}
	}
	return append(args, "--commands", "--explain")
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
			got, _, err := runPlanCommand(t, "", inFull(strings.Fields(string(a.Comment)))...)
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

// The articles' own lines: from the rates that an article measured follows the
// configuration that it gives, and nothing else of the kind, with the reasons
// and with the differences from our own plan.
func TestPlanGivesTheArticlesLines(t *testing.T) {
	a, err := txtar.ParseFile("testdata/articles.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range a.Files {
		_, args, _ := strings.Cut(f.Name, ": ")
		quoted := strings.ReplaceAll(strings.ReplaceAll(string(f.Data), "$ext_if", "em0"), "# tc", "tc")
		got, _, err := runPlanCommand(t, "", append(strings.Fields(args), "--quiet")...)
		if err != nil {
			t.Fatal(err)
		}
		var lines strings.Builder
		for line := range strings.Lines(got) {
			if strings.Contains(line, "pfctl") || strings.Contains(args, "clearos") && !strings.HasPrefix(line, "QOS_ENABLE=") {
				continue
			}
			lines.WriteString(line)
		}
		if d := cmp.Diff(quoted, lines.String()); d != "" {
			t.Errorf("%s: -article +plan\n%s", f.Name, d)
		}
		seed, _, err := runPlanCommand(t, "", inFull(strings.Fields(args))...)
		if err != nil || !strings.Contains(seed, "# This is the article's way. unbloat's own plan (without --style article) differs in:") {
			t.Errorf("%s: %v: the difference is not explained\n%s", args, err, seed)
		}
		if _, _, err := runPlanCommand(t, "", strings.Fields(strings.ReplaceAll(args, " --style article", ""))...); err != nil {
			t.Errorf("%s, in our own way: %v", args, err)
		}
	}
}

const planResult = `{"schema":"unbloat.test/1","valid":true,
 "idle":{"latency":{"rtt_ms":{"p50":20}}},
 "download":{"goodput_down_bps":28960000},"upload":{"goodput_up_bps":4826666.67}}`

// A test's result gives the line's rates: goodput × 1514/1448.
func TestPlanFromResult(t *testing.T) {
	out, _, err := runPlanCommand(t, planResult, "--result", "-", "--json")
	if err != nil {
		t.Fatal(err)
	}
	var p plan.Plan
	if err := json.Unmarshal([]byte(out), &p); err != nil {
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
		{"--down 30mbit --up 5mbit --explain", "", cli.Done, ""},
		{"--down 30", "", cli.Usage, "no unit"},
		{"", "", cli.Usage, "no rate is known"},
		{"--up 1mbit --for dos", "", cli.Usage, "unknown"},
		{"--up 1mbit --aqm red", "", cli.Usage, "no red"},
		{"--up 1mbit --ecn maybe", "", cli.Usage, "neither on nor off"},
		{"--down 30mbit --up 5mbit --shape-down 5mbit --shape-up 30mbit", "", cli.Usage, "swapped"},
		{"--up 5mbit --shape-up 95", "", cli.Usage, "at most 1"},
		{"--up 10gbit --for opnsense", "", cli.Usage, "4.29"},
		{"--up 1mbit --wan seventeen-letters", "", cli.Usage, "at most 15"},
		{"--up 1mbit extra", "", cli.Usage, "no argument"},
		{"--result -", "{}", cli.Usage, "schema"},
		{"--result -", "x", cli.Usage, "unbloat test --json"},
		{"--result /nonexistent", "", cli.Usage, "no such file"},
		{"--result -", invalid, cli.Invalid, "did not saturate"},
	} {
		_, code, err := runPlanCommand(t, c.stdin, strings.Fields(c.args)...)
		if code != c.code || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: exit %d, %v; want %d, %q", c.args, code, err, c.code, c.want)
		}
	}
}

// What is to be pasted comes without the reasons for its numbers, unless they are asked for;
// what else the platform says stays.
func TestCommandsWithoutReasons(t *testing.T) {
	for _, platform := range []string{"linux", "openwrt", "opnsense", "openbsd"} {
		args := []string{"--down", "30mbit", "--up", "2mbit", "--for", platform, "--commands"}
		short, code, err := runPlanCommand(t, "", args...)
		if err != nil || code != cli.Done {
			t.Fatal(platform, code, err)
		}
		whole, _, _ := runPlanCommand(t, "", append(args, "--explain")...)
		quiet, _, _ := runPlanCommand(t, "", append(args, "--quiet")...)
		if strings.Contains(short, "#   rate = ") || !strings.Contains(whole, "#   rate = ") || !strings.HasPrefix(short, "# unbloat plan for "+platform) {
			t.Errorf("%s:\n%s", platform, short)
		}
		if withoutComments(short) != quiet || withoutComments(whole) != quiet {
			t.Errorf("%s: the commands differ", platform)
		}
		if _, after, _ := strings.Cut(whole, "\n\n"); !strings.HasSuffix(short, after) {
			t.Errorf("%s: more is left out than the reasons", platform)
		}
	}
}
