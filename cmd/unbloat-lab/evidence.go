package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"unbloat/internal/show/cli"
	"unbloat/lab"
	"unbloat/lab/scenario"
)

// A subject is one file of docs/evidence: the scenarios about one question.
type subject struct {
	file      string // without .md
	title     string
	about     string
	scenarios []string
	// cases are the subject's own, and it is written alone (--subject); nil: those of
	// every comparison.
	cases []string
	lines bool // they are lines that vary
}

// evidenceCommand writes docs/evidence, as `make compare` does.
const evidenceCommand = "unbloat lab compare --seeds %d --markdown docs/evidence"

// subjects are the files of docs/evidence. Each scenario of `unbloat lab
// compare` is in exactly one of them.
func subjects() []subject {
	return []subject{
		{"lines", "Lines that people wrote about",
			"Five lines with bufferbloat: as they are, with the fix of the article that described each, and as `unbloat tune` leaves them. Nothing else runs on the line but the test.",
			[]string{"seed-000", "seed-001", "seed-002", "seed-003", "seed-004"}, nil, false},
		{"connections", "Hundreds of connections",
			"What a call's packets wait and lose while a hundred or two hundred connections fill the line.",
			[]string{"many", "many-htb", "slow-many", "bulk-200"}, nil, false},
		{"household", "Mail, pages and calls",
			"A mail client that fetches thousands of messages, and a slow upload beside somebody who reads pages, each with calls.",
			[]string{"imap", "slow-uplink", "slow-uplink-idle"}, nil, false},
		{"torrents", "BitTorrent",
			"Forty peers of a swarm, by TCP and by uTP, beside two calls. libtorrent asks the processor itself for random numbers, so these figures differ from run to run with the same seed too.",
			[]string{"torrent-tcp", "torrent-tcp-alone", "torrent-utp", "torrent-utp-alone"}, nil, false},
		{"abuse", "A machine that takes too much",
			"One machine floods the uplink, or opens fifty flows that look like calls. The probe is on that machine; a call and an upload are on another.",
			[]string{"flood", "abuser"}, nil, false},
		{"framing", "What the line adds to each packet",
			"ADSL with PPPoE: the line adds 40 bytes to each packet and cuts it into cells of ATM, so an acknowledgement of 52 bytes occupies 106. Five calls and the acknowledgements of a download fill the upload; they want more than it has, so each loses some. The rates are a step below those that a tuning finds; where the framing is not known, the same shares of what the line carries in full packets, counted as Linux does. The probe is one of 100 bytes, 25 a second. Below is how often the framing itself is found.",
			[]string{"adsl"}, lab.FramingCases(), false},
		{"following", "Lines that vary",
			"The daemon follows a line, beside fixed rates, cake-autorate (commit 94238be, unchanged, with fping) and CAKE that knows at every moment what the line carries, at 95 % of it: nobody can do better without knowing. Both programs are told the same rates and have the same six reflectors. The times are round trips of a probe of 100 bytes, 50 a second, over all of the time with load. A call is frozen while its picture stands still, up and down together; the seconds in which the line carried less than 64 kbit/s in the picture's direction are left out, for no router can help there.",
			[]string{"follow-steps", "follow-steps-down", "follow-steps-up", "follow-lte-tmobile", "follow-lte-att", "follow-lte-verizon", "follow-umts-tmobile",
				"follow-starlink", "follow-cable", "follow-wifi", "follow-lte", "follow-floor", "follow-silent",
				"follow-call-lte-tmobile", "follow-call-lte-att", "follow-call-lte-verizon", "follow-call-umts-tmobile", "follow-steady"}, lab.FollowCases(), true},
		{"calls", "Video calls",
			"A real video call (Pion, with congestion control) of 1.5 Mbit/s each way, unless its row says otherwise, and what else runs on its own machine. First on the idle line, to compare the others with. **marked**: CAKE with diffserv4 and the call marked AF41. **rule**: unbloat with a rule that gives the call its class. All rates are fixed.",
			[]string{"call-webrtc-idle", "call-webrtc", "call-webrtc-16", "call-webrtc-many", "call-webrtc-quic", "call-webrtc-slow", "call-webrtc-peers",
				"cloud-game", "cloud-game-downloads", "call-webrtc-tls", "call-webrtc-tunnel", "call-webrtc-abuser"}, lab.CallCases(), false},
	}
}

// evidence returns the pages of docs/evidence from the tables of a run, by file
// name: that of one subject, or those of all that are written together.
func evidence(tables []comparedTable, only string) map[string]lab.Evidence {
	out := map[string]lab.Evidence{}
	for _, sub := range subjects() {
		if sub.file != only && (only != "" || sub.cases != nil) {
			continue
		}
		e := lab.Evidence{Title: sub.title, About: []string{sub.about}, Cases: append(slices.Clone(lab.CompareCases()), "seed", "tuned")}
		command := evidenceCommand
		if sub.cases != nil {
			e.Cases, e.Lines = sub.cases, sub.lines
			command += " --subject " + sub.file
		}
		for _, t := range tables {
			e.Left = append(e.Left, t.left...)
		}
		for _, name := range sub.scenarios {
			row := lab.Row{}
			for _, t := range tables {
				for _, r := range t.rows {
					if r.Scenario.Name == name {
						row.Scenario, row.Results = r.Scenario, merged(row.Results, r.Results)
					}
				}
			}
			if row.Scenario != nil {
				e.Rows = append(e.Rows, row)
				e.Command = fmt.Sprintf(command, len(row.Results))
			}
		}
		out[sub.file+".md"] = e
	}
	return out
}

// merged adds the cases of b to those of a, seed by seed.
func merged(a, b []*lab.Result) []*lab.Result {
	if a == nil {
		return b
	}
	out := make([]*lab.Result, len(a))
	for i, r := range a {
		both := *r
		both.Cases = slices.Concat(r.Cases, b[i].Cases)
		out[i] = &both
	}
	return out
}

// writeEvidence writes the files of all subjects, or of one, into a directory, which
// it creates.
func writeEvidence(dir string, tables []comparedTable, only string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the folder for the tables: %w", err)
	}
	for name, e := range evidence(tables, only) {
		var b bytes.Buffer
		if err := lab.WriteEvidence(&b, e); err != nil {
			return err
		}
		if err := cli.WriteFile(filepath.Join(dir, name), b.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// labRuns runs cases of scenarios and keeps the results in a file, if it has one.
type labRuns struct {
	engine   lab.Engine
	progress io.Writer // nil: silent
	file     string
	kept     []*lab.Result
}

// resume reads the results in a file; a missing file has none. A last line that
// is cut short is overwritten.
func (l *labRuns) resume(file string) error {
	if l.file = file; file == "" {
		return nil
	}
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the results to go on with: %w", err)
	}
	whole := bytes.LastIndexByte(text, '\n') + 1
	lines := bufio.NewScanner(bytes.NewReader(text[:whole]))
	lines.Buffer(nil, 64<<20)
	for n := 1; lines.Scan(); n++ {
		var r lab.Result
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil || r.Schema != lab.Schema {
			return cli.UsageError("--resume %s:%d is not a result of the lab; name the file of an earlier run, or a new one", file, n)
		}
		l.kept = append(l.kept, &r)
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	if whole < len(text) {
		return os.Truncate(file, int64(whole))
	}
	return nil
}

// runnable returns the cases that a scenario has and that can be run here, or are kept
// already. What it leaves out it says.
func (l *labRuns) runnable(s *scenario.Scenario, cases []string) []string {
	var out []string
	for _, name := range lab.Chosen(s, cases) {
		c, err := s.Case(name)
		if err != nil {
			continue
		}
		kept := slices.ContainsFunc(l.kept, func(r *lab.Result) bool {
			return r.Scenario == s.Name && slices.ContainsFunc(r.Cases, func(k lab.CaseResult) bool { return k.Name == name })
		})
		if _, why := lab.Runnable([]scenario.Case{c}); len(why) > 0 && !kept {
			if l.progress != nil {
				fmt.Fprintf(l.progress, "%s: SKIPPED: %v\n", s.Name, why[0])
			}
			continue
		}
		out = append(out, name)
	}
	return out
}

// result returns the results of cases of a scenario with a seed, in the order
// of cases: saved ones, or by running them.
func (l *labRuns) result(ctx context.Context, s *scenario.Scenario, cases []string, seed uint64) (*lab.Result, error) {
	found := map[string]lab.CaseResult{}
	out := lab.Result{}
	take := func(r *lab.Result) {
		if r.Scenario != s.Name || r.Seed != seed || l.engine != "" && r.Engine != l.engine {
			return
		}
		out = *r
		for _, c := range r.Cases {
			found[c.Name] = c
		}
	}
	for _, r := range l.kept {
		take(r)
	}
	missing := slices.DeleteFunc(slices.Clone(cases), func(name string) bool { _, ok := found[name]; return ok })
	if len(missing) > 0 {
		o := lab.Options{Engine: l.engine, Cases: missing, Seed: seed}
		if l.progress != nil {
			o.Started = func(line string) { fmt.Fprintf(l.progress, "seed %d: %s\n", seed, line) }
		}
		r, err := runScenario(ctx, s, o, "")
		if err != nil {
			return nil, err
		}
		if err := l.keep(r); err != nil {
			return nil, err
		}
		take(r)
	}
	out.Cases = nil
	for _, name := range cases {
		out.Cases = append(out.Cases, found[name])
	}
	return &out, nil
}

// keep adds a result to the file.
func (l *labRuns) keep(r *lab.Result) error {
	l.kept = append(l.kept, r)
	if l.file == "" {
		return nil
	}
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(l.file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("keep the result: %w", err)
	}
	_, err = f.Write(append(text, '\n'))
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("keep the result in %s: %w", l.file, err)
	}
	return nil
}
