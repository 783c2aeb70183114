//go:build !router

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"pgregory.net/rapid"

	"unbloat/internal/cure/prove"
	"unbloat/internal/measure/verdict"
	"unbloat/internal/show/cli"
	"unbloat/internal/show/report"
	"unbloat/internal/show/store"
	"unbloat/reason"
)

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

// Mistyped commands are refused with a message on standard error that says what
// to do. Standard output stays empty.
func TestMistyped(t *testing.T) {
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"tset --server x", cli.Usage, `there is no command "tset"; do you mean test?`},
		{"speedtest", cli.Usage, "do you mean test?"},
		{"test --sever x", cli.Usage, "unknown flag: --sever; do you mean --server?"},
		{"test 10.3.0.2", cli.Usage, "do you mean --server 10.3.0.2?"},
		{"test --server http://192.0.2.1:7680/", cli.Usage, "that is a page for browsers; do you mean the server beside it, 192.0.2.1?"},
		{"status --router 10.1.0.1", cli.Usage, "do you mean ssh://root@10.1.0.1?"},
		{"plan --down 30mbit --for OpenWRT --aqm none", cli.Usage, "openwrt"},
		{"help foo", cli.Usage, `there is no command "foo"`},
		{"completion foo", cli.Usage, `there is no command "foo"`},
		{"plan --down 30mbit --bogus", cli.Usage, "unbloat: plan: unknown flag"},
		{"plan --down 30", cli.Usage, "no unit"},
		{"plan --down 1,000mbit", cli.Usage, "has a comma"},
		{"plan --down 30MBPS", cli.Usage, "bits and for bytes"},
		{"test --server x --interval 10", cli.Usage, "write 10ms for milliseconds or 10s"},
		{"path 127.0.0.1 --idle 3", cli.Usage, "--idle 5s or more"},
		{"path no..such.host", cli.Precondition, "no..such.host"},
		{"history --store /etc/passwd", cli.Failed, "name another file with --store"},
	} {
		out, errs, code := asTyped(t, strings.Fields(c.args)...)
		if code != c.code || !strings.Contains(errs, c.says) || out != "" {
			t.Errorf("unbloat %s: exit code %d, %q, standard output %q; want %d and %q", c.args, code, errs, out, c.code, c.says)
		}
		if strings.Contains(errs, "unbloat: unbloat") || strings.Contains(errs, "mv /etc") {
			t.Errorf("unbloat %s: %q", c.args, errs)
		}
	}
}

// `daemon --check` tells every mistake at once, with the key that is meant, warns of an
// interface that is not there, and gives whoever has no configuration one to begin with.
func TestCheckTellsAll(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		file, text string
		code       int
		says       []string
	}{
		{"none.toml", "", cli.Usage, []string{"there is no " + dir + "/none.toml; write this", "[[wan]]", `down = "50 Mbit/s"`}},
		{"etc/config/unbloat", "", cli.Usage, []string{"config wan", "option down '50 Mbit/s'"}},
		{"bad.toml", "[[wan]]\ninterface = \"eth0\"\nfolow = true\ndwn = \"50 Mbit/s\"\n", cli.Usage, []string{
			`bad.toml:3: there is no key "folow"`, "do you mean follow?", `bad.toml:4: there is no key "dwn"`, "do you mean down?", "nothing says how fast"}},
		{"gone.toml", "[[wan]]\ninterface = \"eth99\"\nplatform = \"linux\"\ndown = \"50 Mbit/s\"\nup = \"10 Mbit/s\"\n", cli.Done, []string{
			"down carries 50 Mbit/s", "gone.toml:2: interface: there is no eth99 now"}},
	} {
		file := filepath.Join(dir, c.file)
		if c.text != "" {
			if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		out, errs, code := asTyped(t, "daemon", "--check", "--config", file)
		for _, says := range c.says {
			if code != c.code || !strings.Contains(out+errs, says) {
				t.Errorf("%s: exit code %d, want %d with %q; it says\n%s%s", c.file, code, c.code, says, out, errs)
			}
		}
	}
}

// Rates are read in the usual spellings. If one was not in bits, the program
// says how it was read.
func TestRatesAsWritten(t *testing.T) {
	for written, want := range map[string]struct {
		bps  float64
		says string
	}{
		"3.5 MB/s":    {28e6, "--down: 3.5 MB/s is 28 Mbit/s."},
		"3.5MiB/s":    {29360128, "--down: 3.5MiB/s is 29.360128 Mbit/s."},
		"30m":         {30e6, "--down: 30m is 30 Mbit/s."},
		"30M":         {30e6, "--down: 30M is 30 Mbit/s."},
		"30,5 Mbit/s": {30.5e6, ""},
		"29.1 Mbps":   {29.1e6, ""},
	} {
		out, errs, code := asTyped(t, "plan", "--down", written, "--shape-down", "100%", "--only", "down", "--wan", "eth0", "--lan", "eth1", "--json")
		var p struct {
			Down float64 `json:"down_bps"`
		}
		if err := json.Unmarshal([]byte(out), &p); err != nil || code != cli.Done || p.Down < 0.99*want.bps || p.Down > want.bps {
			t.Errorf("%s: %v, exit code %d, %.0f bit/s, want %.0f: %s", written, err, code, p.Down, want.bps, errs)
		}
		if !strings.Contains(errs, want.says) || want.says == "" && errs != "" {
			t.Errorf("%s: standard error %q, want %q", written, errs, want.says)
		}
	}
	if _, errs, _ := asTyped(t, "plan", "--down", "30M", "--only", "down", "--quiet"); errs != "" {
		t.Errorf("--quiet says %q", errs)
	}
}

// With --json an error is an object too, unless a result was printed.
func TestFailureIsJSON(t *testing.T) {
	for args, want := range map[string]cli.Failure{
		"plan --down 30 --json":                       {Code: "usage", Exit: cli.Usage},
		"test --server 127.0.0.1:1 --json --no-store": {Code: "precondition", Exit: cli.Precondition},
		"compare --json /no/such/a /no/such/b":        {Code: "usage", Exit: cli.Usage},
	} {
		out, errs, code := asTyped(t, strings.Fields(args)...)
		var got cli.Failure
		if err := json.Unmarshal([]byte(out), &got); err != nil || got.Schema != "unbloat.error/1" || got.Code != want.Code || got.Exit != code || code != want.Exit ||
			!strings.Contains(errs, got.Text) || got.Text == "" {
			t.Errorf("%s: exit code %d, %q, %q: %v", args, code, out, errs, err)
		}
	}
}

// TestHelpIsWhole: every command has examples, and the placeholder of every
// flag is one word in capitals.
func TestHelpIsWhole(t *testing.T) {
	placeholder := regexp.MustCompile(`^[A-Z0-9:|]+$`)
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Hidden || c.Name() == "completion" {
			return
		}
		if c.HasParent() && c.Example == "" {
			t.Errorf("%s has no example", c.CommandPath())
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			name, _ := pflag.UnquoteUsage(f)
			if f.Hidden || name == "" || name == "string" || name == "int" || name == "uint" || name == "strings" || placeholder.MatchString(name) {
				return
			}
			t.Errorf("%s --%s: its placeholder is %q", c.CommandPath(), f.Name, name)
		})
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(newRootCommand())
}

// A comparison with an invalid result proves no change.
func TestCompareInvalid(t *testing.T) {
	file, ids := aHistory(t)
	out, code := commanded(t, "", "compare", ids["A"], ids["BAD"], "--store", file)
	if code != cli.Invalid || !strings.Contains(out, "nothing can be said of a change: the second is not valid: upload: probes left late") || strings.Contains(out, "fell by") {
		t.Errorf("exit code %d: %s", code, out)
	}
	out, code = commanded(t, "", "compare", ids["A"], ids["BAD"], "--store", file, "--json")
	var got struct {
		Improvement *json.RawMessage `json:"improvement_ms"`
	}
	if err := json.Unmarshal([]byte(strings.SplitN(out, "\n", 2)[0]), &got); err != nil || code != cli.Invalid || got.Improvement != nil {
		t.Errorf("exit code %d, %v: %s", code, err, out)
	}
}

// An export is compressed as its file name says, and each kind can be imported.
func TestExportAsNamed(t *testing.T) {
	file, _ := aHistory(t)
	dir := t.TempDir()
	for _, name := range []string{"x.jsonl", "x.json", "x.jsonl.gz"} {
		to := filepath.Join(dir, name)
		if out, code := commanded(t, "", "export", "--store", file, "-o", to); code != cli.Done {
			t.Fatalf("%s: %s", name, out)
		}
		b, err := os.ReadFile(to)
		if packed := bytes.HasPrefix(b, []byte{0x1f, 0x8b}); err != nil || packed != strings.HasSuffix(name, ".gz") {
			t.Errorf("%s: packed %v, %v", name, packed, err)
		}
		if out, code := commanded(t, "", "import", to, "--store", filepath.Join(dir, name+".db")); code != cli.Done || !strings.Contains(out, "6 results read, 6 of them new") {
			t.Errorf("%s: exit code %d: %s", name, code, out)
		}
	}
}

// TestFitLaw: wrapped lines are no wider than the terminal, unless a single
// word is, and have the same words as before.
func TestFitLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringMatching(`[a-zé]{1,70}`)
		text := ""
		for range rapid.IntRange(0, 4).Draw(t, "lines") {
			text += strings.Repeat(" ", rapid.IntRange(0, 4).Draw(t, "indent")) + strings.Join(rapid.SliceOfN(word, 0, 30).Draw(t, "words"), " ") + "\n"
		}
		width := rapid.IntRange(cli.Narrowest, 130).Draw(t, "width")
		var out bytes.Buffer
		f := cli.FitTo(&out, width)
		for rest := text; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "n")
			if _, err := f.Write([]byte(rest[:n])); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if err := f.Flush(); err != nil {
			t.Fatal(err)
		}
		if got, want := strings.Fields(out.String()), strings.Fields(text); strings.Join(got, " ") != strings.Join(want, " ") {
			t.Fatalf("%q became %q", text, out.String())
		}
		for line := range strings.Lines(out.String()) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, " \n")); n > width && len(strings.Fields(line)) > 1 {
				t.Fatalf("%d columns of %d: %q", n, width, line)
			}
		}
	})
}

// Of an invalid test each reason is said once, with the phases of which it is true.
func TestEachReasonOnce(t *testing.T) {
	test := aTest(310)
	var late []reason.Reason
	for _, p := range test.Phases() {
		late = append(late, reason.Of(reason.ProbesLate, "p99_ms", 3.25, "most_ms", 1.0).In(p.Name))
	}
	test.Spoil(reason.Terminal, late...)
	var b bytes.Buffer
	printTest(&b, reason.English(), test, 80, false)
	if text := b.String(); strings.Count(text, "probes left late") != 1 || !strings.Contains(text, "(also: download, upload, both)") {
		t.Errorf("%s", text)
	}
}

// Of a proof without a pair there are no figures.
func TestProofOfNothing(t *testing.T) {
	var b bytes.Buffer
	r := &prove.Result{Sentence: "Nothing is proved: only 0 of 5 pairs can be trusted."}
	r.Sides[0].Name, r.Sides[1].Name = prove.SideNone, prove.SidePlan
	if err := printProof(&b, r); err != nil || strings.Contains(b.String(), "0.0") || !strings.HasPrefix(b.String(), r.Sentence) {
		t.Errorf("%v: %s", err, b.String())
	}
}

// A person gets the grade, the sentence and the table in twelve lines.
func TestTwelveLines(t *testing.T) {
	var b bytes.Buffer
	printTest(&b, reason.English(), lab30(), 80, false)
	if n := strings.Count(b.String(), "\n"); n > 12 {
		t.Errorf("%d lines:\n%s", n, b.String())
	}
}

// lab30 is a bad line of one run.
func lab30() *verdict.Test {
	t := aTest(1200)
	t.Runs = nil
	for _, p := range t.Phases() {
		p.Latency.Loss = 0
	}
	t.Verdict = t.Sentence(reason.English(), reason.Terminal)
	return t
}

// The tables fit terminals of 50, 60, 80 and 120 columns.
func TestTablesFit(t *testing.T) {
	file, _ := aHistory(t)
	kept, err := store.OpenExisting(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	entries, err := kept.List(t.Context(), store.Filter{})
	if err != nil || len(entries) == 0 {
		t.Fatal(len(entries), err)
	}
	for _, width := range []int{50, 60, 80, 120} {
		tables := map[string]func(b *bytes.Buffer){}
		for _, l := range []*reason.Language{reason.English(), reason.German()} {
			for how, verbose := range map[string]bool{"": false, "verbose ": true} {
				tables["test "+how+l.Tag] = func(b *bytes.Buffer) { printTest(b, l, aTest(1310), width, verbose) }
				tables["invalid "+how+l.Tag] = func(b *bytes.Buffer) { printTest(b, l, spoilt(), width, verbose) }
			}
			tables["tuning "+l.Tag] = func(b *bytes.Buffer) {
				if err := report.TuningIn(b, l, aTuning(), width); err != nil {
					t.Error(err)
				}
			}
		}
		tables["history"] = func(b *bytes.Buffer) {
			if err := printEntries(b, entries, width); err != nil {
				t.Error(err)
			}
		}
		for name, print := range tables {
			var b bytes.Buffer
			print(&b)
			for line := range strings.Lines(b.String()) {
				if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > width {
					t.Errorf("%s has %d columns on %d: %s", name, n, width, line)
				}
			}
		}
	}
}

// A change that rounds to 0 has no minus sign.
func TestSigned(t *testing.T) {
	for v, want := range map[float64]string{-0.04: "+0.0", 0.04: "+0.0", -0.06: "-0.1", 0: "+0.0", -12.34: "-12.3"} {
		if got := signed(v); got != want {
			t.Errorf("%v is written %q, want %q", v, got, want)
		}
	}
	for n, want := range map[int]string{0: "", 1: " (and 1 more reason)", 2: " (and 2 more reasons)"} {
		if got := reason.English().MoreReasons(n); got != want {
			t.Errorf("%d more: %q, want %q", n, got, want)
		}
	}
}
