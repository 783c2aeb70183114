package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"unbloat/internal/show/cli"
)

const replayTrace = `# {"implementation": "linux-6.12", "rate_bps": 8000000}
0 0 1 1000 sent 0
1 0 1 1000 sent 1000000
`

// runReplay runs `sim replay` and returns its output and exit code.
func runReplay(t *testing.T, args ...string) (string, int, error) {
	t.Helper()
	c := newSimReplayCommand()
	var out bytes.Buffer
	c.SetOut(&out)
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetIn(strings.NewReader(replayTrace))
	c.SetArgs(args)
	err := c.Execute()
	var e *cli.Error
	switch {
	case err == nil:
		return out.String(), cli.Done, nil
	case errors.As(err, &e):
		return out.String(), e.Code, err
	}
	t.Fatalf("error of no exit code: %v", err)
	return "", 0, nil
}

// TestSimReplay checks output and exit codes of `unbloat sim replay`.
func TestSimReplay(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := write("good.txt", replayTrace)
	wrong := write("wrong.txt", strings.Replace(replayTrace, "1000000\n", "1000007\n", 1))
	junk := write("junk.txt", "hello\n")
	missing := filepath.Join(dir, "missing.txt")
	for _, c := range []struct {
		name  string
		args  []string
		code  int
		wants []string
	}{
		{"agrees", []string{good}, cli.Done, []string{"good.txt: 2 of 2 packets agree (linux-6.12)"}},
		{"gzipped", []string{"../../lab/aqm/testdata/1010-linux-6.12.txt.gz"}, cli.Done, []string{"packets agree (linux-6.12)"}},
		{"standard input", []string{"-"}, cli.Done, []string{"-: 2 of 2 packets agree"}},
		{"differs", []string{good, wrong}, cli.Failed, []string{"2 of 2", "wrong.txt: 1 of 2", "trace says sent 1000007, replay says sent 1000000"}},
		{"no trace", []string{junk, wrong}, cli.Usage, []string{"wrong.txt: 1 of 2"}},
		{"no file", []string{missing}, cli.Usage, nil},
		{"no arguments", nil, cli.Usage, nil},
		{"JSON", []string{"--json", wrong}, cli.Failed, []string{`"schema": "unbloat.sim.replay/1"`, `"agree": 1`, `"replay": "sent 1000000"`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, code, err := runReplay(t, c.args...)
			if code != c.code {
				t.Errorf("exit code %d, error %v; want %d", code, err, c.code)
			}
			for _, want := range c.wants {
				if !strings.Contains(out, want) {
					t.Errorf("output %q lacks %q", out, want)
				}
			}
			if len(c.args) > 0 && c.args[0] == "--json" && !json.Valid([]byte(out)) {
				t.Errorf("not JSON: %s", out)
			}
		})
	}
}

// TestLabRunFor: the articles' routers are simulated with their own system's
// dialect, and the result says so.
func TestLabRunFor(t *testing.T) {
	for _, c := range []struct{ scenario, platform, queue string }{
		{"seed-000", "opnsense", "fq_codel"}, {"seed-002", "openbsd-altq", "fifo"}, {"seed-004", "openbsd", "fq_codel"},
	} {
		root, out := newRootCommand(), bytes.Buffer{}
		root.SetOut(&out)
		root.SetArgs([]string{"lab", "run", c.scenario, "--engine", "sim", "--for", c.platform, "--case", "seed", "--quiet"})
		if err := root.Execute(); err != nil {
			t.Fatalf("%s for %s: %v", c.scenario, c.platform, err)
		}
		if text := out.String(); !strings.Contains(text, "; "+c.platform+" simulated, sim time") || !strings.Contains(text, "seed: "+c.queue+", ") {
			t.Errorf("%s for %s:\n%s", c.scenario, c.platform, text)
		}
	}
}
