package remote_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/platform"
	"unbloat/testkit/await"
)

// smallest returns the programs that a router must have for us, in addition to
// those of its platform. timeout, setsid, nohup, pgrep and bash are not among
// them.
func smallest() []string {
	return []string{"sh", "id", "ls", "cat", "tee", "cp", "mv", "rm", "ln", "mkdir", "chmod", "sleep", "printf", "true", "false"}
}

// smallRouter returns a router with only these programs and a shell. If all are
// busybox, its other applets are there too.
func smallRouter(t *testing.T, shell string) *server {
	t.Helper()
	path, err := exec.LookPath(shell)
	if err != nil {
		t.Skipf("SKIPPED: there is no %s; install it", shell)
	}
	bin := t.TempDir()
	if err := os.Chmod(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range smallest() {
		program := path
		if shell != "busybox" && name != "sh" {
			if program, err = exec.LookPath("/usr/bin/" + name); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Symlink(program, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	s := startServerBy(t, nil, "SetEnv SHLVL=2 PATH="+bin, "ForceCommand exec "+filepath.Join(bin, "sh")+` -c "$SSH_ORIGINAL_COMMAND"`)
	s.options.Path = bin
	return s
}

// TestSmallRouters: on a minimal router (only busybox; or without timeout,
// setsid, nohup and bash) a change is kept, undone at its deadline, and undone
// when its holder is gone.
func TestSmallRouters(t *testing.T) {
	await.NotShort(t)
	t.Parallel()
	for _, shell := range []string{"busybox", "dash"} {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, smallRouter(t, shell))
			for _, missing := range []string{"timeout", "setsid", "nohup", "bash"} {
				var tool *platform.MissingToolError
				if _, err := platform.Output(t.Context(), r.ssh, missing, "--help"); shell != "busybox" && !errors.As(err, &tool) {
					t.Errorf("there is %s: %v", missing, err)
				}
			}
			if err := r.keep(t); err != nil {
				t.Fatal(err)
			}
			r.is(t, after)
			r.revert(t)
			for _, o := range []apply.Options{{Confirm: 2 * time.Second}, {Confirm: longAfter, Hold: true}} {
				tr, err := r.engine.Begin(t.Context(), r.plan, o)
				if err != nil {
					t.Fatal(err)
				}
				r.is(t, after)
				id := r.pending(t)
				r.cable.set(true)
				tr.Close()
				waitFor(t, "the watchdog to undo", r.restored)
				r.cable.set(false)
				r.revert(t)
				r.noWatchdog(t, id)
			}
		})
	}
}

// TestLoginShells: arguments arrive unchanged, and a watchdog works, with any
// login shell.
func TestLoginShells(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"tcsh", "dash", "bash"} {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			path, err := exec.LookPath(shell)
			if err != nil {
				t.Skipf("SKIPPED: there is no %s; install it", shell)
			}
			s := startServerBy(t, nil, "SetEnv SHLVL=2", "ForceCommand exec "+path+` -c "$SSH_ORIGINAL_COMMAND"`)
			r := newRig(t, s)
			odd := []string{"a b", "c'd", `e"f`, "$HOME", "`id`", "*", "", "g\\h", "é", "x\ny", "!1", "it's !!", ";", "&&", "~", "{a,b}", "100%"}
			out, err := platform.Output(t.Context(), r.ssh, append([]string{"printf", "%s|"}, odd...)...)
			if err != nil || string(out) != strings.Join(odd, "|")+"|" {
				t.Errorf("the words arrive as %q (%v)", out, err)
			}
			if err := r.keep(t); err != nil {
				t.Fatal(err)
			}
			r.is(t, after)
			r.revert(t)
		})
	}
}
