package report

import (
	"compress/gzip"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"unbloat/testkit/await"
)

func TestFlentFile(t *testing.T) {
	test := fakeTest(before())
	z, err := gzip.NewReader(strings.NewReader(render(t, FormatFlent, Page{After: test})))
	if err != nil {
		t.Fatal(err)
	}
	var f flentFile
	if err := json.NewDecoder(z).Decode(&f); err != nil {
		t.Fatal(err)
	}
	if f.Version != 4 || f.Metadata.Name != "rrul_be" || f.Metadata.T0 != "2026-03-01T14:13:15.500000Z" {
		t.Errorf("version %d, %+v", f.Version, f.Metadata)
	}
	for name, v := range f.Results {
		if len(v) != len(f.X) {
			t.Errorf("%s: %d values for %d times", name, len(v), len(f.X))
		}
	}
	sent, lost := 0, 0
	for _, p := range test.Phases() {
		sent += len(p.Series.TS)
	}
	for _, p := range f.Raw[flentPing] {
		if p.Lost {
			lost++
		}
	}
	if len(f.Raw[flentPing]) != sent || lost == 0 {
		t.Errorf("%d raw probes of %d, %d lost", len(f.Raw[flentPing]), sent, lost)
	}
	if err := WriteFile(filepath.Join(t.TempDir(), "x.flent.gz"), Page{Before: test, After: test}); err == nil {
		t.Error("two results in one flent file were accepted")
	}
}

// TestFlentPlots: flent itself opens our files and draws them.
func TestFlentPlots(t *testing.T) {
	if _, err := exec.LookPath("flent"); err != nil {
		t.Skip("SKIPPED: flent not installed")
	}
	await.NotShort(t)
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a.flent.gz"), filepath.Join(dir, "b.flent.gz")
	for path, l := range map[string]fakeLine{a: before(), b: after()} {
		if err := WriteFile(path, Page{After: fakeTest(l)}); err != nil {
			t.Fatal(err)
		}
	}
	for plot, files := range map[string][]string{"ping_cdf": {a}, "totals": {a}, "all_scaled": {a}, "box_combine": {a, b}} {
		out := filepath.Join(dir, plot+".png")
		cmd := exec.CommandContext(t.Context(), "flent", append([]string{"-p", plot, "-o", out, "-i"}, files...)...)
		cmd.Env = append(os.Environ(), "HOME="+dir, "MPLBACKEND=Agg")
		text, err := cmd.CombinedOutput()
		if fi, e := os.Stat(out); err != nil || e != nil || fi.Size() < 5000 {
			t.Errorf("flent -p %s: %v\n%s", plot, err, text)
		}
	}
}
