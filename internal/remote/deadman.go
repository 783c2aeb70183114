package remote

import (
	"context"
	_ "embed" // the guard's script
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"unbloat/internal/apply"
	"unbloat/internal/host"
)

//go:embed guard.sh
var guardScript string

// Times of the dead-man. While a process is at work it beats; if that ends, or
// the way to the router does, the router undoes the change after patience.
const (
	beatEvery = 5 * time.Second
	patience  = 20 * time.Second
)

// A Restorer is a backend that can lead back to a snapshot blindly.
type Restorer interface {
	Restore(before host.State) ([]host.Step, error)
}

// A Deadman undoes a change from the router itself: a shell script there, which
// needs neither this program nor a connection. It implements apply.Deadman.
type Deadman struct {
	Runner  host.Runner
	Backend Restorer
	Uptime  func() time.Duration // of the engine, by which deadlines are told
	Path    string               // PATH on the router; "": the usual directories

	mu       sync.Mutex
	beat     int
	deadline time.Duration      // beyond which nothing beats
	stop     context.CancelFunc // ends the heart
	done     chan struct{}      // closed when it has ended
}

func dir(j *apply.Journal) string { return "/tmp/unbloat-guard-" + j.ID }

// Arm implements apply.Deadman: it puts the script and what it needs on the
// router, starts it, and begins to beat.
func (d *Deadman) Arm(ctx context.Context, j *apply.Journal) error {
	steps, err := d.Backend.Restore(j.Before)
	if err != nil {
		return err
	}
	fail := func(err error) error {
		return fmt.Errorf("start the guard on the router: %w; nothing was changed", err)
	}
	if _, err := host.Output(ctx, d.Runner, "mkdir", "-m", "700", dir(j)); err != nil {
		return fail(err)
	}
	script, files := d.script(steps)
	for name, text := range files {
		if err := d.put(ctx, dir(j)+"/"+name, text); err != nil {
			return fail(err)
		}
	}
	if err := d.put(ctx, dir(j)+"/guard", script); err != nil {
		return fail(err)
	}
	if err := d.renew(ctx, j, d.left(j)); err != nil {
		return fail(err)
	}
	out, err := host.Output(ctx, d.Runner, "sh", dir(j)+"/guard", "start")
	if err != nil || strings.TrimSpace(string(out)) != "armed" || !d.Alive(ctx, j) {
		return fail(fmt.Errorf("it did not say that it watches (%q, %v)", out, err))
	}
	d.startHeart(j)
	return nil
}

func (d *Deadman) put(ctx context.Context, path, text string) error {
	_, errOut, err := d.Runner.Run(ctx, []string{"tee", path}, []byte(text))
	if err != nil {
		return fmt.Errorf("write %s: %w: %s", path, err, errOut)
	}
	return nil
}

// script writes the steps into the guard's script, and what they read into files.
func (d *Deadman) script(steps []host.Step) (text string, files map[string]string) {
	files = map[string]string{}
	var undo strings.Builder
	for i, s := range steps {
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
	return strings.NewReplacer("@PATH@", path, "@UNDO@\n", undo.String()).Replace(guardScript), files
}

// renew gives the guard this long from now.
func (d *Deadman) renew(ctx context.Context, j *apply.Journal, left time.Duration) error {
	d.mu.Lock()
	d.beat++
	n := d.beat
	d.mu.Unlock()
	seconds := strconv.Itoa(int((left + time.Second - 1) / time.Second))
	// A number that differs from any before it, also from another process's.
	number := j.ID + "." + strconv.FormatInt(int64(d.Uptime()), 36) + "." + strconv.Itoa(n)
	_, err := host.Output(ctx, d.Runner, "sh", dir(j)+"/guard", "renew", number, seconds)
	if err != nil {
		return fmt.Errorf("tell the guard on the router: %w; it has undone the change, or will as soon as it is due", err)
	}
	return nil
}

// Renew implements apply.Deadman. An armed transaction waits for its deadline;
// any other lives as long as we beat.
func (d *Deadman) Renew(ctx context.Context, j *apply.Journal) error {
	if j.Phase == apply.Armed {
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

// left returns how long the guard waits for the next beat; it keeps the deadline.
func (d *Deadman) left(j *apply.Journal) time.Duration {
	d.mu.Lock()
	d.deadline = j.Deadline
	d.mu.Unlock()
	return d.leftNow()
}

func (d *Deadman) leftNow() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return max(min(patience, d.deadline-d.Uptime()), 0)
}

// startHeart beats until stopHeart.
func (d *Deadman) startHeart(j *apply.Journal) {
	d.stopHeart()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	d.mu.Lock()
	d.stop, d.done = cancel, done
	d.mu.Unlock()
	own := *j
	go func() {
		defer close(done)
		t := time.NewTicker(beatEvery)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
				// A beat that fails needs no words: the guard acts, and the next
				// thing that is done on the router meets that.
				_ = d.renew(ctx, &own, d.leftNow())
			}
		}
	}()
}

func (d *Deadman) stopHeart() {
	d.mu.Lock()
	stop, done := d.stop, d.done
	d.stop, d.done = nil, nil
	d.mu.Unlock()
	if stop != nil {
		stop()
		<-done
	}
}

// Alive implements apply.Deadman.
func (d *Deadman) Alive(ctx context.Context, j *apply.Journal) bool {
	_, err := host.Output(ctx, d.Runner, "sh", dir(j)+"/guard", "alive")
	return err == nil
}

// Close implements apply.Deadman.
func (d *Deadman) Close(ctx context.Context, j *apply.Journal) error {
	d.stopHeart()
	if _, err := host.Output(ctx, d.Runner, "sh", dir(j)+"/guard", "close"); err != nil {
		return fmt.Errorf("end the guard on the router: %w; it has undone the change", err)
	}
	return nil
}
