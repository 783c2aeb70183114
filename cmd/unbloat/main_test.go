package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"unbloat/internal/cure/platform/all"
	"unbloat/internal/cure/platform/testdata/toy"
	"unbloat/internal/show/cli"
)

// asProgram is the environment variable with which the test binary acts as the
// program.
const asProgram = "UNBLOAT_TEST_AS_PROGRAM"

// withToy is the environment variable with which the program also has the
// driver of package toy.
const withToy = "UNBLOAT_TEST_TOY"

// TestMain keeps results of tests away from the user's own.
func TestMain(m *testing.M) {
	if self, err := os.Executable(); err == nil && os.Getenv(onStage) != "" {
		if len(os.Args) > 1 && os.Args[1] == "classifier" { // what the program asks of the router's kernel
			c := exec.Command("unbloat", os.Args[1:]...)
			c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
			if c.Run() != nil {
				os.Exit(1)
			}
			os.Exit(0)
		}
		machine.Self = self // it asks as a program too, not in its own process
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

// Every error becomes the exit code of the contract.
func TestExitCodes(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.pem")
	if err := os.WriteFile(bad, []byte("no certificate\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		want int
		args []string
	}{
		{cli.Done, []string{"--help"}},
		{cli.Done, []string{"--version"}},
		{cli.Done, []string{"plan", "--down", "30mbit", "--up", "5mbit", "--quiet"}},
		{cli.Usage, []string{"frobnicate"}},
		{cli.Usage, []string{"why", "udp 10.1.0.2:5004 > 203.0.113.9:5004", "--bytes", "-5"}},
		{cli.Usage, []string{"plan", "--down", "30"}},
		{cli.Usage, []string{"plan", "--down", "0mbit", "--up", "1mbit"}},
		{cli.Usage, []string{"plan", "--down", "-3mbit", "--up", "1mbit"}},
		{cli.Usage, []string{"plan", "--down", "1000tbit", "--up", "1mbit"}},
		{cli.Usage, []string{"test", "--server", "ftp://x"}},
		{cli.Usage, []string{"tune", "--flows-up", "0"}},
		{cli.Usage, []string{"tune", "--server", "x", "--report", "x.doc"}},
		{cli.Precondition, []string{"test", "--server", "127.0.0.1:1", "--quiet"}},
		{cli.Usage, []string{"test", "--server", "rpm+https://127.0.0.1", "--pin", "55fc"}},
		{cli.Usage, []string{"serve", "--listen", "nonsense"}},
		{cli.Usage, []string{"serve", "--listen", ""}},
		{cli.Usage, []string{"serve", "--web", "127.0.0.1:80808"}},
		{cli.Usage, []string{"serve", "--cert", bad}},
		{cli.Usage, []string{"serve", "--max-sessions", "0"}},
		{cli.Usage, []string{"serve", "--max-connections-per-address=-1"}},
		{cli.Usage, []string{"serve", "--max-load", "0s"}},
		{cli.Usage, []string{"serve", "--max-bytes-per-address", "0GB"}},
		{cli.Usage, []string{"serve", "--max-bytes=-5GB"}},
		{cli.Usage, []string{"serve", "--keep-results", "-1"}},
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
	for _, args := range [][]string{{"version"}, {"plan", "--down", "30mbit", "--up", "5mbit"}} {
		c := exec.Command(os.Args[0], args...)
		var log bytes.Buffer
		c.Env, c.Stdout, c.Stderr = append(os.Environ(), asProgram+"=1"), full, &log
		if err := c.Run(); c.ProcessState.ExitCode() != cli.Failed || !bytes.Contains(log.Bytes(), []byte("no space left")) {
			t.Errorf("%v: %v: %s", args, err, log.Bytes())
		}
	}
	pipe := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink("/dev/full", pipe); err != nil {
		t.Fatal(err)
	}
	if err := cli.WriteFile(pipe, []byte("x"), 0o644); err == nil {
		t.Error("a full disk is no error")
	}
	if fi, err := os.Stat(pipe); err != nil || fi.Mode().IsRegular() {
		t.Errorf("the device was replaced: %v", err)
	}
}
