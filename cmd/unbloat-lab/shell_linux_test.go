package main

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"unbloat/testkit/await"
	"unbloat/testkit/labtest"
)

// TestLabShell: a shell in the lab shows a prompt. Ctrl-C ends the running
// command, not the shell. After it ends, or is killed, the terminal is as
// before.
func TestLabShell(t *testing.T) {
	labtest.NeedKernel(t)
	p := await.OpenTerminal(t, 80, 24)
	cmd := exec.Command(labtest.Programs(t).Unbloat, "lab", "shell", "exact-link") // it becomes the laboratory's
	cmd.Env = append(os.Environ(), "TERM=xterm", "LC_ALL=C.UTF-8")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = p.TTY, p.TTY, p.TTY
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it has ended already, unless the test failed
		_ = cmd.Wait()
	})
	shown := func(what string) {
		t.Helper()
		await.Until(t, 3*time.Minute, "the shell to show "+what, func() bool { return strings.Contains(p.Text(), what) })
	}
	types := func(keys string) {
		t.Helper()
		if _, err := p.Keys.WriteString(keys); err != nil {
			t.Fatal(err)
		}
	}
	shown("router# ")
	if first, _, _ := strings.Cut(strings.TrimLeft(p.Text(), "\r\n"), "\n"); !strings.Contains(first, "on a real kernel") {
		t.Errorf("the kernel speaks before the lab: %q", first)
	}
	types("unbloat version && echo found$((40+1))\n")
	shown("found41")
	// The program itself says that it has begun: it has the terminal then, and Ctrl-C
	// is for it. A shell between two commands may be the one that hears it.
	types("sh -c 'echo begun$((40+2)); exec sleep 1000'\n")
	shown("begun42")
	types("\x03")
	types("echo went on$((40+3)); exit\n")
	shown("went on43")
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v:\n%s", err, p.Text())
	}
	if s := p.State(); s != p.Fresh {
		t.Errorf("the terminal's modes were %+v, and are %+v", p.Fresh, s)
	}
}
