package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"unbloat/internal/cure/platform/all"
)

// The output and the exit codes of commands are frozen in files, so that no
// change of the code changes them by accident. A commit that changes one on
// purpose says so; -update rewrites them.

// frozen compares output with a file of testdata/frozen, which has a section
// for each command.
func frozen(t *testing.T, name string, got []txtar.File) {
	t.Helper()
	file := filepath.Join("testdata", "frozen", name+".txtar")
	if *updatePlans {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, txtar.Format(&txtar.Archive{Files: got}), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	sections := func(files []txtar.File) map[string]string {
		out := map[string]string{}
		for _, f := range files {
			out[f.Name] = string(f.Data)
		}
		return out
	}
	if d := cmp.Diff(sections(want.Files), sections(txtar.Parse(txtar.Format(&txtar.Archive{Files: got})).Files)); d != "" {
		t.Errorf("-frozen +now:\n%s", d)
	}
}

// steady replaces what differs from run to run.
func steady(text string) string {
	for _, c := range []struct{ is, becomes string }{
		{`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`, "TIME"},
		{`\d{4}-\d\d-\d\d \d\d:\d\d [A-Z]+`, "TIME"},
		{`another (\d+m)?\d+s;`, "another N s;"},
		{`undone in \d+ s`, "undone in N s"},
		{`"undone_in_seconds":[0-9.]+`, `"undone_in_seconds":N`},
		{regexp.QuoteMeta(os.TempDir()) + `/[^ "]*`, "FILE"},
	} {
		text = regexp.MustCompile(c.is).ReplaceAllString(text, c.becomes)
	}
	return text
}

// TestFrozenPlans: the JSON of plans for every platform.
func TestFrozenPlans(t *testing.T) {
	for _, platform := range all.Names() {
		t.Run(platform, func(t *testing.T) {
			var got []txtar.File
			for _, args := range []string{
				"--down 30mbit --up 5mbit",
				"--down 120mbit --up 12mbit --link-layer docsis --aqm fifo",
				"--up 1mbit --style article --only up",
				"--down 25mbit --up 5mbit --rule class=voice,protocol=udp,far_port=19302-19309 --rule class=bulk,far=198.51.100.0/24",
			} {
				out, code, err := runPlanCommand(t, "", append(strings.Fields(args), "--for", platform, "--json")...)
				if err != nil {
					out += err.Error() + "\n"
				}
				got = append(got, txtar.File{Name: "plan " + args, Data: fmt.Appendf(nil, "%sexit %d\n", out, code)})
			}
			frozen(t, "plan-"+platform, got)
		})
	}
}

// TestFrozenCommands: what commands print that change a router, on the
// platforms that can be tested in memory.
func TestFrozenCommands(t *testing.T) {
	for _, p := range stages() {
		if p.platform == "openbsd-altq" || p.platform == "freebsd" {
			continue // like openbsd and pfsense; each takes seconds
		}
		if testing.Short() && p.platform != "pfsense" {
			continue // one will do after an edit
		}
		t.Run(p.platform, func(t *testing.T) {
			s := p.make(t)
			file := filepath.Join(t.TempDir(), "plan.json")
			var got []txtar.File
			run := func(args ...string) string {
				out, code := s.run(t, append(args, "--for", p.platform)...)
				text := fmt.Sprintf("%sexit %d\n", out, code)
				name := strings.ReplaceAll(strings.Join(args, " "), file, "PLAN")
				got = append(got, txtar.File{Name: fmt.Sprintf("%02d %s", len(got)+1, name), Data: []byte(steady(text))})
				return out
			}
			if err := os.WriteFile(file, []byte(run("plan", "--down", "50mbit", "--up", "10mbit", "--wan", p.wan, "--lan", p.lan, "--json")), 0o600); err != nil {
				t.Fatal(err)
			}
			run("status", "--wan", p.wan)
			run("apply", file, "--dry-run")
			run("apply", file)
			run("apply", file)
			run("status", "--wan", p.wan)
			run("confirm")
			run("status", "--wan", p.wan)
			run("status", "--wan", p.wan, "--json")
			run("apply", file, "--yes")
			run("doctor", "--wan", p.wan, "--lan", p.lan)
			run("revert")
			run("status", "--wan", p.wan)
			run("confirm")
			frozen(t, "commands-"+p.platform, got)
		})
	}
}

// TestFrozenHelp: the commands and their flags.
func TestFrozenHelp(t *testing.T) {
	var got []txtar.File
	for _, name := range strings.Fields("test plan apply confirm revert status tune prove path report history compare export import serve doctor why daemon version") {
		root := newRootCommand()
		var out strings.Builder
		root.SetOut(&out)
		root.SetArgs([]string{name, "--help"})
		if err := root.Execute(); err != nil {
			t.Errorf("%s --help: %v", name, err)
		}
		got = append(got, txtar.File{Name: name, Data: []byte(steady(out.String()))})
	}
	frozen(t, "help", got)
}
