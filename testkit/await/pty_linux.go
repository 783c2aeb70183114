// This file has a terminal for tests.

package await

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A Terminal is a pseudo-terminal with everything that was written to it.
type Terminal struct {
	t         *testing.T
	Keys, TTY *os.File     // the keyboard, and the program's end
	Fresh     unix.Termios // the modes before a program used it
	mu        sync.Mutex
	seen      strings.Builder
}

// OpenTerminal opens a terminal of this size until the test ends. Without
// pseudo-terminals the test is skipped.
func OpenTerminal(t *testing.T, w, h uint16) *Terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("SKIPPED: no pseudo-terminals here:", err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("SKIPPED: no pseudo-terminals here:", err)
	}
	p := &Terminal{t: t, Keys: master, TTY: tty}
	p.Size(w, h)
	p.Fresh = p.State()
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 4096)
		for {
			n, err := master.Read(buf)
			p.mu.Lock()
			p.seen.Write(buf[:n])
			p.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		tty.Close()
		<-done
		master.Close()
	})
	return p
}

// Size changes the terminal's size.
func (p *Terminal) Size(w, h uint16) {
	if err := unix.IoctlSetWinsize(int(p.TTY.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: w, Row: h}); err != nil {
		p.t.Fatal(err)
	}
}

// Text returns what was written to the terminal so far.
func (p *Terminal) Text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen.String()
}

// Wait waits until the terminal was sent what is wanted.
func (p *Terminal) Wait(what string) {
	p.t.Helper()
	for end := time.Now().Add(30 * time.Second); !strings.Contains(p.Text(), what); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			p.t.Fatalf("%q was not shown: %q", what, p.Text())
		}
	}
}

// State returns the terminal's modes.
func (p *Terminal) State() unix.Termios {
	p.t.Helper()
	s, err := unix.IoctlGetTermios(int(p.TTY.Fd()), unix.TCGETS)
	if err != nil {
		p.t.Fatal(err)
	}
	return *s
}
