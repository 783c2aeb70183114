package remote_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/remote"
	"unbloat/testkit/await"
)

// rigWithCat returns a rig whose router has a script for cat(1), which reads a
// watchdog's heartbeat. The script's $hint is a file that the test creates. sh
// is the shell.
func rigWithCat(t *testing.T, sh, script string) (r *rig, hint string) {
	t.Helper()
	path, err := exec.LookPath(sh)
	if err != nil {
		t.Skipf("SKIPPED: there is no %s; install it", sh)
	}
	bin := t.TempDir()
	if err := os.Chmod(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(path, filepath.Join(bin, "sh")); err != nil {
		t.Fatal(err)
	}
	hint = filepath.Join(bin, "hint")
	cat := "#!/bin/sh\nhint=" + hint + "\ncase $1 in */beat) [ ! -e $hint ] || {\n" + script + "\n} ;; esac\nexec /usr/bin/cat \"$@\"\n"
	if err := os.WriteFile(filepath.Join(bin, "cat"), []byte(cat), 0o755); err != nil {
		t.Fatal(err)
	}
	s := startServer(t)
	s.options.Path = bin + ":/usr/bin:/bin"
	return newRig(t, s), hint
}

// watchdogShells are shells of routers. OpenBSD's is a Korn shell, in which an
// empty word is the number 0.
var watchdogShells = []string{"dash", "bash", "mksh"}

// TestWatchdogHoldsOn: if a watchdog cannot read the heartbeat for some time,
// because the router lacks memory or processes, it waits, and does not undo a
// change that is still renewed.
func TestWatchdogHoldsOn(t *testing.T) {
	await.NotShort(t)
	t.Parallel()
	for _, sh := range watchdogShells {
		t.Run(sh, func(t *testing.T) {
			t.Parallel()
			r, hint := rigWithCat(t, sh, "exit 1")
			tr, err := r.engine.Begin(t.Context(), r.plan, apply.Options{Confirm: longAfter, Hold: true})
			if err != nil {
				t.Fatal(err)
			}
			defer tr.Close()
			write(t, hint, "")
			await.Stays(t, watchdogWaits/2, "the router has what is held", func() bool { return r.text() == after })
			if err := os.Remove(hint); err != nil {
				t.Fatal(err)
			}
			if err := tr.Commit(); err != nil {
				t.Fatal(err)
			}
			r.is(t, after)
		})
	}
}

// TestWatchdogIsForgottenWhole: a change is kept, and its watchdog removed
// between two reads of its directory. Missing files must not look like the end
// of its time.
func TestWatchdogIsForgottenWhole(t *testing.T) {
	t.Parallel()
	for _, sh := range watchdogShells {
		t.Run(sh, func(t *testing.T) {
			t.Parallel()
			r, hint := rigWithCat(t, sh, `echo waits >$hint; while [ -e "$1" ] || [ ! -e $hint.go ]; do sleep 0.02; done; echo seen >$hint`)
			tr, err := r.engine.Begin(t.Context(), r.plan, apply.Options{Confirm: longAfter, Hold: true})
			if err != nil {
				t.Fatal(err)
			}
			defer tr.Close()
			says := func(what string) func() bool {
				return func() bool { b, _ := os.ReadFile(hint); return strings.TrimSpace(string(b)) == what }
			}
			write(t, hint, "")
			waitFor(t, "the watchdog to look", says("waits"))
			if err := tr.Commit(); err != nil {
				t.Fatal(err)
			}
			write(t, r.daemon.settings(), "not loaded yet") // any undo would load it
			write(t, hint+".go", "")
			waitFor(t, "the watchdog to look for nothing", says("seen"))
			await.Stays(t, 2*time.Second, "the router has what was kept", func() bool {
				b, err := os.ReadFile(r.daemon.loaded())
				return err == nil && string(b) == after
			})
		})
	}
}

// A mute is a runner that drops heartbeats while it is told to, and blocks
// until the watchdog has undone the change.
type mute struct {
	*remote.SSH
	silent   atomic.Bool
	restored func() bool
}

func (m *mute) Run(ctx context.Context, argv []string, stdin []byte) ([]byte, []byte, error) {
	switch {
	case m.silent.Load() && len(argv) > 2 && argv[2] == "renew":
		return nil, nil, nil
	case argv[0] == "sleep":
		m.silent.Store(true)
		await.True(4*watchdogWaits, m.restored)
		m.silent.Store(false)
	}
	return m.SSH.Run(ctx, argv, stdin)
}

// TestWatchdogIsNamed: if the router's watchdog undoes a change that is still being
// made, the error says so first, and then what failed because of it.
func TestWatchdogIsNamed(t *testing.T) {
	await.NotShort(t)
	t.Parallel()
	r := newRig(t, startServer(t))
	m := &mute{SSH: r.ssh, restored: r.restored}
	r.configure(t, m)
	d := r.watchdog()
	d.Patience = watchdogWaits / 2
	r.engine.Watchdog = d
	_, err := r.engine.Begin(t.Context(), r.plan, apply.Options{Confirm: longAfter, Hold: true})
	contains(t, err, "it has undone the change")
	r.is(t, before)
}
