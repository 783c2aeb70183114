//go:build !router

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"unbloat/internal/keep/daemon"
	"unbloat/internal/keep/incident"
	"unbloat/internal/show/cli"
	"unbloat/internal/show/report"
	"unbloat/internal/show/store"
	"unbloat/reason"
	"unbloat/unit"
)

// Incidents of a file are listed, shown with their samples, and made a dossier, whose CSV
// has the checksum that its page names; what can't be done is said.
func TestIncidents(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "history.db")
	now := time.Now().UTC().Truncate(time.Second)
	x := incident.Incident{ID: "one", WAN: "eth0", Kind: incident.Outage, Part: incident.Provider, Severity: incident.Severe, Begin: now.Add(-2 * time.Hour), End: now.Add(-110 * time.Minute), Far: []string{"a"}}
	x.Figures.Promised = [2]unit.Rate{50e6, 10e6}
	x.What, x.Why = reason.Of(reason.IncidentOutage, "asked", 600, "answered", 0), reason.Of(reason.BlameUnknown)
	for i := range 700 {
		s := incident.Second{At: x.Begin.Add(time.Duration(i-60) * time.Second), Far: []incident.Answers{{Asked: 1}}, CPU: -1}
		if i < 60 || i > 660 {
			s.Far[0] = incident.Answers{Asked: 1, Answered: 1, RTT: unit.Milliseconds(20 * time.Millisecond)}
		}
		x.Samples = append(x.Samples, s)
	}
	x.Digest = incident.Digest(incident.CSV(x.Samples, x.Far))
	s, err := store.Open(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.AddIncidents(t.Context(), []incident.Incident{x}, now); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) (string, int, error) {
		root := newRootCommand()
		var out bytes.Buffer
		root.SetOut(&out)
		root.SetErr(&out)
		root.SetArgs(append(args, "--store", file, "--state-dir", dir, "--lang", "en"))
		err := root.ExecuteContext(t.Context())
		return out.String(), cli.ExitCode(err), err
	}
	out, code, err := run("incidents")
	if code != cli.Done || !strings.Contains(out, "0 of 600 probes were answered") || !strings.Contains(out, "the provider") || !strings.Contains(out, "10m0s") {
		t.Errorf("exit %d, %v:\n%s", code, err, out)
	}
	if out, code, err = run("incidents", "--from", "1h"); code != cli.Done || !strings.Contains(out, "Nothing went wrong") {
		t.Errorf("of the last hour: exit %d, %v:\n%s", code, err, out)
	}
	out, code, err = run("incidents", "one", "--json")
	var got daemon.Incidents
	if code != cli.Done || json.Unmarshal([]byte(out), &got) != nil || len(got.Incidents) != 1 || incident.Digest([]byte(got.Samples)) != x.Digest {
		t.Errorf("one of them: exit %d, %v:\n%.300s", code, err, out)
	}
	path := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"d.html", "d.csv", "d.json"} {
		if out, code, err = run("report", "--incidents", "--from", "1d", "-o", path(name)); code != cli.Done {
			t.Fatalf("%s: exit %d, %v: %s", name, code, err, out)
		}
	}
	page, _ := os.ReadFile(path("d.html"))
	raw, _ := os.ReadFile(path("d.csv"))
	if !bytes.Contains(page, []byte(incident.Digest(raw))) || !bytes.Contains(page, []byte("50.0 Mbit/s down")) {
		t.Error("the page does not have the checksum of the CSV file, or what was promised")
	}
	text, _ := os.ReadFile(path("d.json"))
	var d report.Dossier
	if json.Unmarshal(text, &d) != nil || d.SHA256 != incident.Digest(raw) || len(d.Incidents) != 1 {
		t.Errorf("%.300s", text)
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"incidents", "two"}, cli.Usage, `no incident "two"`},
		{[]string{"incidents", "--from", "yesterday"}, cli.Usage, "--from"},
		{[]string{"incidents", "--from", "1h", "--to", "2h"}, cli.Usage, "--to must be after"},
		{[]string{"report", "--incidents"}, cli.Usage, "needs -o FILE"},
		{[]string{"report", "--incidents", "x.json", "-o", path("d.html")}, cli.Usage, "takes no result"},
		{[]string{"report", "--incidents", "-o", path("d.png")}, cli.Usage, "dossier is"},
	} {
		out, code, err := run(c.args...)
		if err != nil {
			out += err.Error()
		}
		if code != c.code || !strings.Contains(out, c.want) {
			t.Errorf("%v: exit %d, want %d with %q: %s", c.args, code, c.code, c.want, out)
		}
	}
}
