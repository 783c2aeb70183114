package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/keep/config"
	"unbloat/internal/keep/follow"
	"unbloat/internal/keep/metrics"
	"unbloat/internal/keep/steer"
	"unbloat/internal/keep/supervise"
	"unbloat/internal/measure/netio"
	"unbloat/unit"
)

// A Follower follows a line; *steer.Follower is one.
type Follower interface {
	Run(ctx context.Context) // until ctx ends
	NewLine()                // the interface is another one
	View() steer.View
	Metrics(wan string) metrics.WAN // without how often it was put in place
}

// A RateSetter gives shapers other rates without a program; *netio.RateSetter is one.
type RateSetter interface {
	Set(device string, rate unit.Rate) error
	Port() uint32 // of netlink: what comes from it is done by the daemon itself
	Close() error
}

// A pursuit is a follower that runs.
type pursuit struct {
	Follower
	held   bool       // the line's rates: its delay alone is measured
	plan   *plan.Plan // for whose line it was made
	setter RateSetter // nil: programs change the rates, or nothing does
	cancel context.CancelFunc
	done   chan struct{}
}

// renew goes on with a plan that was made again: the interface is another one, and the rates
// to which the line was followed stay.
func (p *pursuit) renew(made *plan.Plan) {
	p.NewLine()
	p.plan = made
}

// A following is the part of a WAN that has its line followed, or its delay measured, by one
// pursuit at a time. Only the WAN's loop changes it; others see what runs, and take what it
// has heard and decided.
type following struct {
	runs      atomic.Pointer[pursuit] // nil: nothing runs
	anew      atomic.Bool             // another pursuit is needed
	said      string                  // why nothing runs, as it was told last
	overheard overheard
	decisions decisions
}

// line returns what follows the line; nil: nothing does.
func (f *following) line() *pursuit {
	if p := f.runs.Load(); p != nil && !p.held {
		return p
	}
	return nil
}

// due says whether to end what runs, and then whether to start another, for the line of a
// plan; nil: nothing is to run.
func (f *following) due(is supervise.State, of *plan.Plan, held bool) (end, start bool) {
	p, inPlace := f.runs.Load(), is == supervise.InPlace
	again := inPlace && f.anew.Swap(false)
	switch {
	case p == nil:
	case inPlace: // somebody may have given it another plan
		end = again || p.plan != of || p.held != held
	default: // a line that is out of place for a while is followed on
		end = p.held || is == supervise.Suspended || is == supervise.Held || is == supervise.Foreign || is == supervise.Contested
	}
	return end, inPlace && of != nil && (p == nil || end)
}

// start runs a pursuit. equip gives it its follower, by a configuration that has what this
// part hears; wake wakes the WAN's loop. The reason why that can't be is returned once.
func (f *following) start(p *pursuit, wake func(), equip func(*pursuit, steer.Config) error) error {
	again := func() { f.anew.Store(true); wake() }
	if err := equip(p, steer.Config{Again: again, Asked: f.overheard.ask, Heard: f.overheard.hear}); err != nil {
		if err.Error() == f.said {
			return nil
		}
		f.said = err.Error()
		return err
	}
	if !p.held { // measuring may begin often
		f.said = ""
	}
	var ctx context.Context
	ctx, p.cancel = context.WithCancel(context.Background()) // end ends it
	p.done = make(chan struct{})
	f.runs.Store(p)
	go func() {
		defer close(p.done)
		p.Run(ctx)
		if p.setter != nil {
			_ = p.setter.Close()
		}
	}()
	return nil
}

// end ends what runs, and reports whether it followed the line: the shapers may have other
// rates than the plan.
func (f *following) end() (followed bool) {
	p := f.runs.Swap(nil)
	if p == nil {
		return false
	}
	p.cancel()
	<-p.done
	return !p.held
}

// pursue starts or ends the following of the line, or the measuring of its delay, as the
// WAN's state says. It belongs to the loop.
func (w *wan) pursue() {
	c, of, p := w.config, w.plan, w.changes.pending
	if c.Follow && (w.d.isCareful() != "" || p != nil && p.armed) ||
		!c.Follow && (of == nil || of.Down == nil || of.Up == nil || w.d.o.Gauge == nil || c.Unwatched || c.Router != "") {
		of = nil
	}
	end, start := w.following.due(w.supervisor.State(), of, !c.Follow)
	if end {
		w.abandon()
	}
	if !start {
		return
	}
	err := w.following.start(&pursuit{plan: of, held: !c.Follow}, func() { w.news.tell(change{}) }, w.equip)
	switch {
	case err == nil:
	case c.Follow:
		w.d.trouble("%s: %v", c.Name(), err)
	default:
		w.d.log("%s: its delay is not measured: %v", c.Name(), err)
	}
}

// equip gives a pursuit its follower, and what sets the rates.
func (w *wan) equip(p *pursuit, c steer.Config) (err error) {
	name, open, tells := w.config.Name(), w.d.o.Follow, "%s: %s"
	if p.held {
		open, tells = w.d.o.Gauge, "%s: its delay: %s"
	}
	if open == nil {
		return errors.New("follow the line: this build can't; use the full one, or follow = false")
	}
	c.Clock, c.Ring = netio.ClockSince(w.d.since), w.past.notes()
	c.Tell = func(text string) { w.d.log(tells, name, text) }
	c.Line, err = w.describe(p)
	switch {
	case err != nil && p.held:
		return err
	case err != nil:
		return fmt.Errorf("follow the line: %w; the rates are held", err)
	case !p.held:
		c.Decided = w.decided
		c.Set = func(ctx context.Context, rates [2]unit.Rate) error {
			_, err := w.call(ctx, func(ctx context.Context) (any, error) { return nil, w.retune(ctx, rates) })
			return err
		}
		if !c.Slow {
			if p.setter, err = w.d.o.Setter(); err != nil {
				return fmt.Errorf("follow the line: %w", err)
			}
			w.d.own(p.setter.Port())
		}
	}
	if p.Follower, err = open(c); err != nil && p.setter != nil {
		err = errors.Join(err, p.setter.Close())
	}
	return err
}

// describe returns the line of a pursuit.
func (w *wan) describe(of *pursuit) (l steer.Line, err error) {
	p, c, how := of.plan, w.wanted(), w.router.Driver.Retune
	l = steer.Line{Device: c.Interface, Reflectors: c.Reflectors, Slow: how == nil || !how.Netlink}
	if err = Followable(w.router.Driver, *p); err != nil && !of.held {
		return l, err
	}
	if !l.Slow {
		l.Inbound = p.Down.Device
	}
	if how != nil && how.Device != nil {
		ctx, cancel := context.WithTimeout(context.Background(), actionTime)
		defer cancel()
		if l.Device, err = how.Device(ctx, w.router.Here, c.Interface); err != nil {
			return l, err
		}
	}
	if of.held {
		for d, r := range [2]unit.Rate{p.DownBps, p.UpBps} {
			l.Params.Rates[d] = follow.Bounds{Least: r, Usual: r, Most: r}
		}
		return l, nil
	}
	l.Server = w.d.serverOf(w)
	l.Params = follow.Params{Rates: bounds(c, *p), Every: how.Every}
	if !l.Slow {
		l.Calls = [2][]int{follow.Down: p.CallTins(plan.DirectionDown), follow.Up: p.CallTins(plan.DirectionUp)}
	}
	for d := range l.Params.Rates {
		l.Params.Rates[d].LearnMost = l.Params.Rates[d].LearnMost && len(l.Calls[follow.Down])+len(l.Calls[follow.Up]) > 0
	}
	// Without a file that outlives the router's next boot it outlives the daemon.
	file := cmp.Or(c.Learn, filepath.Join(w.d.o.Dir, url.PathEscape(w.key)+".rates"))
	l.Memory = &steer.Memory{
		Load: func() ([]byte, error) { return os.ReadFile(file) },
		Save: func(b []byte) error {
			if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
				return err
			}
			return apply.WriteFile(file, b, 0o644)
		},
	}
	if c.Decisions != "" {
		l.Log = func() (io.WriteCloser, error) { return nextLog(c.Decisions) }
	}
	return l, nil
}

// nextLog opens a log of decisions. One that is there already is the one before.
func nextLog(name string) (io.WriteCloser, error) {
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return nil, err
	}
	if err := os.Rename(name, name+".old"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
}

// bounds are the rates between which a line is followed, at first.
func bounds(c config.WAN, p plan.Plan) (out [2]follow.Bounds) {
	for d, x := range [2]struct{ least, line, most, rate unit.Rate }{{c.LeastDown, c.Down, c.MostDown, p.DownBps}, {c.LeastUp, c.Up, c.MostUp, p.UpBps}} {
		out[d] = follow.BoundsOf(x.least, x.line, x.most, x.rate)
	}
	return out
}

// serverOf returns the server that may tell the delay of a WAN: its probes go wherever
// the routes lead, so with several WANs it would tell of any.
func (d *Daemon) serverOf(w *wan) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.config.WANs {
		if c.Router == "" && c.Interface != w.name {
			return ""
		}
	}
	return d.config.Server
}

// Followable says why a line that is shaped by that plan can't be followed on such a
// router; nil: it can.
func Followable(d *platform.Driver, p plan.Plan) error {
	if d.Retune == nil {
		return fmt.Errorf("on %s a shaper can't get another rate in place", d.Name())
	}
	return d.Retune.Can(p)
}

// retune gives the shapers other rates, with the line's setter or by commands. It belongs
// to the loop.
func (w *wan) retune(ctx context.Context, rates [2]unit.Rate) error {
	l := w.following.line()
	if l == nil || l.plan != w.plan || w.supervisor.State() != supervise.InPlace {
		return fmt.Errorf("change the rates of %s: it is not in place now", w.config.Name())
	}
	var set func(device string, rate unit.Rate) error
	if l.setter != nil {
		set = l.setter.Set
	} else {
		unlock, err := w.d.lockRouter(ctx, w.config.Router)
		if err != nil {
			return err
		}
		defer unlock()
		defer w.news.act()()
	}
	err := w.router.Engine.Retune(ctx, w.router.Driver.Retune.Round(rates), set)
	if err != nil {
		w.supervisor.Changed(time.Now()) // it may have either rates
	}
	w.changes.learn(w.rates.Record()) // it is ours, and the usual rates stay in the configuration
	return err
}

// abandon ends the following, or the measuring. The shapers get the plan's rates again, so
// that everybody else finds what is recorded.
func (w *wan) abandon() {
	if !w.following.end() {
		return
	}
	if is := w.supervisor.State(); w.router == nil || is == supervise.Foreign || is == supervise.Contested {
		w.rates.Forget()
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), actionTime)
	defer cancel()
	defer w.news.act()()
	if err := w.router.Engine.Settle(ctx); err != nil {
		w.d.trouble("%s: %v", w.config.Name(), err)
	}
	w.changes.learn(w.rates.Record())
}

// own remembers a netlink port whose changes are no news.
func (d *Daemon) own(port uint32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ports[port] = true
}

// Metrics returns what the daemon's metrics say now.
func (d *Daemon) metrics() metrics.Snapshot {
	out := metrics.Snapshot{Version: d.o.Version, Go: d.o.Go, Panics: d.panics.Load(), Stale: d.failed() != ""}
	for _, w := range d.all() {
		s, _ := w.snapshot()
		m := metrics.WAN{Name: w.key}
		if p := w.following.runs.Load(); p != nil {
			m = p.Metrics(w.key)
		}
		m.State = s.State
		if s.Line == nil { // of the plan, even where it is measured
			for way, r := range [2]unit.Rate{s.Down, s.Up} {
				m.Way[way].Rate = r
			}
		}
		m.Reconciles = w.board.counts()
		out.WANs = append(out.WANs, m)
	}
	return out
}

// A cause is why the shaping was put in place.
type cause string

// Causes.
const (
	causeStart    cause = "start"     // the daemon began, or its configuration changed
	causeReplaced cause = "interface" // the interface came again
	causeChanged  cause = "changed"   // something changed it
	causeSchedule cause = "schedule"  // the schedule says something else
)

func causes() []cause { return []cause{causeStart, causeReplaced, causeChanged, causeSchedule} }
