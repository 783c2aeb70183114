package main

import (
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"unbloat/internal/show/cli"
	"unbloat/testkit/await"
)

// onTerminal starts the program on a terminal of its own.
func onTerminal(t *testing.T, env []string, args ...string) (*await.Terminal, *exec.Cmd) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return programOnTerminal(t, exe, env, args...)
}

func programOnTerminal(t *testing.T, exe string, env []string, args ...string) (*await.Terminal, *exec.Cmd) {
	t.Helper()
	p := await.OpenTerminal(t, 80, 24)
	cmd := exec.Command(exe, args...)
	cmd.Env = append(os.Environ(), append([]string{asProgram + "=1", "TERM=xterm", "LC_ALL=C.UTF-8"}, env...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = p.TTY, p.TTY, p.TTY
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	// A program under nohup(1) ignores SIGHUP, and so do its children, unless
	// the program handles the signal.
	heard := make(chan os.Signal, 1)
	signal.Notify(heard, syscall.SIGHUP)
	err := cmd.Start()
	signal.Stop(heard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it has ended already, unless the test failed
		_ = cmd.Wait()
	})
	return p, cmd
}

// However a test on a terminal ends, the terminal is as before. After a normal
// end the result is below, where it can be scrolled to.
func TestViewGivesTheTerminalBack(t *testing.T) {
	await.NotShort(t)
	server := serveHere(t)
	for _, end := range []string{"key", "SIGINT", "SIGTERM", "SIGHUP", "done"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			long := "60"
			if end == "done" {
				long = "1"
			}
			p, cmd := onTerminal(t, nil, "test", "--server", server, "--idle", long, "--seconds", "1", "--no-store")
			p.Wait("\x1b[?1049h")
			p.Wait("idle")
			switch end {
			case "key":
				if _, err := p.Keys.WriteString("\x03"); err != nil {
					t.Fatal(err)
				}
			case "done":
			default:
				s := map[string]syscall.Signal{"SIGINT": syscall.SIGINT, "SIGTERM": syscall.SIGTERM, "SIGHUP": syscall.SIGHUP}[end]
				if err := cmd.Process.Signal(s); err != nil {
					t.Fatal(err)
				}
			}
			asked := time.Now()
			_ = cmd.Wait() // the exit code is checked below
			t.Logf("%s: ended within %v", end, time.Since(asked))
			p.Wait("\x1b[?1049l")
			if now := p.State(); now != p.Fresh { // as it was then: a fast program may have changed it by now
				t.Errorf("%s: the terminal was %+v and is %+v", end, p.Fresh, now)
			}
			rest := p.Text()[strings.LastIndex(p.Text(), "\x1b[?1049l"):]
			code := cmd.ProcessState.ExitCode()
			switch {
			case end == "done" && (code != cli.Done && code != cli.Invalid || !strings.Contains(rest, "both ")):
				t.Errorf("at the end: exit %d: %q", code, rest)
			case end != "done" && code != cli.Failed:
				t.Errorf("%s: exit %d: %q", end, code, rest)
			}
		})
	}
}

// Without a terminal, or with the view switched off, the program prints lines.
func TestNoView(t *testing.T) {
	await.NotShort(t)
	for _, c := range []struct{ env, flag string }{{"TERM=dumb", "-4"}, {"A=B", "--plain"}} {
		p, cmd := onTerminal(t, []string{c.env}, "path", "127.0.0.1", "--idle", "1", "--interval", "200ms", c.flag)
		_ = cmd.Wait() // its output is checked
		if s := p.Text(); strings.Contains(s, "\x1b[?1049h") || !strings.Contains(s, "idle ") {
			t.Errorf("%s %s: %q", c.env, c.flag, s)
		}
	}
}
