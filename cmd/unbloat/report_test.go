package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"unbloat/internal/show/cli"
)

// reportRun runs `unbloat report` and returns what it printed and its exit code.
func reportRun(t *testing.T, stdin string, args ...string) (string, int, error) {
	t.Helper()
	var out bytes.Buffer
	root := newRootCommand()
	root.SetArgs(append([]string{"report"}, args...))
	root.SetIn(strings.NewReader(stdin))
	root.SetOut(&out)
	err := root.Execute()
	var e *cli.Error
	switch {
	case err == nil:
		return out.String(), cli.Done, nil
	case errors.As(err, &e):
		return out.String(), e.Code, err
	}
	return out.String(), cli.Failed, err
}

const (
	reportBefore = `{"schema":"unbloat.test/1","valid":true,"grade":"F","idle":{"latency":{"sent":9,"received":9,"rtt_ms":{"min":19,"p50":20,"p95":21,"max":22}}},
"upload":{"saturated":true,"goodput_up_bps":4.7e6,"latency":{"sent":9,"received":9,"rtt_ms":{"min":900,"p50":1000,"p95":1270,"max":1300},"increase_ms":{"p50":980,"p95":1250}}}}`
	reportAfter = `{"schema":"unbloat.test/1","valid":true,"grade":"A+","idle":{"latency":{"sent":9,"received":9,"rtt_ms":{"min":19,"p50":20,"p95":21,"max":22}}},
"upload":{"saturated":true,"goodput_up_bps":4.6e6,"latency":{"sent":9,"received":9,"rtt_ms":{"min":20,"p50":24,"p95":26,"max":27},"increase_ms":{"p50":4,"p95":6}}}}`
)

func TestReportCommand(t *testing.T) {
	dir := t.TempDir()
	path := func(name, text string) string {
		p := filepath.Join(dir, name)
		if text != "" {
			if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return p
	}
	before, after := path("before.json", reportBefore), path("after.json", reportAfter)
	lab := path("lab.json", `{"schema":"unbloat.lab/1","cases":[{"name":"before","test":`+reportBefore+`},{"name":"tuned","test":`+reportAfter+`}]}`)
	broken := path("broken.json", `{"schema":"unbloat.test/1",`)
	const change = "While uploading, calls waited an extra 1250 ms before and 6 ms after; upload"
	for _, c := range []struct {
		args []string
		code int
		want string // in the output, or in the error
	}{
		{[]string{before, after}, cli.Done, change},
		{[]string{lab}, cli.Done, change},
		{[]string{before, "-"}, cli.Done, change},
		{[]string{after}, cli.Done, "Grade A+"},
		{[]string{before, after, "--json"}, cli.Done, `"schema": "unbloat.report/1"`},
		{[]string{before, after, "-o", path("x.html", "")}, cli.Done, ""},
		{nil, cli.Usage, "takes one or more results"},
		{[]string{broken}, cli.Usage, "broken.json: not JSON: line 1"},
		{[]string{path("none.json", "")}, cli.Usage, "none.json"},
		{[]string{before, "-o", path("x.doc", "")}, cli.Usage, ".doc"},
		{[]string{before, after, "-o", path("x.flent.gz", "")}, cli.Usage, "holds one result"},
		{[]string{before, "-o", filepath.Join(dir, "no", "x.svg")}, cli.Failed, "x.svg"},
		{[]string{before, "--plan", after}, cli.Usage, "after.json"},
	} {
		out, code, err := reportRun(t, reportAfter, c.args...)
		text := strings.Join(strings.Fields(out), " ")
		if err != nil {
			text = err.Error()
		}
		if code != c.code || !strings.Contains(text, c.want) {
			t.Errorf("report %v: exit %d, want %d with %q; got %s", c.args, code, c.code, c.want, text)
		}
	}
	if page, err := os.ReadFile(path("x.html", "")); err != nil || !bytes.Contains(page, []byte(change)) {
		t.Errorf("x.html: %v", err)
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*.tmp"))
	if _, err := os.Stat(path("x.flent.gz", "")); err == nil || len(files) > 0 {
		t.Errorf("a failed report left a file: %v", files)
	}
}
