package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"unbloat/internal/cure/platform"
	"unbloat/internal/keep/incident"
	"unbloat/internal/show/cli"
	"unbloat/internal/show/store"
	"unbloat/reason"
	"unbloat/testkit/await"
)

// fits checks what a terminal of a width got against what a file gets: no line is longer than
// the terminal, but one with a single word that is, and no word is broken.
func fits(t *testing.T, what string, width int, narrow, whole string) {
	t.Helper()
	words := map[string]bool{"·": true, "ms": true, "%": true}
	for _, w := range strings.Fields(whole) {
		words[strings.Trim(w, ",%")] = true
	}
	for line := range strings.Lines(narrow) {
		line = strings.TrimRight(line, " \r\n")
		if n := utf8.RuneCountInString(line); n > width && len(strings.Fields(line)) > 1 {
			t.Errorf("%s: %d columns of %d: %q", what, n, width, line)
		}
		for _, w := range strings.Fields(line) {
			if w = strings.Trim(w, ",%"); !words[w] && w != "" {
				t.Errorf("%s: %d columns: no such word as %q in %q", what, width, w, line)
			}
		}
	}
	if strings.TrimSpace(narrow) == "" {
		t.Errorf("%s says nothing", what)
	}
}

// On terminals of 50 and of 80 columns nothing that people read is broken within a word or
// runs over the edge: what plan, apply, status, doctor, incidents and test print, and errors.
func TestFitsTerminals(t *testing.T) {
	await.NotShort(t)
	s, f := newLinux(t)
	rates := []string{"--down", "20mbit", "--up", "4mbit", "--wan", "wan", "--lan", "lan", "--for", "linux"}
	if out, code := s.run(t, append([]string{"apply", "--yes"}, rates...)...); code != cli.Done {
		t.Fatal(out)
	}
	f.Kernel.Missing = []string{"ifb"} // a finding of the doctor
	history := filepath.Join(t.TempDir(), "history.db")
	db, err := store.Open(t.Context(), history)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().UTC().Truncate(time.Second)
	var all []incident.Incident
	for i, kind := range []incident.Kind{incident.Outage, incident.Loss, incident.Bloat} {
		all = append(all, incident.Incident{ID: "of-" + string(kind), WAN: "pppoe-wan", Kind: kind, Part: incident.Provider, Severity: incident.Severe,
			Begin: now.Add(-time.Duration(i+1) * time.Hour), End: now.Add(-time.Duration(i+1)*time.Hour + 3*time.Minute), Far: []string{"a"},
			What: reason.Of(reason.IncidentOutage, "asked", 600, "answered", 0), Why: reason.Of(reason.BlameUnknown)})
	}
	if err := db.AddIncidents(t.Context(), all, now); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	long := []string{"--down", "20mbit", "--up", "4mbit", "--wan", "enp0s31f6.4094a", "--lan", "br-lan", "--for", "linux"}
	for what, args := range map[string][]string{ // at a real terminal
		"plan":             append([]string{"plan"}, long...),
		"plan of openwrt":  {"plan", "--down", "50mbit", "--up", "10mbit", "--for", "openwrt"},
		"plan in one way":  {"plan", "--up", "10mbit", "--for", "openbsd-altq"},
		"incidents":        {"incidents", "--store", history, "--lang", "en"},
		"no incidents":     {"incidents", "--store", history, "--lang", "de", "--from", "1m"},
		"a wrong flag":     {"apply", "--dwon", "20mbit"},
		"a wrong address":  {"status", "--router", "10.1.0.1"},
		"a missing server": {"test", "--server", "127.0.0.1:1", "--seconds", "1s"},
	} {
		whole, _ := s.run(t, args...)
		for _, width := range []uint16{50, 80} {
			fits(t, what, int(width), s.typed(t, width, args...), whole)
		}
	}
	read := func(into any, args ...string) {
		out, _ := s.run(t, append(args, "--json", "--for", "linux")...)
		if err := json.Unmarshal([]byte(out), into); err != nil {
			t.Fatalf("%q: %v: %s", args, err, out)
		}
	}
	var status routerStatus
	var report platform.DoctorReport
	read(&status, "status", "--wan", "wan")
	read(&report, "doctor", "--wan", "wan")
	status.Drift = []drift{{"wan", []string{"the queue on wan is pfifo_fast, not cake"}, "unbloat apply --again --yes --wan wan"}}
	if len(report.Findings) == 0 || len(status.Shapers) == 0 {
		t.Fatalf("%+v %+v", status, report)
	}
	tables := map[string]func(out io.Writer, width int){
		"status":           func(out io.Writer, _ int) { _ = (&routerFlags{short: true}).printStatus(out, &status, nil, 0) },
		"status, verbose":  func(out io.Writer, _ int) { _ = (&routerFlags{}).printStatus(out, &status, nil, 0) },
		"doctor":           func(out io.Writer, _ int) { _ = (&doctorFlags{}).print(out, &report) },
		"test":             func(out io.Writer, width int) { printTest(out, reason.English(), aTest(310), width, false) },
		"a test not valid": func(out io.Writer, width int) { printTest(out, reason.German(), spoilt(), width, false) },
		"a table": func(out io.Writer, width int) {
			cli.Columns(out, width, [][]string{{"", "download", "upload"}, {"interface", "ifb4enp0s31f6.4", "enp0s31f6.4094a"}, {"bytes added per packet", "22", "22"}})
		},
	}
	both := tables["test"]
	tables["test, verbose"] = func(out io.Writer, width int) {
		printTest(out, reason.English(), aTest(310), width, true)
		if width == 0 { // a narrow terminal has the short table
			both(out, width)
		}
	}
	for what, table := range tables {
		for _, width := range []int{50, 80} {
			var narrow, whole bytes.Buffer
			w := cli.FitTo(&narrow, width)
			table(w, width)
			_ = w.Flush() // a buffer has no errors
			table(&whole, 0)
			fits(t, what, width, narrow.String(), whole.String())
		}
	}
}

// typed runs unbloat on the router at a terminal of so many columns.
func (s *stage) typed(t *testing.T, columns uint16, args ...string) string {
	t.Helper()
	term := await.OpenTerminal(t, columns, 24)
	c := exec.Command(os.Args[0], args...)
	c.Env = append(os.Environ(), asProgram+"=1", "PATH="+s.path, "UNBLOAT_STATE_DIR="+s.state, "TERM=xterm")
	c.Stdout, c.Stderr = term.TTY, term.TTY
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait() // whatever its exit code is, it has said something
	await.Until(t, 10*time.Second, "what was printed", func() bool { return strings.HasSuffix(term.Text(), "\n") })
	return strings.ReplaceAll(term.Text(), "\r\x1b[K", "") // which ends a line of progress
}
