package remote

import (
	"context"
	_ "embed" // the watchdog's script
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"unbloat/internal/apply"
	"unbloat/internal/platform"
)

//go:embed watchdog.sh
var watchdogScript string

// Times of the watchdog. While a process is at work it beats; if that ends, or
// the way to the router does, the router undoes the change after patience.
const (
	patience   = 20 * time.Second
	beats      = 4                      // in the time of patience
	undoing    = time.Minute            // for an undo of ours, before the router begins its own
	settleFor  = 30 * time.Second       // for an undo of the router's
	settlePoll = 500 * time.Millisecond // between looks at it
	closeTries = 3
	closePause = time.Second // between attempts to end it
)

// A Restorer is a backend that can lead back to a snapshot blindly.
type Restorer interface {
	Restore(before platform.State) ([]platform.Step, error)
}

// A Watchdog undoes a change from the router itself: a shell script there, which
// needs neither this program nor a connection. It implements apply.Watchdog.
type Watchdog struct {
	Runner  platform.Runner
	Backend Restorer
	Uptime  func() time.Duration // of the engine, by which deadlines are told
	Path    string               // PATH on the router; "": the usual directories
	Folder  string               // where watchdogs are on the router; "": /tmp, which a reboot empties
	// Patience is how long the watchdog waits for a maker that it no longer hears; 0: 20 s.
	Patience time.Duration
	// Translate, if set, turns a step of the backend into a command of the router's
	// shell; files are put beside the script, which finds them at dir.
	Translate func(dir string, s platform.Step) platform.Step
	Files     map[string]string

	telling  sync.Mutex // one beat at a time, in the order of their numbers
	mu       sync.Mutex
	beat     int
	deadline time.Duration      // beyond which nothing beats
	stop     context.CancelFunc // ends the heart
	done     chan struct{}      // closed when it has ended
}

// prefix is where the folders of all watchdogs begin.
func (d *Watchdog) prefix() string {
	if d.Folder != "" {
		return d.Folder + "/unbloat-watchdog-"
	}
	return "/tmp/unbloat-watchdog-"
}

func (d *Watchdog) dir(j *apply.Journal) string { return d.prefix() + j.ID }

// Arm implements apply.Watchdog: it puts the script and what it needs on the
// router, starts it, and begins to beat.
func (d *Watchdog) Arm(ctx context.Context, j *apply.Journal) error {
	steps, err := d.Backend.Restore(j.Before)
	if err != nil {
		return err
	}
	if err := d.alone(ctx, j); err != nil {
		return err
	}
	if err := d.arm(ctx, j, steps); err != nil {
		d.stopHeart()
		ctx := context.WithoutCancel(ctx)
		if e := d.call(ctx, j, "close"); !errors.Is(e, platform.ErrUnreachable) { // should it watch after all
			_, _ = platform.Output(ctx, d.Runner, "rm", "-rf", d.dir(j))
		}
		return fmt.Errorf("start the watchdog on the router: %w; nothing was changed", err)
	}
	return nil
}

func (d *Watchdog) arm(ctx context.Context, j *apply.Journal, steps []platform.Step) error {
	if _, err := platform.Output(ctx, d.Runner, "mkdir", "-m", "700", d.dir(j)); err != nil {
		return err
	}
	script, files := d.script(d.dir(j), steps)
	files["wan"] = j.WAN
	maps.Copy(files, d.Files)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := d.put(ctx, d.dir(j)+"/"+name, files[name]); err != nil {
			return err
		}
	}
	if err := d.put(ctx, d.dir(j)+"/watchdog", script); err != nil {
		return err
	}
	if err := d.renew(ctx, j, d.left(j)); err != nil {
		return err
	}
	out, err := platform.Output(ctx, d.Runner, "sh", d.dir(j)+"/watchdog", "start")
	if err == nil {
		err = d.call(ctx, j, "alive")
	}
	if err != nil || strings.TrimSpace(string(out)) != "armed" {
		return fmt.Errorf("it did not say that it watches (%q): %w", out, err)
	}
	d.startHeart(j)
	return nil
}

// watchdogs prints the folder of each watchdog that watches over the WAN $1; $2 is
// where they begin.
const watchdogs = `for d in "$2"*; do [ "$(cat "$d/wan" 2>/dev/null)" != "$1" ] || ! sh "$d/watchdog" alive 2>/dev/null || echo "$d"; done`

// alone refuses a WAN over which another machine's watchdog watches: its undo would
// take our change away, or ours bring back its.
func (d *Watchdog) alone(ctx context.Context, j *apply.Journal) error {
	out, err := platform.Output(ctx, d.Runner, "sh", "-c", watchdogs, "sh", j.WAN, d.prefix())
	if err != nil {
		return fmt.Errorf("look for other watchdogs on the router: %w; nothing was changed", err)
	}
	if found := strings.Fields(string(out)); len(found) > 0 {
		return &platform.PreconditionError{Doing: "change " + j.WAN, What: "a change that somebody made from another machine waits for confirmation (" + found[0] + " on the router)",
			Remedy: "confirm or revert it there, or wait until it is undone"}
	}
	return nil
}

// call runs one verb of the watchdog.
func (d *Watchdog) call(ctx context.Context, j *apply.Journal, verb ...string) error {
	_, err := platform.Output(ctx, d.Runner, append([]string{"sh", d.dir(j) + "/watchdog"}, verb...)...)
	return err
}

func (d *Watchdog) put(ctx context.Context, path, text string) error {
	_, errOut, err := d.Runner.Run(ctx, []string{"tee", path}, []byte(text))
	if err != nil {
		return fmt.Errorf("write %s: %w: %s", path, err, errOut)
	}
	return nil
}

// script writes the steps into the watchdog's script, and what they read into files.
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

// renew gives the watchdog this long from now.
func (d *Watchdog) renew(ctx context.Context, j *apply.Journal, left time.Duration) error {
	d.telling.Lock()
	defer d.telling.Unlock()
	d.mu.Lock()
	d.beat++
	n := d.beat
	d.mu.Unlock()
	seconds := strconv.Itoa(int((left + time.Second - 1) / time.Second))
	// A number that differs from any before it, also from another process's.
	number := j.ID + "." + strconv.FormatInt(int64(d.Uptime()), 36) + "." + strconv.Itoa(n)
	if err := d.call(ctx, j, "renew", number, seconds); err != nil {
		return fmt.Errorf("tell the watchdog on the router: %w; it has undone the change, or will as soon as it is due", err)
	}
	return nil
}

// Renew implements apply.Watchdog. An armed transaction waits for its deadline;
// any other lives as long as we beat. An undo of ours gets its time, and waits
// for one that the router has begun.
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

// settle waits until the router's own undo has ended; a watchdog that is gone has.
func (d *Watchdog) settle(ctx context.Context, j *apply.Journal) {
	tick := time.NewTicker(settlePoll)
	defer tick.Stop()
	for end := d.Uptime() + settleFor; d.Uptime() < end; {
		_, errOut, err := d.Runner.Run(ctx, []string{"sh", d.dir(j) + "/watchdog", "settled"}, nil)
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

// left returns how long the watchdog waits for the next beat; it keeps the deadline.
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

// startHeart beats until stopHeart.
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
				// A beat that fails needs no words: the watchdog acts, and the next
				// thing that is done on the router meets that. One that is on its
				// way is waited for, lest it overtake a longer one.
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

// Close implements apply.Watchdog. An answer that was lost on the way is asked
// for again; the watchdog's first word stands.
func (d *Watchdog) Close(ctx context.Context, j *apply.Journal) error {
	d.stopHeart()
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
		return fmt.Errorf("end the watchdog on the router: %w; whether it has kept or undone the change is known only there: run `unbloat confirm` again when it can be reached", err)
	case err == nil || j.Phase == apply.Undoing: // it forgets by itself, later
		_ = d.call(ctx, j, "forget")
	}
	if err != nil {
		return fmt.Errorf("end the watchdog on the router: %w (%w)", apply.ErrTooLate, err)
	}
	return nil
}
