package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"unbloat/internal/show/cli"
)

// TestManual: every command that help lists has a manual page in which mandoc
// finds nothing, and which is the same whoever writes it.
func TestManual(t *testing.T) {
	write := func(env ...string) string {
		dir := filepath.Join(t.TempDir(), "man1")
		if code, out, errs := ran(t, append(env, asProgram+"=1", "SOURCE_DATE_EPOCH=1700000000"), os.Args[0], "manual", dir); code != cli.Done || out+errs != "" {
			t.Fatalf("exit code %d, %q, %q", code, out, errs)
		}
		return dir
	}
	dir, other := write(), write("HOME=/home/other", "UNBLOAT_STORE=/elsewhere", "UNBLOAT_STATE_DIR=/elsewhere", "UNBLOAT_ROOT=/elsewhere", "LANG=de_DE.UTF-8", "GOMAXPROCS=1")
	pages, err := filepath.Glob(filepath.Join(dir, "*.1"))
	if err != nil || len(pages) < 25 {
		t.Fatalf("%q, %v", pages, err)
	}
	for _, name := range []string{"unbloat.1", "unbloat-plan.1", "unbloat-test.1"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !strings.Contains(string(text), "2023-11-14") {
			t.Errorf("%s: %v: %.200s", name, err, text)
		}
	}
	mandoc, err := exec.LookPath("mandoc")
	if err != nil {
		t.Logf("mandoc: SKIPPED: %v", err)
	}
	for _, page := range pages {
		one, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		if two, err := os.ReadFile(filepath.Join(other, filepath.Base(page))); err != nil || string(one) != string(two) {
			t.Errorf("%s is another page where other variables are set: %v", filepath.Base(page), err)
		}
		if mandoc == "" {
			continue
		}
		if out, err := exec.CommandContext(t.Context(), mandoc, "-T", "lint", page).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s: %v: %s", filepath.Base(page), err, out)
		}
	}
}
