//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"unbloat/internal/measure/verdict"
	"unbloat/internal/serve"
	"unbloat/internal/show/cli"
	"unbloat/testkit/await"
)

// A said is what a program has printed so far.
type said struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *said) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// interrupted runs the program until it has printed what the test waits for,
// sends SIGINT, and returns the output and exit code.
func interrupted(t *testing.T, env []string, until func(out, errs string) bool, args ...string) (out, errs string, code int) {
	t.Helper()
	c := exec.Command(os.Args[0], args...)
	var stdout, stderr said
	c.Env, c.Stdout, c.Stderr = append(append(os.Environ(), asProgram+"=1"), env...), &stdout, &stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if !await.True(time.Minute, func() bool { return until(stdout.String(), stderr.String()) }) {
		_ = c.Process.Kill()
		_ = c.Wait()
		t.Fatalf("%v goes on without what is waited for: %s%s", args, stdout.String(), stderr.String())
	}
	if err := c.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait() // the exit code is returned
	return stdout.String(), stderr.String(), c.ProcessState.ExitCode()
}

// Ctrl-C ends a test, which keeps its finished phases and says so.
func TestInterruptedTest(t *testing.T) {
	await.NotShort(t)
	server := serveHere(t)
	out, errs, code := interrupted(t, nil, func(_, errs string) bool { return strings.Contains(errs, "download") },
		"test", "--server", server, "--idle", "1", "--seconds", "60", "--json", "--plain", "--no-store")
	var got verdict.Test
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v: %s%s", err, out, errs)
	}
	if code != cli.Failed || got.Idle == nil || got.Download != nil || !strings.Contains(errs, "interrupted; what was measured before is above and kept") ||
		!strings.Contains(strings.Join(got.Notes, "\n"), "interrupted during the phase") {
		t.Errorf("exit code %d, notes %q, %d phases: %s", code, got.Notes, len(got.Phases()), errs)
	}
}

// A wrong key and a missing key have different errors.
func TestWrongKey(t *testing.T) {
	s, err := serve.Listen(serve.Options{Listen: "127.0.0.1:0", Key: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	defer func() { stop(); <-done }()
	for key, says := range map[string]string{"": "has a shared key: give it with --key", "guess": "(--key) is wrong"} {
		args := []string{"test", "--server", s.Addr().String(), "--no-store"}
		if key != "" {
			args = append(args, "--key", key)
		}
		if code, _, errs := ran(t, []string{asProgram + "=1"}, append([]string{os.Args[0]}, args...)...); code != cli.Precondition || !strings.Contains(errs, says) {
			t.Errorf("key %q: exit code %d: %s", key, code, errs)
		}
	}
}

// status writes no escape sequences into a pipe, and nothing with --quiet.
func TestStatusInPipes(t *testing.T) {
	p := stages()[0]
	s := p.make(t)
	env := []string{"PATH=" + s.path, "UNBLOAT_STATE_DIR=" + s.state}
	out, errs, code := interrupted(t, env, func(out, _ string) bool {
		return strings.Count(out, "em0: ")+strings.Count(out, "Nothing is shaped") >= 2
	},
		"status", "--watch", "--wan", p.wan, "--for", p.platform)
	if code != cli.Done || strings.Contains(out, "\x1b") {
		t.Errorf("exit code %d: %q %q", code, out, errs)
	}
	if out, code := s.run(t, "status", "--quiet", "--wan", p.wan, "--for", p.platform); code != cli.Done || out != "" {
		t.Errorf("--quiet: exit code %d: %q", code, out)
	}
}

// prove runs on every platform, as tune does, and leaves the router as it was.
func TestProveOnAnotherRouter(t *testing.T) {
	await.NotShort(t)
	p := stages()[0]
	s := p.make(t)
	start := s.Text()
	out, code := s.run(t, "prove", "--server", serveHere(t), "--wan", p.wan, "--lan", p.lan, "--for", p.platform, "--down", "50mbit", "--up", "10mbit",
		"--pairs", "5", "--seconds", "2", "--idle", "1", "--no-store")
	if code == cli.Usage || code == cli.Precondition || code == cli.Failed {
		t.Errorf("exit code %d: %s", code, out)
	}
	if s.Text() != start {
		t.Errorf("the router is not as it was:\n%s", s.Text())
	}
	if out, code := s.run(t, "prove", "--server", "127.0.0.1:1", "--router", "ssh://nobody@127.0.0.1:1", "--wan", p.wan); code != cli.Precondition || !strings.Contains(out, "127.0.0.1:1") {
		t.Errorf("a router that is not there: exit code %d: %s", code, out)
	}
}
