package daemon

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"unbloat/internal/cure/apply"
	"unbloat/internal/keep/supervise"
)

// TestCrashLoop: the fifth start within ten minutes is one too many; an end as it
// should be, ten minutes of peace, or a file that is damaged begin anew.
func TestCrashLoop(t *testing.T) {
	dir := t.TempDir()
	at := time.Hour
	start := func(after time.Duration) int {
		at += after
		return countStart(dir, at)
	}
	for i := range 8 {
		if n := start(time.Minute); n != i+1 {
			t.Errorf("start %d is counted as %d", i+1, n)
		}
	}
	if n := start(startWindow); n != 1 {
		t.Errorf("after ten minutes: %d", n)
	}
	start(time.Second)
	forgetStarts(dir)
	if n := start(time.Second); n != 1 {
		t.Errorf("after an end as it should be: %d", n)
	}
	if err := os.WriteFile(filepath.Join(dir, startsFile), []byte("[1, \x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	if n := start(time.Second); n != 1 {
		t.Errorf("after damage: %d", n)
	}
	if n := countStart(dir, time.Second); n != 1 {
		t.Errorf("after a reboot: %d", n)
	}
	for range mostStarts {
		if err := os.Remove(filepath.Join(dir, "none", startsFile)); err == nil {
			t.Fatal("there is a file")
		}
		if n := countStart(filepath.Join(dir, "none"), at); n != 1 {
			t.Errorf("where nothing can be written: %d", n)
		}
	}
	for range mostStarts - 1 {
		if text := careful(dir); text != "" && !strings.Contains(text, "follows no line") {
			t.Errorf("it says %q", text)
		}
	}
	if careful(dir) == "" {
		t.Error("it is not careful")
	}
}

// TestLateModule: a router that can't shape yet when the daemon starts, because a
// module of its kernel arrives later, is shaped within a minute after it can.
func TestLateModule(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		x := linuxTown(t, dir, oneWAN, func(*Options) {})
		x.stop()
		x.router.mu.Lock()
		x.router.at, _ = standIns()["linux"]()
		x.router.ours, x.router.is = func(argv []string) bool { return argv[0] == "tc" || argv[0] == "nft" }, failing
		x.router.mu.Unlock()
		for _, f := range []string{".journal.json", ".committed.json"} {
			_ = os.Remove(filepath.Join(dir, "wan"+f))
		}
		x.start()
		defer func() { x.stop() }()
		for _, after := range []time.Duration{5 * time.Second, time.Minute, 20 * time.Minute} {
			time.Sleep(after)
			if s, _ := x.only().snapshot(); s.State != supervise.Failing && s.State != supervise.Waiting || s.Why == "" {
				t.Fatalf("after %v: %+v", after, s)
			}
		}
		looks := x.only().board.status.Looks
		if looks < 15 || looks > 40 {
			t.Errorf("%d looks in 21 minutes", looks)
		}
		x.router.set(fine)
		time.Sleep(61 * time.Second)
		if s, _ := x.only().snapshot(); s.State != supervise.InPlace {
			t.Errorf("%+v", s)
		}
	})
}

// stuck never answers, whatever its context says.
type stuck struct{ until chan struct{} }

func (s stuck) Run(context.Context, []string, []byte) (stdout, stderr []byte, err error) {
	<-s.until
	return nil, nil, errors.New("it is over")
}

// TestHangIsNoticed: while a loop is stuck for longer than an action may take, the
// service manager's watchdog hears nothing; a router that is only slow does not end the
// daemon, nor does a quiet hour.
func TestHangIsNoticed(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		x := newTown(t, "linux", dir, 1)
		x.start()
		defer func() { x.stop() }()
		lives := func(when string, want bool) {
			t.Helper()
			if _, alive := x.d.statuses(); alive != want {
				t.Errorf("%s: it lives: %v", when, alive)
			}
		}
		for range 60 {
			time.Sleep(time.Minute)
			lives("quiet", true)
		}
		x.router.set(stalling)
		for range 60 {
			time.Sleep(time.Minute)
			lives("slow", true)
		}
		x.router.set(fine)
		time.Sleep(5 * time.Minute)
		hang := stuck{make(chan struct{})}
		x.router.mu.Lock()
		was := x.router.at
		x.router.at = hang
		x.router.mu.Unlock()
		time.Sleep(time.Minute + time.Second)
		lives("just stuck", true)
		time.Sleep(actionTime + 3*time.Minute)
		lives("stuck", false)
		close(hang.until)
		x.router.mu.Lock()
		x.router.at = was
		x.router.mu.Unlock()
		time.Sleep(5 * time.Minute)
		lives("free again", true)
	})
}

// TestLockOfAKilledDaemon: a child that the killed daemon was just starting has a copy of
// its lock for a moment; who has it for longer is another daemon.
func TestLockOfAKilledDaemon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		left, err := lockOf(dir)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := lockOf(dir); !errors.Is(err, apply.ErrLocked) {
			t.Errorf("two daemons: %v", err)
		}
		time.AfterFunc(mostDying/4, left.Unlock)
		lock, err := lockOf(dir)
		if err != nil {
			t.Fatalf("its child has let go, and yet: %v", err)
		}
		lock.Unlock()
	})
}
