//go:build !omit_lab

package main

import (
	"bytes"
	"html"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Without names `lab compare` takes what has the last case, and what that is
// compared with; a name that has none of the cases is wrong usage.
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

// A comparison becomes a page of its own, in the simulator as on a kernel; no
// other kind of file can hold it.
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
