package remote

import (
	"context"
	_ "embed" // the watchdog's script
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"unbloat/guard"
	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/platform"
)

//go:embed watchdog.sh
var watchdogScript string

// Times of the watchdog. While a process works on a change it sends heartbeats. If
// they stop, because the process or the connection is gone, the router undoes the
// change after patience.
const (
	patience   = 20 * time.Second
	beats      = 4                      // heartbeats within patience
	undoing    = time.Minute            // time for our own undo, before the router starts its own
	settleFor  = 30 * time.Second       // longest wait for the router's undo
	settlePoll = 500 * time.Millisecond // between checks of it
	closeTries = 3
	closePause = time.Second // between attempts to stop it
)

// A Watchdog undoes a change from the router itself. It is a shell script there, which
// needs neither this program nor a connection. It implements apply.Watchdog.
type Watchdog struct {
	Runner  platform.Runner
	Backend platform.Backend
	Uptime  func() time.Duration // the engine's clock, in which deadlines are given
	Path    string               // PATH on the router; "": the usual directories
	Folder  string               // directory of the watchdogs on the router; "": that of runtimeDirs
	// Patience is the time without a heartbeat after which the watchdog acts; 0: 20 s.
	Patience time.Duration
	// Translate, if set, turns a step of the backend into a command for the router's
	// shell. Files are written to the script's directory dir.
	Translate func(dir string, s platform.Step) platform.Step
	Files     map[string]string

	telling  sync.Mutex // one heartbeat at a time, in the order of their numbers
	mu       sync.Mutex
	found    string // prefix's answer
	beat     int
	deadline time.Duration      // heartbeats extend no further than this
	stop     context.CancelFunc // stops the heartbeats
	done     chan struct{}      // closed when they have stopped
}

// runtimeDirs are where systems have what a reboot ends: a directory of root's, which some
// reach through links. The second is for small Linux systems that have only that one.
// Anybody may make files in /tmp.
func runtimeDirs() []string { return []string{"/var/run", "/run"} }

// prefix returns the beginning of the paths of all watchdogs' directories. It is looked up
// once: nobody else can change what leads there.
func (d *Watchdog) prefix(ctx context.Context) (string, error) {
	d.mu.Lock()
	found := d.found
	d.mu.Unlock()
	if found != "" {
		return found, nil
	}
	folders := runtimeDirs()
	if d.Folder != "" {
		folders = []string{d.Folder}
	}
	id, err := platform.Output(ctx, d.Runner, "id", "-u")
	if err != nil {
		return "", fmt.Errorf("ask the router who we are: %w", err)
	}
	uid, err := strconv.Atoi(strings.TrimSpace(string(id)))
	if err != nil {
		return "", fmt.Errorf("ask the router who we are: it says %q", id)
	}
	at := ""
	for _, folder := range folders {
		if at, err = platform.TrustedDir(ctx, d.Runner, folder, uid); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	var strange *guard.UntrustedError
	if errors.As(err, &strange) {
		return "", &platform.PreconditionError{Doing: "keep a watchdog on the router", What: err.Error(),
			Remedy: "root alone must be able to change that directory: find out who made it so", Err: err}
	}
	if err != nil {
		return "", fmt.Errorf("look for a place for the watchdog on the router: %w", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.found = at + "/unbloat-watchdog-"
	return d.found, nil
}

// dir returns the directory of a transaction's watchdog.
func (d *Watchdog) dir(ctx context.Context, j *apply.Journal) (string, error) {
	prefix, err := d.prefix(ctx)
	return prefix + j.ID, err
}

// Arm implements apply.Watchdog: it writes the script and its files to the router,
// starts it, and starts the heartbeats.
func (d *Watchdog) Arm(ctx context.Context, j *apply.Journal) error {
	steps, err := d.Backend.Restore(j.Before, nil)
	if err != nil {
		return err
	}
	if err := d.alone(ctx, j); err != nil {
		return err
	}
	if err := d.arm(ctx, j, steps); err != nil {
		d.stopHeart()
		ctx := context.WithoutCancel(ctx)
		if e := d.call(ctx, j, "close"); !errors.Is(e, platform.ErrUnreachable) { // in case it watches after all
			if dir, err := d.dir(ctx, j); err == nil {
				_, _ = platform.Output(ctx, d.Runner, "rm", "-rf", dir)
			}
		}
		return fmt.Errorf("start the watchdog on the router: %w; nothing was changed", err)
	}
	return nil
}

func (d *Watchdog) arm(ctx context.Context, j *apply.Journal, steps []platform.Step) error {
	dir, err := d.dir(ctx, j)
	if err != nil {
		return err
	}
	if _, err := platform.Output(ctx, d.Runner, "mkdir", "-m", "700", dir); err != nil {
		return err
	}
	script, files := d.script(dir, steps)
	files["wan"] = j.WAN
	maps.Copy(files, d.Files)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := d.put(ctx, dir+"/"+name, files[name]); err != nil {
			return err
		}
	}
	if err := d.put(ctx, dir+"/watchdog", script); err != nil {
		return err
	}
	if err := d.renew(ctx, j, d.left(j)); err != nil {
		return err
	}
	out, err := platform.Output(ctx, d.Runner, "sh", dir+"/watchdog", "start")
	if err == nil && strings.TrimSpace(string(out)) != "armed" {
		err = errors.New("it says something else than that it is armed")
	}
	if err == nil {
		err = d.call(ctx, j, "alive")
	}
	if err != nil {
		return fmt.Errorf("it did not confirm that it watches (%q): %w", out, err)
	}
	d.startHeart(j)
	return nil
}

// watchdogs prints the directory of each running watchdog for the WAN $1; $2 is the
// beginning of their paths.
const watchdogs = `for d in "$2"*; do [ "$(cat "$d/wan" 2>/dev/null)" != "$1" ] || ! sh "$d/watchdog" alive 2>/dev/null || echo "$d"; done`

// alone refuses a WAN that has a watchdog of another machine: its undo would remove
// our change, or ours would restore its change.
func (d *Watchdog) alone(ctx context.Context, j *apply.Journal) error {
	prefix, err := d.prefix(ctx)
	if err != nil {
		return err
	}
	out, err := platform.Output(ctx, d.Runner, "sh", "-c", watchdogs, "sh", j.WAN, prefix)
	if err != nil {
		return fmt.Errorf("look for other watchdogs on the router: %w; nothing was changed", err)
	}
	if found := strings.Fields(string(out)); len(found) > 0 {
		return &platform.PreconditionError{Doing: "change " + j.WAN, What: "a change that somebody made from another machine waits for confirmation (" + found[0] + " on the router)",
			Remedy: "confirm or revert it there, or wait until it is undone"}
	}
	return nil
}

// call runs one command of the watchdog's script.
func (d *Watchdog) call(ctx context.Context, j *apply.Journal, verb ...string) error {
	dir, err := d.dir(ctx, j)
	if err == nil {
		_, err = platform.Output(ctx, d.Runner, append([]string{"sh", dir + "/watchdog"}, verb...)...)
	}
	return err
}

func (d *Watchdog) put(ctx context.Context, path, text string) error {
	_, errOut, err := d.Runner.Run(ctx, []string{"tee", path}, []byte(text))
	if err != nil {
		return fmt.Errorf("write %s: %w: %s", path, err, errOut)
	}
	return nil
}

// script writes the steps into the watchdog's script, and their input into files.
func (d *Watchdog) script(at string, steps []platform.Step) (text string, files map[string]string) {
	files = map[string]string{}
	var undo strings.Builder
	for i, s := range steps {
		if d.Translate != nil {
			s = d.Translate(at, s)
		}
		if s.Stdin == "" {
			fmt.Fprintf(&undo, "\trun %s\n", Quote(s.Argv))
			continue
		}
		name := "in." + strconv.Itoa(i)
		files[name] = s.Stdin
		fmt.Fprintf(&undo, "\tfeed %s %s\n", name, Quote(s.Argv))
	}
	path := d.Path
	if path == "" {
		path = usualPath
	}
	return strings.NewReplacer("@PATH@", path, "@UNDO@\n", undo.String()).Replace(watchdogScript), files
}

// renew extends the watchdog's time to left from now.
func (d *Watchdog) renew(ctx context.Context, j *apply.Journal, left time.Duration) error {
	d.telling.Lock()
	defer d.telling.Unlock()
	d.mu.Lock()
	d.beat++
	n := d.beat
	d.mu.Unlock()
	seconds := strconv.Itoa(int((left + time.Second - 1) / time.Second))
	// A number that is unique, also among the numbers of other processes.
	number := j.ID + "." + strconv.FormatInt(int64(d.Uptime()), 36) + "." + strconv.Itoa(n)
	if err := d.call(ctx, j, "renew", number, seconds); err != nil {
		return fmt.Errorf("renew the watchdog on the router: %w; it has undone the change, or will when its time is over", err)
	}
	return nil
}

// Renew implements apply.Watchdog. An armed transaction lasts until its deadline,
// any other as long as we send heartbeats. For our own undo it asks the router to
// wait; if the router has started its own, it waits for that to end.
func (d *Watchdog) Renew(ctx context.Context, j *apply.Journal) error {
	switch j.Phase {
	case apply.Undoing:
		d.stopHeart()
		err := d.renew(ctx, j, undoing)
		if err != nil && !errors.Is(err, platform.ErrUnreachable) {
			d.settle(ctx, j)
		}
		return err
	case apply.Armed:
		d.stopHeart()
		return d.renew(ctx, j, j.Deadline-d.Uptime())
	}
	left := d.left(j)
	d.mu.Lock()
	beating := d.stop != nil
	d.mu.Unlock()
	if !beating {
		d.startHeart(j)
	}
	return d.renew(ctx, j, left)
}

// settle waits until the router's own undo has ended. A watchdog that is gone has
// ended it.
func (d *Watchdog) settle(ctx context.Context, j *apply.Journal) {
	dir, err := d.dir(ctx, j)
	if err != nil {
		return
	}
	tick := time.NewTicker(settlePoll)
	defer tick.Stop()
	for end := d.Uptime() + settleFor; d.Uptime() < end; {
		_, errOut, err := d.Runner.Run(ctx, []string{"sh", dir + "/watchdog", "settled"}, nil)
		if err == nil || len(errOut) > 0 || errors.Is(err, platform.ErrUnreachable) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// left returns the watchdog's time until the next heartbeat, and stores the deadline.
func (d *Watchdog) left(j *apply.Journal) time.Duration {
	d.mu.Lock()
	d.deadline = j.Deadline
	d.mu.Unlock()
	return d.leftNow()
}

func (d *Watchdog) leftNow() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return max(min(d.patience(), d.deadline-d.Uptime()), 0)
}

func (d *Watchdog) patience() time.Duration {
	if d.Patience > 0 {
		return d.Patience
	}
	return patience
}

// startHeart sends heartbeats until stopHeart.
func (d *Watchdog) startHeart(j *apply.Journal) {
	d.stopHeart()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	d.mu.Lock()
	d.stop, d.done = cancel, done
	d.mu.Unlock()
	own := *j
	go func() { // ends with stopHeart
		defer close(done)
		t := time.NewTicker(d.patience() / beats)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
				// A failed heartbeat is not reported: the watchdog acts, and the next
				// command on the router finds that out. One under way is not
				// cancelled, so that it cannot arrive after a later, longer one.
				_ = d.renew(context.WithoutCancel(ctx), &own, d.leftNow())
			}
		}
	}()
}

func (d *Watchdog) stopHeart() {
	d.mu.Lock()
	stop, done := d.stop, d.done
	d.stop, d.done = nil, nil
	d.mu.Unlock()
	if stop != nil {
		stop()
		<-done
	}
}

// Alive implements apply.Watchdog.
func (d *Watchdog) Alive(ctx context.Context, j *apply.Journal) bool {
	return d.call(ctx, j, "alive") == nil
}

// Close implements apply.Watchdog. If the answer is lost, it asks again; the watchdog
// repeats its first answer.
func (d *Watchdog) Close(ctx context.Context, j *apply.Journal) error {
	d.stopHeart()
	if _, err := d.prefix(ctx); err != nil && !errors.Is(err, platform.ErrUnreachable) {
		return err // it was not asked
	}
	err := d.call(ctx, j, "close")
	for try := 1; try < closeTries && errors.Is(err, platform.ErrUnreachable) && ctx.Err() == nil; try++ {
		pause := time.NewTimer(closePause)
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
		pause.Stop()
		err = d.call(ctx, j, "close")
	}
	switch {
	case errors.Is(err, platform.ErrUnreachable):
		return fmt.Errorf("stop the watchdog on the router: %w; only the router knows whether the change was kept or undone: run `unbloat confirm` again when it can be reached", err)
	case err == nil || j.Phase == apply.Undoing: // otherwise it removes itself later
		_ = d.call(ctx, j, "forget")
	}
	if err != nil {
		return fmt.Errorf("stop the watchdog on the router: %w (%w)", apply.ErrTooLate, err)
	}
	return nil
}
