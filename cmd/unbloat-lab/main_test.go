package main

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"github.com/spf13/cobra"

	"unbloat/internal/cure/platform/all"
	"unbloat/internal/show/cli"
	"unbloat/lab"
	"unbloat/lab/scenario"
	"unbloat/scenarios"
	"unbloat/testkit/conform"
)

// asProgram is the environment variable with which the test binary acts as the
// program.
const asProgram = "UNBLOAT_TEST_AS_PROGRAM"

var update = flag.Bool("update", false, "rewrite the golden files")

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	os.Exit(m.Run())
}

// asTyped runs the program as a person does, and returns what it printed.
func asTyped(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	c := exec.Command(os.Args[0], args...)
	var out, errs bytes.Buffer
	c.Env, c.Stdout, c.Stderr = append(os.Environ(), asProgram+"=1"), &out, &errs
	err := c.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), c.ProcessState.ExitCode()
}

// Every error becomes the exit code of the contract.
func TestExitCodes(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.toml")
	if err := os.WriteFile(bad, []byte("name = \"x\"\n[line]\ndown = \"3\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		want int
		args []string
	}{
		{cli.Done, []string{"lab", "list"}},
		{cli.Done, []string{"lab", "run", "exact-link", "--engine", "sim", "--quiet"}},
		{cli.Usage, []string{"lab", "frobnicate"}},
		{cli.Usage, []string{"lab", "shell", "exact-link"}}, // standard input is no terminal
		{cli.Usage, []string{"sim", "frobnicate"}},
		{cli.Usage, []string{"lab", "run", bad}},
		{cli.Usage, []string{"lab", "run", "no-such-scenario"}},
		{cli.Usage, []string{"lab", "run", "seed-003", "--case", "no-such-case"}},
		{cli.Usage, []string{"lab", "run", "seed-003", "--engine", "steam"}},
		{cli.Usage, []string{"lab", "run", "seed-003", "--engine", "sim", "--for", "beos"}},
		{cli.Usage, []string{"lab", "run", "seed-003", "--engine", "virtual", "--for", "openbsd"}},
		{cli.Usage, []string{"demo", "--report", "x.doc"}},
		{cli.Usage, []string{"sim", "replay", "/no/such/file"}},
		{cli.Done, []string{"--help"}},
		{cli.Usage, []string{"frobnicate"}},
		{cli.Usage, []string{"sim", "predict", bad}},
		{cli.Usage, []string{"sim", "compare"}},
	} {
		if got := run(c.args); got != c.want {
			t.Errorf("unbloat %v: exit code %d, want %d", c.args, got, c.want)
		}
	}
	out, errs, code := asTyped(t, "lab", "rnu", "seed-003")
	if code != cli.Usage || out != "" || errs != "unbloat: lab: there is no command \"rnu\"; do you mean run? (see `unbloat lab --help`)\n" {
		t.Errorf("exit code %d, %q, %q", code, out, errs)
	}
}

// TestFrozenHelp: the commands and their flags; -update rewrites them.
func TestFrozenHelp(t *testing.T) {
	var got []txtar.File
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Hidden || c.Name() == "help" {
			return
		}
		if c.HasParent() {
			var out bytes.Buffer
			c.SetOut(&out)
			if err := c.Help(); err != nil {
				t.Error(err)
			}
			if c.Example == "" {
				t.Errorf("%s has no example", c.CommandPath())
			}
			got = append(got, txtar.File{Name: cli.NameOf(c), Data: out.Bytes()})
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(newRootCommand())
	file := filepath.Join("testdata", "frozen", "help.txtar")
	text := string(txtar.Format(&txtar.Archive{Files: got}))
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), text); d != "" {
		t.Errorf("-frozen +now:\n%s", d)
	}
}

// Every command line of the laboratory in the documents is valid.
func TestDocumentsCommands(t *testing.T) {
	checked, _ := conform.Documents(t, "../..", newRootCommand, func(command string) bool { return slices.Contains([]string{"demo", "lab", "sim"}, command) })
	if checked < 20 {
		t.Errorf("only %d commands were found in the documents", checked)
	}
}

// TestCompletion: the shell completes scenarios, their cases and all that there is a
// list of, for unbloat, which asks this program.
func TestCompletion(t *testing.T) {
	for _, c := range []struct {
		words string
		want  []string
		files bool
	}{
		{"lab run ", scenarios.Names(), true},
		{"sim sweep ", scenarios.Names(), true},
		{"lab run seed-000 --case ", []string{"before", "seed", "tuned"}, false},
		{"lab run --engine ", []string{string(lab.Realtime), string(lab.Sim), string(lab.Virtual)}, false},
		{"lab run --for ", all.Names(), false},
		{"lab ", []string{"compare", "kernel", "list", "run", "shell"}, false},
		{"help lab ", []string{"compare", "kernel", "list", "run", "shell"}, false},
		{"sim predict ", nil, true},
	} {
		got, files := conform.Completed(t, newRootCommand(), strings.Split(c.words, " ")...)
		if slices.Sort(got); files != c.files || !slices.Equal(got, slices.Sorted(slices.Values(c.want))) {
			t.Errorf("%q: %q, files %v; not %q, %v", c.words, got, files, c.want, c.files)
		}
	}
}

// TestManual: each command has its page, by the name that people type.
func TestManual(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man1")
	if out, errs, code := asTyped(t, "manual", dir); code != cli.Done || out+errs != "" {
		t.Fatalf("exit code %d, %q, %q", code, out, errs)
	}
	pages, err := filepath.Glob(filepath.Join(dir, "*.1"))
	if err != nil || len(pages) != 3+5+6 {
		t.Errorf("%q, %v", pages, err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "unbloat-lab-run.1")); err != nil || !strings.Contains(string(text), "unbloat lab run") {
		t.Errorf("%v: %.300s", err, text)
	}
}

// An invalid measurement of a scenario is reported, and the exit code is 4.
func TestLabRunInvalid(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "dead.toml")
	text := "name = \"dead\"\ntitle = \"a line that loses everything\"\n[line]\ndown = \"1 Mbit/s\"\nup = \"1 Mbit/s\"\nrtt = \"20 ms\"\nloss = 1\nbuffer_down = \"1 MB\"\nbuffer_up = \"1 MB\"\n[[case]]\nname = \"before\"\nrouter = \"none\"\n"
	if _, err := scenario.Parse(file, []byte(text)); err != nil {
		text = strings.Replace(text, "loss = 1", "loss = 0.9", 1)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, errs, code := asTyped(t, "lab", "run", file, "--engine", "sim", "--quiet")
	if code != cli.Invalid || !strings.Contains(errs, `the measurement of case "before" is not valid: `) || !strings.Contains(out, "NOT VALID: ") || strings.Contains(out, "NOT VALID: [") {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
}
