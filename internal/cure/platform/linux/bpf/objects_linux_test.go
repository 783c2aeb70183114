package bpf_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The objects are what the source makes, for both byte orders, with the clang that
// doc.go names.
func TestObjectsAreWhatTheSourceMakes(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	made := 0
	for line := range strings.Lines(string(text)) {
		command, ok := strings.CutPrefix(line, "//go:generate ")
		if !ok {
			continue
		}
		for _, tool := range []string{"clang-19", "llvm-strip-19", "llvm-objcopy-19"} {
			if _, err := exec.LookPath(tool); err != nil {
				t.Skipf("SKIPPED: %s is missing; install clang-19 and llvm-19 to build the BPF objects again", tool)
			}
		}
		argv := strings.Fields(command)
		cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
		if made++; argv[0] == "go" {
			cmd = exec.CommandContext(t.Context(), argv[0], append([]string{argv[1], argv[2], "-output-dir", dir}, argv[3:]...)...)
		} else {
			cmd.Dir = dir
		}
		cmd.Env = append(os.Environ(), "GOPACKAGE=bpf")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", command, err, out)
		}
	}
	if made == 0 {
		t.Fatal("doc.go does not say how the objects are made")
	}
	for _, order := range []string{"bpfel", "bpfeb"} {
		for _, ext := range []string{".o", ".go"} {
			name := "classifier_" + order + ext
			want, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s is not what classifier.c makes (%v); run go generate", name, err)
			}
		}
	}
}
