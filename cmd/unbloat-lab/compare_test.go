package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"html"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"unbloat/internal/show/cli"
	"unbloat/lab"
)

// Without names `lab compare` takes all scenarios that have the last case, and
// the cases that it is compared with. Naming a scenario without any of the
// cases is wrong usage.
func TestLabCompareChooses(t *testing.T) {
	names := func(given []string, cases ...string) []string {
		t.Helper()
		compared, err := toCompare(given, cases)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, s := range compared {
			out = append(out, s.Name)
		}
		return out
	}
	ours := names(nil, "before", "fq_codel", "cake", "ours")
	for _, want := range []string{"many", "flood", "slow-uplink", "slow-uplink-idle", "torrent-tcp-alone"} {
		if !slices.Contains(ours, want) {
			t.Errorf("%s is missing of %v", want, ours)
		}
	}
	if slices.Contains(ours, "seed-000") || slices.Contains(ours, "exact-link") {
		t.Errorf("what has no case ours is there: %v", ours)
	}
	lines := names(nil, "before", "seed", "tuned")
	slices.Sort(lines)
	if want := []string{"many", "seed-000", "seed-001", "seed-002", "seed-003", "seed-004"}; !slices.Equal(lines, want) {
		t.Errorf("the articles' lines: %v", lines)
	}
	if got := names([]string{"exact-link"}, "before", "ours"); len(got) != 1 {
		t.Errorf("named: %v", got)
	}
	for _, cases := range [][]string{{"ours"}, {"nobody"}} {
		if _, err := toCompare([]string{"exact-link"}, cases); err == nil {
			t.Errorf("exact-link has no case %v, and was taken", cases)
		}
	}
	if _, err := toCompare(nil, []string{"nobody"}); err == nil {
		t.Error("a case that no scenario has was taken")
	}
}

// A comparison is written as a self-contained page, with the simulator and with
// a kernel. Other types of files are refused.
func TestLabComparePage(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "compare.html")
	compare := func(args ...string) (string, error) {
		var out bytes.Buffer
		root := newRootCommand()
		root.SetArgs(append([]string{"lab", "compare", "slow-many", "--engine", "sim", "--quiet"}, args...))
		root.SetOut(&out)
		err := root.ExecuteContext(t.Context())
		return out.String(), err
	}
	out, err := compare("--case", "cake,ours", "-o", path)
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	row := strings.Split(out, "\n")[2]
	for cell := range strings.SplitSeq(strings.Trim(row, "| "), " | ") {
		if !strings.Contains(string(page), html.EscapeString(cell)) {
			t.Errorf("%q is in the table and not in the page", cell)
		}
	}
	if _, err := compare("-o", filepath.Join(dir, "compare.png")); err == nil {
		t.Error("a comparison was written as a picture")
	}
}

// Every compared scenario is in exactly one file of docs/evidence. The files
// there are exactly those of the subjects, as the program writes them.
func TestEvidenceOfEverySubject(t *testing.T) {
	in := map[string]string{} // scenario → file
	for _, sub := range subjects() {
		for _, name := range sub.scenarios {
			if in[name] != "" {
				t.Errorf("%s is in %s and in %s", name, in[name], sub.file)
			}
			in[name] = sub.file
		}
	}
	for _, cases := range [][]string{lab.CompareCases(), seedCases()} {
		compared, err := toCompare(nil, cases)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range compared {
			if in[s.Name] == "" {
				t.Errorf("%s is compared and in no file of docs/evidence", s.Name)
			}
		}
	}
	const dir = "../../docs/evidence"
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	byHand := []string{"incidents.md", "notes.md", "simulator.md"}
	if len(entries) != len(subjects())+len(byHand) {
		t.Errorf("%d files in docs/evidence, and %d subjects beside %q", len(entries), len(subjects()), byHand)
	}
	for _, sub := range subjects() {
		text, err := os.ReadFile(filepath.Join(dir, sub.file+".md"))
		if err != nil {
			t.Error(err)
			continue
		}
		if want := lab.EvidenceHeader + "\n# " + sub.title + "\n"; !strings.HasPrefix(string(text), want) {
			t.Errorf("docs/evidence/%s.md does not begin with %q: `make compare` writes it", sub.file, want)
		}
		for _, name := range sub.scenarios {
			if !strings.Contains(string(text), "\n## "+name+"\n") {
				t.Errorf("docs/evidence/%s.md has no table of %s: `make compare` writes it", sub.file, name)
			}
		}
	}
}

// With several seeds a comparison keeps each result in a file: results in the
// file are not measured again, also for a table of other cases. A line that is
// cut short is measured again.
func TestLabCompareResumes(t *testing.T) {
	kept := filepath.Join(t.TempDir(), "kept.jsonl")
	compare := func(args ...string) (stdout, stderr string, err error) {
		var out, progress bytes.Buffer
		root := newRootCommand()
		root.SetArgs(append([]string{"lab", "compare", "slow-many", "--engine", "sim", "--resume", kept, "--seeds", "2"}, args...))
		root.SetOut(&out)
		root.SetErr(&progress)
		err = root.ExecuteContext(t.Context())
		return out.String(), progress.String(), err
	}
	lines := func() [][]byte {
		text, err := os.ReadFile(kept)
		if err != nil {
			t.Fatal(err)
		}
		return bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"))
	}
	first, _, err := compare("--case", "ours")
	if err != nil {
		t.Fatal(err)
	}
	if got := lines(); len(got) != 2 {
		t.Fatalf("%d results were kept of two seeds", len(got))
	}
	whole, err := os.ReadFile(kept)
	if err != nil {
		t.Fatal(err)
	}
	if again, _, err := compare("--case", "ours"); err != nil || again != first || len(lines()) != 2 {
		t.Errorf("again: %v; %d results; got\n%s\nwant\n%s", err, len(lines()), again, first)
	}
	if both, _, err := compare("--case", "cake,ours"); err != nil || len(lines()) != 4 || !strings.Contains(both, strings.Split(strings.Split(first, "\n")[2], " | ")[1]) {
		t.Errorf("with another case: %v; %d results in the file;\n%s", err, len(lines()), both)
	}
	var r lab.Result
	if err := json.Unmarshal(lines()[3], &r); err != nil || len(r.Cases) != 1 || r.Cases[0].Name != "cake" || r.Seed != 2 {
		t.Errorf("what was missing was run alone: %v, seed %d, %d cases", err, r.Seed, len(r.Cases))
	}
	if err := os.WriteFile(kept, whole[:len(whole)-9], 0o644); err != nil {
		t.Fatal(err)
	}
	if again, _, err := compare("--case", "ours"); err != nil || again != first || len(lines()) != 2 {
		t.Errorf("after a line that was cut off: %v; %d results; got\n%s\nwant\n%s", err, len(lines()), again, first)
	}
	for _, args := range [][]string{{"--seeds", "0"}, {"--markdown", t.TempDir()}} {
		if _, _, err := compare(args...); !wrongUsage(err) {
			t.Errorf("%v: %v, want a wrong usage", args, err)
		}
	}
	if err := os.WriteFile(kept, []byte("{}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err := compare("--case", "ours"); !wrongUsage(err) {
		t.Errorf("results of something else: %v, want a wrong usage", err)
	}
}

// The files of the subjects are made from the tables. If a scenario is in two
// tables its cases are in one table of the file.
func TestEvidenceOfTables(t *testing.T) {
	runs := labRuns{engine: lab.Sim}
	var tables []comparedTable
	for _, cases := range [][]string{{"cake"}, {"ours"}} {
		s, err := loadScenario("slow-many")
		if err != nil {
			t.Fatal(err)
		}
		row := lab.Row{Scenario: s}
		for seed := uint64(1); seed <= 2; seed++ {
			r, err := runs.result(t.Context(), s, cases, seed)
			if err != nil {
				t.Fatal(err)
			}
			row.Results = append(row.Results, r)
		}
		tables = append(tables, comparedTable{cases: cases, rows: []lab.Row{row}})
	}
	dir := filepath.Join(t.TempDir(), "new")
	if err := writeEvidence(dir, tables, ""); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "connections.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{lab.EvidenceHeader + "\n# Hundreds of connections\n", "--seeds 2 --markdown", "the simulator", "Seeds: 1, 2\n", "\n| CAKE | ", "\n| unbloat | "} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
}

func wrongUsage(err error) bool {
	var exit *cli.Error
	return errors.As(err, &exit) && exit.Code == cli.Usage
}
