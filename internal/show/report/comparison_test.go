package report

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"unbloat/internal/measure/verdict"
)

// The page of a comparison has every scenario with all of its cases, in order,
// and charts for wide and for narrow pages. Strings cannot inject HTML.
func TestComparison(t *testing.T) {
	c := Comparison{Title: "Ours beside others", Notes: []string{"in one run"}, Tables: []ComparisonTable{{Title: "Households", Rows: []ComparisonRow{
		{"many", "30/5 Mbit/s", []ComparisonCase{{"fq_codel", fakeTest(before()), "+171 ms, 3.9 % lost", false}, {"ours", fakeTest(after()), "+6.1 ms", true}}},
		{"<script>alert(1)</script>", "1/1 Mbit/s", []ComparisonCase{{"cake", fakeTest(after()), "<img src=x>", false}, {"ours", nil, "not measured", true}}},
	}}}}
	dir := os.Getenv("REPORT_LOOK")
	if dir == "" {
		dir = t.TempDir()
	}
	path := filepath.Join(dir, "comparison.html")
	if err := WriteComparisonFile(path, c); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got := string(text)
	at := 0
	for _, want := range []string{"<!doctype html>", "Ours beside others", "in one run", "Households", "<svg", "<svg", "many: 30/5 Mbit/s", "+171 ms, 3.9 % lost",
		"+6.1 ms", "&lt;script&gt;", "&lt;img src=x&gt;", "not measured", "</html>"} {
		n := strings.Index(got[at:], want)
		if n < 0 {
			t.Fatalf("%q is missing after %d bytes", want, at)
		}
		at += n + len(want)
	}
	for _, never := range []string{"<script", "<img", "http:", "https:"} {
		if strings.Contains(strings.ReplaceAll(got, "http://www.w3.org/2000/svg", ""), never) {
			t.Errorf("%q is in the page", never)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*.tmp")); left != nil {
		t.Errorf("left behind: %v", left)
	}
}

// A comparison without figures is refused, and nothing is written.
func TestComparisonOfNothing(t *testing.T) {
	var b bytes.Buffer
	none := Comparison{Tables: []ComparisonTable{{Rows: []ComparisonRow{{"a", "", []ComparisonCase{{"ours", &verdict.Test{}, "–", true}}}}}}}
	for _, c := range []Comparison{{}, none} {
		if err := WriteComparison(&b, c); !errors.Is(err, ErrNoCase) || b.Len() > 0 {
			t.Errorf("%v, %d bytes", err, b.Len())
		}
	}
}
