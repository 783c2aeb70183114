package report_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"unbloat/internal/keep/incident"
	"unbloat/internal/show/report"
	"unbloat/reason"
	"unbloat/unit"
)

// badDay is a day with three faults, judged from its seconds: an outage beyond the first
// hop, a line that loses, and a shaper above what the line carries.
func badDay() report.Dossier {
	start := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	far := []string{"Cloudflare", "Google", "Quad9"}
	j := incident.New(incident.Params{WAN: "pppoe-wan", Promised: [2]unit.Rate{50e6, 10e6}, Far: far})
	d := report.Dossier{WAN: "pppoe-wan", From: start, To: start.Add(24 * time.Hour), Made: start.Add(25 * time.Hour), Version: "1", Promised: [2]unit.Rate{50e6, 10e6}}
	for i := range 24 * 3600 {
		at := start.Add(time.Duration(i) * time.Second)
		s := incident.Second{At: at, Far: make([]incident.Answers, 3), CPU: 0.1, WAN: incident.Port{Known: true, Up: true}}
		s.Way[0], s.Way[1] = incident.Way{Rate: 47.5e6, Carried: unit.Rate(1e6 + i%7*1e5)}, incident.Way{Rate: 9.5e6, Carried: 2e5}
		minute := i / 60
		outage, loss, queue := minute >= 9*60 && minute < 9*60+6, minute >= 14*60 && minute < 14*60+9, minute >= 20*60 && minute < 20*60+12
		wait := time.Duration(i%5) * 400 * time.Microsecond
		if queue {
			s.Way[0].Carried, s.Way[0].Rate = 48.7e6, 60e6
			wait += 160*time.Millisecond + time.Duration(i*7919%60)*time.Millisecond
		}
		lost := outage || loss && i*7919%10 < 4
		s.First.Asked, s.Far[i%3].Asked = 1, 1
		if !loss || i*104729%10 >= 4 {
			s.First.Answered, s.First.RTT = 1, unit.Milliseconds(8*time.Millisecond+wait)
		}
		if !lost {
			s.Far[i%3].Answered, s.Far[i%3].RTT = 1, unit.Milliseconds(time.Duration(14+i%3*5)*time.Millisecond+wait)
		}
		if outage {
			s.Way[0].Carried = 0
		}
		for _, x := range j.Take(s) {
			if x.Over() {
				d.Incidents = append(d.Incidents, report.DossierItem{Incident: x, Text: string(incident.CSV(x.Samples, x.Far))})
			}
		}
	}
	return d
}

// A dossier has each incident with what it was, why a part is to blame, its picture and
// its checksum, in both languages; the checksum over all is that of the CSV file; names
// from outside are escaped.
func TestDossier(t *testing.T) {
	d := badDay()
	if len(d.Incidents) != 3 {
		t.Fatalf("%d incidents of 3", len(d.Incidents))
	}
	for i, want := range []struct {
		kind incident.Kind
		part incident.Part
	}{{incident.Outage, incident.Provider}, {incident.Loss, incident.Line}, {incident.Bloat, incident.Router}} {
		if x := d.Incidents[i]; x.Kind != want.kind || x.Part != want.part {
			t.Errorf("incident %d is %s of %s, want %s of %s (%s)", i, x.Kind, x.Part, want.kind, want.part, x.Why)
		}
	}
	d.WAN = "<script>alert(1)</script>\x1b[2J"
	var raw bytes.Buffer
	if err := report.WriteDossier(report.FormatCSV, &raw, d); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(bytes.NewReader(raw.Bytes())).ReadAll()
	if err != nil || len(rows) < 1500 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	for _, l := range reason.Languages() {
		d.Language = l
		var page bytes.Buffer
		if err := report.WriteDossier(report.FormatHTML, &page, d); err != nil {
			t.Fatal(err)
		}
		text := page.String()
		for _, want := range []string{`lang="` + l.Tag + `"`, incident.Digest(raw.Bytes()), d.Incidents[0].Digest, l.Name("part provider"), reason.WithDossier(l).Name("dossier method"), "Cloudflare", "6 min 00 s"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: %q is missing", l.Tag, want)
			}
		}
		if strings.Contains(text, "<script") || strings.Contains(text, "\x1b") || strings.Contains(text, "{") && strings.Contains(text, ":d}") || strings.Contains(text, "dossier ") && strings.Contains(text, ">dossier ") {
			t.Errorf("%s: markup or a template got through", l.Tag)
		}
		if n := strings.Count(text, "<svg"); n != 6 {
			t.Errorf("%s: %d pictures, want one of each incident for a wide page and for a phone", l.Tag, n)
		}
		if dir := os.Getenv("UNBLOAT_LOOK"); dir != "" {
			if err := os.WriteFile(filepath.Join(dir, "dossier-"+l.Tag+".html"), page.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	var object bytes.Buffer
	if err := report.WriteDossier(report.FormatJSON, &object, d); err != nil {
		t.Fatal(err)
	}
	var back report.Dossier
	if err := json.Unmarshal(object.Bytes(), &back); err != nil || back.SHA256 != incident.Digest(raw.Bytes()) || incident.Digest([]byte(back.Incidents[1].Text)) != back.Incidents[1].Digest {
		t.Errorf("as JSON: %s, %v", back.SHA256, err)
	}
	if err := report.WriteDossier(report.FormatPNG, &object, d); !errors.Is(err, report.ErrUnsuitable) {
		t.Errorf("as PNG: %v", err)
	}
	d.Incidents = nil
	object.Reset()
	if err := report.WriteDossier(report.FormatHTML, &object, d); err != nil || !strings.Contains(object.String(), reason.WithDossier(reason.German()).Say(reason.DossierNone)) {
		t.Errorf("without incidents: %v", err)
	}
}
