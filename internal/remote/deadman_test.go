package remote_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"unbloat/internal/apply"
	"unbloat/internal/apply/proc"
	"unbloat/internal/host"
	"unbloat/internal/host/conf"
	"unbloat/internal/plan"
	"unbloat/internal/remote"
	"unbloat/unit"
)

// A daemon is the smallest router of files: settings that `cp` loads. Its files
// are real, and reached by SSH.
type daemon struct {
	r   host.Runner
	dir string
}

func (d daemon) settings() string { return filepath.Join(d.dir, "settings") }
func (d daemon) loaded() string   { return filepath.Join(d.dir, "loaded") }

func (d daemon) Observe(ctx context.Context, _ plan.Plan, _ host.State) (host.State, error) {
	files, err := conf.Read(ctx, d.r, d.settings())
	if err != nil {
		return nil, err
	}
	out, err := host.Output(ctx, d.r, "cat", d.loaded())
	if err != nil {
		return nil, err
	}
	return conf.Encode(conf.State{Files: files, Live: strings.Split(string(out), "\n")})
}

func (d daemon) Desire(_ context.Context, p plan.Plan, now, _ host.State) (host.State, error) {
	s, err := conf.Decode(now)
	if err != nil {
		return nil, err
	}
	text := "up " + p.UpBps.String()
	s.Files, s.Live = s.Files.Put(d.settings(), text, ""), []string{text}
	return conf.Encode(s)
}

func (d daemon) Undesire(_ context.Context, now, origin host.State) (host.State, error) {
	if origin != nil {
		return origin, nil
	}
	return now, nil
}

func (d daemon) load() host.Step { return host.Step{Argv: []string{"cp", d.settings(), d.loaded()}} }

func (d daemon) Compare(a, w host.State) ([]host.Step, []string, error) {
	return conf.Compare(a, w, nil, []host.Step{{Argv: []string{"sleep", "0.2"}}, d.load()})
}

func (d daemon) Restore(before host.State) ([]host.Step, error) {
	s, err := conf.Decode(before)
	return append(append([]host.Step{{Argv: []string{"false", "a step that fails"}}}, s.Files.Restore()...), d.load()), err
}

func (d daemon) Explain(err error) error { return err }

// A rig is an engine whose router is reached by SSH.
type rig struct {
	*server
	daemon daemon
	ssh    *remote.SSH
	engine *apply.Engine
	plan   plan.Plan
}

const before = "by hand, caf\xe9 'quoted'\n$HOME\n"

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{server: startServer(t)}
	r.ssh = r.dial(t)
	r.daemon = daemon{r.ssh, t.TempDir()}
	write(t, r.daemon.settings(), before)
	write(t, r.daemon.loaded(), before)
	r.engine = &apply.Engine{Backend: r.daemon, Runner: r.ssh, Dir: t.TempDir(),
		Deadman: &remote.Deadman{Runner: r.ssh, Backend: r.daemon, Uptime: proc.Uptime}}
	var err error
	r.plan, err = plan.Make(plan.Line{}, plan.Facts{Platform: plan.Linux, WAN: "wan", IFB: true}, plan.Wishes{Up: plan.RateWish{Rate: 5 * unit.MbitPerSecond}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) is(t *testing.T, want string) {
	t.Helper()
	for _, path := range []string{r.daemon.settings(), r.daemon.loaded()} {
		b, err := os.ReadFile(path)
		if err != nil || string(b) != want {
			t.Errorf("%s is %q (%v), want %q", filepath.Base(path), b, err, want)
		}
	}
	if _, err := os.Stat(r.daemon.settings() + conf.Suffix); err == nil {
		t.Error("a temporary file is left")
	}
}

func (r *rig) restored() bool {
	for _, path := range []string{r.daemon.settings(), r.daemon.loaded()} {
		if b, err := os.ReadFile(path); err != nil || string(b) != before {
			return false
		}
	}
	return true
}

// noGuards fails if a guard has left something behind.
func noGuards(t *testing.T, id string) {
	t.Helper()
	waitFor(t, "the guard to clean up", func() bool {
		_, err := os.Stat("/tmp/unbloat-guard-" + id)
		return err != nil
	})
}

func (r *rig) pending(t *testing.T) string {
	t.Helper()
	j, err := r.engine.Pending("wan")
	if err != nil || j == nil {
		t.Fatalf("no journal: %v", err)
	}
	return j.ID
}

// TestConfirmOverSSH: applied, read back and kept; the guard is gone; a revert
// leads back to the byte.
func TestConfirmOverSSH(t *testing.T) {
	r := newRig(t)
	tr, err := r.engine.Begin(t.Context(), r.plan, apply.Options{Confirm: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	r.is(t, "up 5 Mbit/s")
	id := r.pending(t)
	tr.Close()
	var busy *apply.BusyError
	if _, err := r.engine.Begin(t.Context(), r.plan, apply.Options{Confirm: time.Minute}); !errors.As(err, &busy) {
		t.Errorf("a second change: %v", err)
	}
	// Another process confirms: it knows of the guard by the journal alone.
	other := &apply.Engine{Backend: r.daemon, Runner: r.ssh, Dir: r.engine.Dir, Deadman: &remote.Deadman{Runner: r.ssh, Backend: r.daemon, Uptime: proc.Uptime}}
	if _, err := other.Confirm(t.Context(), "wan", nil); err != nil {
		t.Fatal(err)
	}
	noGuards(t, id)
	r.is(t, "up 5 Mbit/s")
	if _, _, err := r.engine.Revert(t.Context(), apply.Journal{WAN: "wan"}); err != nil {
		t.Fatal(err)
	}
	r.is(t, before)
}

// TestDeadlineOverSSH: nobody confirms, so the router undoes it by itself, and a
// late confirmation is told so.
func TestDeadlineOverSSH(t *testing.T) {
	r := newRig(t)
	tr, err := r.engine.Begin(t.Context(), r.plan, apply.Options{Confirm: 6 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	tr.Close()
	id := r.pending(t)
	r.cable.set(true) // nobody can reach it any more
	start := time.Now()
	waitFor(t, "the guard to undo", r.restored)
	t.Logf("undone %.1f s after the deadline was set to 6 s", time.Since(start).Seconds())
	r.cable.set(false)
	if _, err := r.engine.Confirm(t.Context(), "wan", nil); err == nil {
		t.Error("a late confirmation was taken")
	}
	r.is(t, before)
	noGuards(t, id)
}

// TestCutMidApply: the connection is cut at each of the commands in turn; the
// router ends as it was, by its own guard if nobody else can.
func TestCutMidApply(t *testing.T) {
	for cutAt := 1; cutAt <= 5; cutAt += 2 {
		r := newRig(t)
		n := 0
		r.engine.OnStep = func(host.Step) {
			if n++; n == cutAt {
				go func() { time.Sleep(100 * time.Millisecond); r.cable.set(true) }()
				time.Sleep(200 * time.Millisecond)
			}
		}
		_, err := r.engine.Begin(t.Context(), r.plan, apply.Options{Confirm: 6 * time.Second})
		if n < cutAt {
			t.Errorf("it ended before step %d", cutAt)
		}
		contains(t, err, "connection")
		start := time.Now()
		waitFor(t, "the guard to undo", r.restored)
		t.Logf("cut at step %d: undone %.1f s after it failed", cutAt, time.Since(start).Seconds())
		r.cable.set(false)
		r.engine.OnStep = nil
		if _, _, err := r.engine.Revert(t.Context(), apply.Journal{WAN: "wan"}); err != nil {
			t.Errorf("the next command: %v", err)
		}
		r.is(t, before)
		if j, _ := r.engine.Pending("wan"); j != nil {
			t.Error("the journal is still open")
		}
	}
}

// TestHeldOverSSH: a change that is held lives while its process beats, and no
// longer: without it the router undoes within the patience.
func TestHeldOverSSH(t *testing.T) {
	r := newRig(t)
	tr, err := r.engine.Begin(t.Context(), r.plan, apply.Options{Confirm: 8 * time.Second, Hold: true})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * time.Second)
	r.is(t, "up 5 Mbit/s")
	r.cable.set(true)
	waitFor(t, "the guard to undo", r.restored)
	r.cable.set(false)
	if err := tr.Commit(); err == nil {
		t.Error("what is undone was committed")
	}
	tr.Close()
}
