package remote_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/conf"
	"unbloat/internal/cure/platform/linux"
	"unbloat/internal/cure/remote"
	"unbloat/testkit/await"
	"unbloat/unit"
)

// A daemon is a minimal router: a settings file, and another that `cp` loads.
// The files are real, and accessed by SSH.
type daemon struct {
	platform.Plain
	r   platform.Runner
	dir string
}

func (d daemon) settings() string { return filepath.Join(d.dir, "settings") }
func (d daemon) loaded() string   { return filepath.Join(d.dir, "loaded") }

func (d daemon) Observe(ctx context.Context, _ plan.Plan, _ platform.State) (platform.State, error) {
	files, err := conf.Read(ctx, d.r, d.settings())
	if err != nil {
		return nil, err
	}
	out, err := platform.Output(ctx, d.r, "cat", d.loaded())
	if err != nil {
		return nil, err
	}
	return conf.Encode(conf.State{Files: files, Live: strings.Split(string(out), "\n")})
}

func (d daemon) Desire(_ context.Context, p plan.Plan, now, _ platform.State) (platform.State, error) {
	s, err := conf.Decode(now)
	if err != nil {
		return nil, err
	}
	text := "up " + p.UpBps.String()
	s.Files, s.Live = s.Files.Put(d.settings(), text, ""), []string{text}
	return conf.Encode(s)
}

func (d daemon) Baseline(_ context.Context, now, origin platform.State) (platform.State, error) {
	if origin != nil {
		return origin, nil
	}
	return now, nil
}

func (d daemon) load() platform.Step {
	return platform.Step{Argv: []string{"cp", d.settings(), d.loaded()}}
}

func (d daemon) Compare(a, w platform.State) ([]platform.Step, []string, error) {
	return conf.Compare(a, w, nil, []platform.Step{{Argv: []string{"sleep", "0.2"}}, d.load()})
}

func (d daemon) Restore(before, _ platform.State) ([]platform.Step, error) {
	s, err := conf.Decode(before)
	return append(append([]platform.Step{{Argv: []string{"false", "a step that fails"}}}, s.Files.Restore()...), d.load()), err
}

func (d daemon) Shapers(context.Context, string) ([]platform.Shaped, error) { return nil, nil }

// A rig is an engine with a router behind SSH.
type rig struct {
	*server
	daemon    daemon
	ssh       *remote.SSH
	engine    *apply.Engine
	plan      plan.Plan
	watchdogs string // directory of the watchdogs
}

const (
	before = "by hand, caf\xe9 'quoted'\n$HOME\n"
	after  = "up 5 Mbit/s"
	// watchdogWaits is how long a watchdog in these tests waits without a
	// heartbeat: long compared with a command on a busy machine, short compared
	// with the tests' timeouts.
	watchdogWaits = 10 * time.Second

	// longAfter is the deadline of a change in tests that are not about it: no machine is so
	// busy.
	longAfter = 10 * time.Minute
)

// watchdogFolder returns a directory for watchdogs, which may still be writing
// when the test ends.
func watchdogFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "unbloat-watchdog-folder-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// newRig returns a rig with a router behind the server.
func newRig(t *testing.T, s *server) *rig {
	t.Helper()
	r := &rig{server: s, ssh: s.dial(t)}
	r.configure(t, r.ssh)
	return r
}

// configure creates the engine, whose commands go through runner.
func (r *rig) configure(t *testing.T, runner platform.Runner) {
	t.Helper()
	r.daemon, r.watchdogs = daemon{platform.Plain{}, runner, t.TempDir()}, watchdogFolder(t)
	write(t, r.daemon.settings(), before)
	write(t, r.daemon.loaded(), before)
	r.engine = &apply.Engine{Backend: r.daemon, Runner: runner, Dir: t.TempDir(), Watchdog: r.watchdog()}
	var err error
	r.plan, err = plan.Make(plan.Line{}, plan.Capabilities{Language: linux.Language(), WAN: "wan", IFB: true}, plan.Preferences{Up: plan.RatePreference{Rate: 5 * unit.MbitPerSecond}})
	if err != nil {
		t.Fatal(err)
	}
}

func (r *rig) watchdog() *remote.Watchdog {
	return &remote.Watchdog{Runner: r.daemon.r, Backend: r.daemon, Uptime: apply.Uptime, Path: r.options.Path, Folder: r.watchdogs, Patience: watchdogWaits}
}

// text returns the router's settings if the loaded ones agree, otherwise both.
func (r *rig) text() string {
	a, errA := os.ReadFile(r.daemon.settings())
	b, errB := os.ReadFile(r.daemon.loaded())
	if errA != nil || errB != nil || string(a) != string(b) {
		return fmt.Sprintf("settings %q, loaded %q (%v, %v)", a, b, errA, errB)
	}
	return string(a)
}

func (r *rig) is(t *testing.T, want string) {
	t.Helper()
	if got := r.text(); got != want {
		t.Errorf("the router has %q, want %q", got, want)
	}
	if _, err := os.Stat(r.daemon.settings() + conf.Suffix); err == nil {
		t.Error("a temporary file is left")
	}
}

func (r *rig) restored() bool { return r.text() == before }

// noWatchdog fails if the watchdog has left anything behind.
func (r *rig) noWatchdog(t *testing.T, id string) {
	t.Helper()
	waitFor(t, "the watchdog to clean up", func() bool {
		_, err := os.Stat(r.watchdogs + "/unbloat-watchdog-" + id)
		return err != nil
	})
}

func (r *rig) pending(t *testing.T) string {
	t.Helper()
	j, err := r.engine.Pending(r.plan.WAN)
	if err != nil || j == nil {
		t.Fatalf("no journal: %v", err)
	}
	return j.ID
}

func (r *rig) revert(t *testing.T) {
	t.Helper()
	if _, _, err := r.engine.Revert(t.Context(), apply.Journal{WAN: r.plan.WAN}); err != nil {
		t.Errorf("revert: %v", err)
	}
	r.is(t, before)
	if j, err := r.engine.Pending(r.plan.WAN); j != nil || err != nil {
		t.Errorf("the journal is still open (%v)", err)
	}
}

// TestConfirmOverSSH: a change is applied, read back and kept; the watchdog is
// gone; revert restores the old state to the byte. During the change nobody
// else can change the same WAN: not from this machine, and not from another
// one, which has no journal of it.
func TestConfirmOverSSH(t *testing.T) {
	t.Parallel()
	r := newRig(t, startServer(t))
	tr, err := r.engine.Begin(t.Context(), r.plan, apply.Options{Confirm: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	r.is(t, after)
	id := r.pending(t)
	tr.Close()
	var busy *apply.BusyError
	if _, err := r.engine.Begin(t.Context(), r.plan, apply.Options{Confirm: time.Minute}); !errors.As(err, &busy) {
		t.Errorf("a second change: %v", err)
	}
	elsewhere := &apply.Engine{Backend: r.daemon, Runner: r.ssh, Dir: t.TempDir(), Watchdog: r.watchdog()}
	another := r.plan
	another.UpBps, another.Up.Rate = 4*unit.MbitPerSecond, 4*unit.MbitPerSecond
	_, err = elsewhere.Begin(t.Context(), another, apply.Options{Confirm: time.Minute})
	contains(t, err, "from another machine waits for confirmation")
	r.is(t, after)
	// Another process confirms. It knows the watchdog only from the journal.
	other := &apply.Engine{Backend: r.daemon, Runner: r.ssh, Dir: r.engine.Dir, Watchdog: r.watchdog()}
	if _, err := other.Confirm(t.Context(), r.plan.WAN, nil); err != nil {
		t.Fatal(err)
	}
	r.noWatchdog(t, id)
	r.is(t, after)
	r.revert(t)
}

// TestDeadlineOverSSH: the change is not confirmed and the connection is cut,
// so the router undoes it by itself. A late confirmation is told so.
func TestDeadlineOverSSH(t *testing.T) {
	await.NotShort(t)
	t.Parallel()
	r := newRig(t, startServer(t))
	tr, err := r.engine.Begin(t.Context(), r.plan, apply.Options{Confirm: 3 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	tr.Close()
	j, err := r.engine.Pending(r.plan.WAN)
	if err != nil || j == nil {
		t.Fatalf("no journal: %v", err)
	}
	r.cable.set(true)
	waitFor(t, "the watchdog to undo", r.restored)
	// Begin set the deadline before it told the watchdog, which takes its time on a busy machine.
	past := apply.Uptime() - j.Deadline
	t.Logf("undone %.1f s after the deadline", past.Seconds())
	if past < -time.Second {
		t.Errorf("undone %s before the deadline", -past)
	}
	r.cable.set(false)
	if _, err := r.engine.Confirm(t.Context(), r.plan.WAN, nil); err == nil {
		t.Error("a late confirmation was taken")
	}
	r.revert(t)
	r.noWatchdog(t, j.ID)
}

// TestHeldOverSSH: a held change stays while its process sends heartbeats,
// longer than the watchdog would wait without them. Then it is undone.
func TestHeldOverSSH(t *testing.T) {
	await.NotShort(t)
	t.Parallel()
	r := newRig(t, startServer(t))
	tr, err := r.engine.Begin(t.Context(), r.plan, apply.Options{Confirm: longAfter, Hold: true})
	if err != nil {
		t.Fatal(err)
	}
	await.Stays(t, watchdogWaits+3*time.Second, "the router has what is held", func() bool { return r.text() == after })
	r.cable.set(true)
	cut := time.Now()
	waitFor(t, "the watchdog to undo", r.restored)
	t.Logf("undone %.1f s after the way was lost; the watchdog waits %s", time.Since(cut).Seconds(), watchdogWaits)
	r.cable.set(false)
	if err := tr.Commit(); !errors.Is(err, apply.ErrTooLate) {
		t.Errorf("what is undone was committed: %v", err)
	}
	tr.Close()
	r.revert(t)
}

// A cutter is the runner of a rig that cuts the cable at one command: before it
// reaches the router, or after it has run there, so that its answer is lost.
type cutter struct {
	*remote.SSH
	direct *remote.SSH // a connection that is not cut
	cable  *cable
	at     int  // counted from 1, without heartbeats, since their number varies
	late   bool // after the command has run

	mu    sync.Mutex
	n     int
	argvs [][]string // the counted commands
}

func (c *cutter) Run(ctx context.Context, argv []string, stdin []byte) ([]byte, []byte, error) {
	beat := len(argv) > 2 && argv[2] == "renew"
	c.mu.Lock()
	if !beat {
		c.n++
		c.argvs = append(c.argvs, argv)
	}
	now := !beat && c.n == c.at
	c.mu.Unlock()
	if now && c.late {
		_, _, _ = c.direct.Run(ctx, argv, stdin)
	}
	if now {
		c.cable.set(true)
	}
	return c.SSH.Run(ctx, argv, stdin)
}

// changes reports whether a command does more than read.
func changes(argv []string) bool {
	return argv[0] != "cat" && argv[0] != "id" && argv[0] != "ls" && !(argv[0] == "sh" && (argv[1] == "-c" || argv[2] == "alive" || argv[2] == "settled"))
}

// TestCutAtEveryStep: the connection is cut at each command of a change that is
// made and kept. The router restores its old state by itself, unless it
// received the command to keep the change. When it can be reached again, it
// answers which of the two happened.
func TestCutAtEveryStep(t *testing.T) {
	await.NotShort(t)
	t.Parallel()
	s := startServer(t)
	whole := cutRig(t, s, 0, false)
	if err := whole.keep(t); err != nil {
		t.Fatal(err)
	}
	commands := whole.daemon.r.(*cutter).argvs
	whole.revert(t)
	for i, argv := range commands {
		for _, late := range []bool{false, true} {
			if late && !changes(argv) {
				continue
			}
			name := fmt.Sprintf("%02d %s late=%v", i+1, strings.Join(argv[:1], " "), late)
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				cutAt(t, s, i+1, late)
			})
		}
	}
	t.Logf("%d commands", len(commands))
}

func cutRig(t *testing.T, s *server, at int, late bool) *rig {
	t.Helper()
	direct := s.dial(t)
	own := s.beside(t)
	r := &rig{server: own}
	r.configure(t, &cutter{SSH: own.dial(t), direct: direct, cable: own.cable, at: at, late: late})
	return r
}

func (r *rig) keep(t *testing.T) error {
	t.Helper()
	tr, err := r.engine.Begin(t.Context(), r.plan, apply.Options{Confirm: longAfter, Hold: true})
	if err != nil {
		return err
	}
	defer tr.Close()
	return tr.Commit()
}

func cutAt(t *testing.T, s *server, at int, late bool) {
	r := cutRig(t, s, at, late)
	err := r.keep(t)
	c := r.daemon.r.(*cutter)
	if c.n < at {
		t.Fatalf("it ended before command %d: %v", at, err)
	}
	argv := strings.Join(c.argvs[at-1], " ")
	forget := strings.HasSuffix(argv, "watchdog forget")
	kept := forget || late && strings.HasSuffix(argv, "watchdog close")
	if (err == nil) != forget {
		t.Errorf("cut at `%s`, it says %v", argv, err)
	}
	if !forget && !errors.Is(err, platform.ErrUnreachable) {
		t.Errorf("cut at `%s`, it says %v", argv, err)
	}
	if kept {
		await.Stays(t, watchdogWaits+2*time.Second, "cut at `"+argv+"`, the router has what was kept", func() bool { return r.text() == after })
	} else {
		waitFor(t, "the router to be as before, cut at `"+argv+"`", r.restored)
	}
	r.cable.set(false)
	_, err = r.engine.Confirm(t.Context(), r.plan.WAN, nil)
	if kept && !forget && err != nil {
		t.Errorf("cut at `%s`, it was kept, and asked again it says %v", argv, err)
	}
	if !kept && err == nil {
		t.Errorf("cut at `%s`, it was undone, and yet confirmed", argv)
	}
	if rec, err := r.engine.Record(r.plan.WAN); err != nil || (rec != nil) != kept {
		t.Errorf("cut at `%s`: kept %v, and the record is %v (%v)", argv, kept, rec, err)
	}
	if !kept {
		r.is(t, before)
	}
	r.revert(t)
}

// A deaf router takes every command, says who we are and that every directory is
// root's, and answers nothing else.
type deaf struct{}

func (deaf) Run(_ context.Context, argv []string, _ []byte) (stdout, stderr []byte, err error) {
	switch argv[0] {
	case "id":
		return []byte("0\n"), nil, nil
	case "ls":
		var b strings.Builder
		for _, dir := range argv[2:] {
			b.WriteString("drwxr-xr-x 2 0 0 4096 Jan 1 12:00 " + dir + "\n")
		}
		return []byte(b.String()), nil, nil
	}
	return nil, nil, nil
}

// A watchdog that does not say that it is armed is none, and the error says so.
func TestWatchdogThatSaysNothing(t *testing.T) {
	before, err := conf.Encode(conf.State{})
	if err != nil {
		t.Fatal(err)
	}
	d := &remote.Watchdog{Runner: deaf{}, Backend: daemon{r: deaf{}, dir: t.TempDir()}, Uptime: func() time.Duration { return 0 }}
	err = d.Arm(t.Context(), &apply.Journal{ID: "x", WAN: "wan", Before: before, Deadline: time.Minute})
	if err == nil || strings.Contains(err.Error(), "%!") || !strings.Contains(err.Error(), "armed") {
		t.Errorf("%v", err)
	}
}
