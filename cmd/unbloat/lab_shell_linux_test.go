//go:build !omit_measure && !omit_lab

package main

import (
	"strings"
	"testing"
	"time"

	"unbloat/internal/await"
	"unbloat/internal/lab/labtest"
)

// TestLabShell: a shell in the lab shows a prompt. Ctrl-C ends the running
// command, not the shell. After it ends, or is killed, the terminal is as
// before.
func TestLabShell(t *testing.T) {
	labtest.NeedKernel(t)
	p, cmd := programOnTerminal(t, labtest.Binary(t), nil, "lab", "shell", "exact-link") // the guest runs this binary too
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
