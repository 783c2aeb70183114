package main

import (
	"os"
	"path/filepath"
	"testing"
)

// asProgram is set where the test's binary is to be the program itself.
const asProgram = "UNBLOAT_TEST_AS_PROGRAM"

// TestMain keeps what the tests measure out of the user's own results.
func TestMain(m *testing.M) {
	if self, err := os.Executable(); err == nil && os.Getenv(onStage) != "" && filepath.Base(os.Args[0]) != filepath.Base(self) {
		os.Exit(act(os.Getenv(onStage)))
	}
	if os.Getenv(asProgram) != "" {
		main()
	}
	dir, err := os.MkdirTemp("", "unbloat-test-")
	if err != nil {
		panic(err)
	}
	os.Setenv("UNBLOAT_STORE", filepath.Join(dir, "results.db"))
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// Every error becomes the exit code of the contract.
func TestExitCodes(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.toml")
	if err := os.WriteFile(bad, []byte("name = \"x\"\n[line]\ndown = \"3\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		want int
		args []string
	}{
		{exitDone, []string{"--help"}},
		{exitDone, []string{"--version"}},
		{exitDone, []string{"lab", "list"}},
		{exitDone, []string{"plan", "--down", "30mbit", "--up", "5mbit", "--quiet"}},
		{exitDone, []string{"lab", "run", "exact-link", "--engine", "sim", "--quiet"}},
		{exitUsage, []string{"frobnicate"}},
		{exitUsage, []string{"lab", "frobnicate"}},
		{exitUsage, []string{"sim", "frobnicate"}},
		{exitUsage, []string{"plan", "--down", "30"}},
		{exitUsage, []string{"plan", "--down", "0mbit", "--up", "1mbit"}},
		{exitUsage, []string{"plan", "--down", "-3mbit", "--up", "1mbit"}},
		{exitUsage, []string{"plan", "--down", "1000tbit", "--up", "1mbit"}},
		{exitUsage, []string{"lab", "run", bad}},
		{exitUsage, []string{"lab", "run", "no-such-scenario"}},
		{exitUsage, []string{"lab", "run", "seed-003", "--case", "no-such-case"}},
		{exitUsage, []string{"lab", "run", "seed-003", "--engine", "steam"}},
		{exitUsage, []string{"test"}},
		{exitUsage, []string{"test", "--server", "ftp://x"}},
		{exitUsage, []string{"tune"}},
		{exitUsage, []string{"tune", "--server", "x", "--report", "x.doc"}},
		{exitUsage, []string{"demo", "--report", "x.doc"}},
		{exitPrecondition, []string{"test", "--server", "127.0.0.1:1", "--quiet"}},
		{exitUsage, []string{"sim", "replay", "/no/such/file"}},
	} {
		if got := run(c.args); got != c.want {
			t.Errorf("unbloat %v: exit code %d, want %d", c.args, got, c.want)
		}
	}
}
