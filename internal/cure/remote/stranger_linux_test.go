package remote_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/remote"
	"unbloat/testkit/await"
	"unbloat/testkit/labtest"
)

// TestStrangersOnTheRouter: a user of the router who puts directories into /tmp that look
// like watchdogs becomes nobody else by it, and holds no change up, neither by a FIFO nor
// by a watchdog that says it watches. Watchdogs are in the router's runtime directory, and
// one that others can change, or that others led to, is refused before anything is done.
func TestStrangersOnTheRouter(t *testing.T) {
	t.Parallel()
	tmp, run := await.NobodysTmp(t), t.TempDir()
	await.NobodyDoes(t, tmp, `for kind in runs says waits; do mkdir -m 755 unbloat-watchdog-$kind; echo wan >unbloat-watchdog-$kind/wan; done
echo 'id -u >"${0%/*}/ran"; exit 1' >unbloat-watchdog-runs/watchdog; chmod 777 unbloat-watchdog-runs
echo 'exit 0' >unbloat-watchdog-says/watchdog
rm unbloat-watchdog-waits/wan; mkfifo unbloat-watchdog-waits/wan
mkdir -m 755 theirs; ln -s "$1" link`, run)
	beside := filepath.Dir(t.TempDir())
	s := startServerBy(t, labtest.Own("/tmp", tmp, []string{beside}, labtest.Own("/run", run, []string{"/run/sshd"})...), "SetEnv SHLVL=2")
	r := newRig(t, s)
	begin := func(runtime string) error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r.watchdogs = runtime
		r.engine.Watchdog = r.watchdog()
		tr, err := r.engine.Begin(ctx, r.plan, apply.Options{Confirm: longAfter, Hold: true})
		if err != nil {
			return err
		}
		defer tr.Close()
		found, err := filepath.Glob(run + "/unbloat-watchdog-*")
		if err != nil || len(found) != 1 {
			t.Errorf("in the runtime directory are %v (%v)", found, err)
		}
		return tr.Commit()
	}
	if err := begin(""); err != nil {
		t.Error(err)
	} else {
		r.is(t, after)
		r.revert(t)
	}
	for _, runtime := range []string{"/tmp", "/tmp/theirs", "/tmp/link", "/tmp/unbloat-watchdog-waits/wan", "/tmp/nothing"} {
		var pre *platform.PreconditionError
		if err := begin(runtime); !errors.As(err, &pre) {
			t.Errorf("%s was taken: %v", runtime, err)
		}
		r.is(t, before)
	}
	if b, err := os.ReadFile(tmp + "/unbloat-watchdog-runs/ran"); err == nil {
		t.Errorf("what nobody wrote was run by user %s", b)
	}
}

// TestStrangersHome: who has no home takes neither hosts nor keys from the directory that
// happens to be the working one.
func TestStrangersHome(t *testing.T) {
	s := startServer(t)
	tmp := await.NobodysTmp(t)
	known, err := os.ReadFile(s.options.KnownHosts[0])
	if err != nil {
		t.Fatal(err)
	}
	key, err := os.ReadFile(s.options.Identities[0])
	if err != nil {
		t.Fatal(err)
	}
	await.NobodyDoes(t, tmp, `umask 077; mkdir .ssh; printf %s "$1" >.ssh/known_hosts; printf %s "$2" >.ssh/id_ed25519`, string(known), string(key))
	t.Chdir(tmp)
	t.Setenv("HOME", "")
	r, err := remote.DialSSH(t.Context(), s.target, remote.SSHOptions{Agent: "-"})
	if err == nil {
		r.Close()
	}
	contains(t, err, "there is no key")
}
