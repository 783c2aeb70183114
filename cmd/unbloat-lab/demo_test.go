package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"unbloat/internal/show/cli"
	"unbloat/testkit/await"
)

// Without a kernel to run, the demo simulates, says so wherever it shows
// figures, and tells the same story. If a kernel is asked for by a flag, it
// fails.
func TestDemoWithoutKernel(t *testing.T) {
	demo := func(args ...string) (string, int) {
		c := exec.Command(os.Args[0], append([]string{"demo"}, args...)...)
		empty := t.TempDir()
		c.Env = append(os.Environ(), asProgram+"=1", "PATH="+empty, "XDG_CACHE_HOME="+empty, "HOME="+empty)
		var out bytes.Buffer
		c.Stdout, c.Stderr = &out, &out
		if err := c.Run(); c.ProcessState == nil {
			t.Fatal(err)
		}
		return out.String(), c.ProcessState.ExitCode()
	}
	page := filepath.Join(t.TempDir(), "r.html")
	out, code := demo("--report", page)
	if code != cli.Done {
		t.Fatalf("exit code %d:\n%s", code, out)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	const said = "Simulated, not measured: the emulated home cannot run here"
	for name, s := range map[string]string{"what is printed": out, "the report": string(text)} {
		if !strings.Contains(s, said) {
			t.Errorf("%s does not say that it is simulated", name)
		}
	}
	if !strings.Contains(out, "Kept: ") || !strings.Contains(out, "shaped by cake") || strings.Contains(out, "Measured on") {
		t.Errorf("another story:\n%s", out)
	}
	for _, engine := range []string{"virtual", "realtime"} {
		if out, code := demo("--engine", engine, "--report", page); code != cli.Precondition || strings.Contains(out, "Simulated") {
			t.Errorf("--engine %s: exit code %d:\n%s", engine, code, out)
		}
	}
}

// If the kernel stops at once, such as one that needs a newer processor, the
// demo simulates and says why.
func TestDemoWithoutRunningKernel(t *testing.T) {
	await.NotShort(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "linux.uml"), []byte("#!/bin/sh\n[ \"$1\" = --version ] && { echo 6.1.0; exit; }\nkill -ABRT $$\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	self, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "unbloat-lab") // with what is to run in the guest beside it
	for _, name := range []string{program, filepath.Join(dir, "unbloat")} {
		if err := os.WriteFile(name, self, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c := exec.Command(program, "demo", "--report", filepath.Join(dir, "r.html"))
	c.Env = append(os.Environ(), asProgram+"=1", "PATH="+dir+":"+os.Getenv("PATH"), "XDG_CACHE_HOME="+filepath.Join(dir, "cache"), "HOME="+dir)
	out, err := c.CombinedOutput()
	busy := strings.Contains(string(out), "Simulated, not measured: this machine is too busy for an emulated line in real time") // because of other tests
	if err != nil || !busy && !strings.Contains(string(out), "Simulated, not measured: the kernel does not run on this machine") {
		t.Errorf("%v:\n%s", err, out)
	}
}
