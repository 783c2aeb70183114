package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"unbloat/internal/platform/all"
	"unbloat/internal/platform/testdata/toy"
)

// asProgram is the environment variable with which the test binary acts as the
// program.
const asProgram = "UNBLOAT_TEST_AS_PROGRAM"

// withToy is the environment variable with which the program also has the
// driver of package toy.
const withToy = "UNBLOAT_TEST_TOY"

// TestMain keeps results of tests away from the user's own.
func TestMain(m *testing.M) {
	if self, err := os.Executable(); err == nil && os.Getenv(onStage) != "" && filepath.Base(os.Args[0]) != filepath.Base(self) {
		os.Exit(act(os.Getenv(onStage)))
	}
	if os.Getenv(asProgram) != "" {
		if os.Getenv(withToy) != "" {
			os.Exit(runWith(withDrivers(context.Background(), append(all.Drivers(), toy.Driver())), os.Args[1:]))
		}
		main()
	}
	time.Local = time.UTC // golden files contain times
	os.Setenv("TZ", "UTC")
	dir, err := os.MkdirTemp("", "unbloat-test-")
	if err != nil {
		panic(err)
	}
	os.Setenv(configEnv, "")
	os.Setenv("UNBLOAT_STORE", filepath.Join(dir, "results.db"))
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// Programs in an sbin beside a bin of PATH are found, and no others.
func TestSbin(t *testing.T) {
	for path, want := range map[string]string{
		"/usr/local/bin:/usr/bin:/bin:/usr/games": "/usr/local/bin:/usr/bin:/bin:/usr/games:/usr/local/sbin:/usr/sbin:/sbin",
		"/usr/sbin:/usr/bin":                      "/usr/sbin:/usr/bin",
		"/opt/tools":                              "/opt/tools",
		"":                                        "",
	} {
		if got := withSbin(path); got != want {
			t.Errorf("%q: %q", path, got)
		}
	}
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
		{exitUsage, []string{"why", "udp 10.1.0.2:5004 > 203.0.113.9:5004", "--bytes", "-5"}},
		{exitUsage, []string{"lab", "shell", "exact-link"}}, // standard input is no terminal
		{exitUsage, []string{"sim", "frobnicate"}},
		{exitUsage, []string{"plan", "--down", "30"}},
		{exitUsage, []string{"plan", "--down", "0mbit", "--up", "1mbit"}},
		{exitUsage, []string{"plan", "--down", "-3mbit", "--up", "1mbit"}},
		{exitUsage, []string{"plan", "--down", "1000tbit", "--up", "1mbit"}},
		{exitUsage, []string{"lab", "run", bad}},
		{exitUsage, []string{"lab", "run", "no-such-scenario"}},
		{exitUsage, []string{"lab", "run", "seed-003", "--case", "no-such-case"}},
		{exitUsage, []string{"lab", "run", "seed-003", "--engine", "steam"}},
		{exitUsage, []string{"lab", "run", "seed-003", "--engine", "sim", "--for", "beos"}},
		{exitUsage, []string{"lab", "run", "seed-003", "--engine", "virtual", "--for", "openbsd"}},
		{exitUsage, []string{"tune"}},
		{exitUsage, []string{"test", "--server", "ftp://x"}},
		{exitUsage, []string{"tune"}},
		{exitUsage, []string{"tune", "--server", "x", "--report", "x.doc"}},
		{exitUsage, []string{"demo", "--report", "x.doc"}},
		{exitPrecondition, []string{"test", "--server", "127.0.0.1:1", "--quiet"}},
		{exitUsage, []string{"test", "--server", "rpm+https://127.0.0.1", "--pin", "55fc"}},
		{exitUsage, []string{"sim", "replay", "/no/such/file"}},
		{exitUsage, []string{"serve", "--listen", "nonsense"}},
		{exitUsage, []string{"serve", "--listen", ""}},
		{exitUsage, []string{"serve", "--web", "127.0.0.1:80808"}},
		{exitUsage, []string{"serve", "--cert", bad}},
		{exitUsage, []string{"serve", "--max-sessions", "0"}},
		{exitUsage, []string{"serve", "--max-connections-per-address=-1"}},
		{exitUsage, []string{"serve", "--max-load", "0s"}},
		{exitUsage, []string{"serve", "--max-bytes-per-address", "0GB"}},
		{exitUsage, []string{"serve", "--max-bytes=-5GB"}},
		{exitUsage, []string{"serve", "--keep-results", "-1"}},
	} {
		if got := run(c.args); got != c.want {
			t.Errorf("unbloat %v: exit code %d, want %d", c.args, got, c.want)
		}
	}
}

// A result that cannot be written to standard output is an error. A file named
// by -o is written completely, or left as it was.
func TestFullOutput(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skipf("SKIPPED: %v", err)
	}
	defer full.Close()
	for _, args := range [][]string{{"lab", "list"}, {"plan", "--down", "30mbit", "--up", "5mbit"}} {
		c := exec.Command(os.Args[0], args...)
		var log bytes.Buffer
		c.Env, c.Stdout, c.Stderr = append(os.Environ(), asProgram+"=1"), full, &log
		if err := c.Run(); c.ProcessState.ExitCode() != exitFailed || !bytes.Contains(log.Bytes(), []byte("no space left")) {
			t.Errorf("%v: %v: %s", args, err, log.Bytes())
		}
	}
	pipe := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink("/dev/full", pipe); err != nil {
		t.Fatal(err)
	}
	if err := writeFile(pipe, []byte("x"), 0o644); err == nil {
		t.Error("a full disk is no error")
	}
	if fi, err := os.Stat(pipe); err != nil || fi.Mode().IsRegular() {
		t.Errorf("the device was replaced: %v", err)
	}
}
