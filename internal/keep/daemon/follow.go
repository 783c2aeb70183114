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
	Rates() [2]unit.Rate
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
	setter RateSetter // nil: programs change the rates
	plan   *plan.Plan // for whose line it was made
	cancel context.CancelFunc
	done   chan struct{}
}

// pursue starts or ends the following of the line, as the WAN's state says. It
// belongs to the loop.
func (w *wan) pursue() {
	w.gauge()
	p := w.line.Load()
	wanted := w.config.Follow && w.plan != nil && w.d.isCareful() == "" && (w.pending == nil || !w.pending.armed)
	switch w.supervisor.State() {
	case supervise.InPlace:
		again := w.anew.Swap(false)
		if p != nil && (again || !wanted || p.plan != w.plan) { // somebody has given it another plan
			w.abandon()
			p = nil
		}
		if wanted && p == nil {
			w.follow()
		}
	case supervise.Suspended, supervise.Held, supervise.Foreign, supervise.Contested:
		w.abandon()
	}
}

// gauge starts or ends the measuring of a line whose rates are held, as the WAN's state
// says. It belongs to the loop.
func (w *wan) gauge() {
	p, plan := w.measured.Load(), w.plan
	wanted := w.d.o.Gauge != nil && !w.config.Follow && !w.config.Unwatched && w.config.Router == "" &&
		w.supervisor.State() == supervise.InPlace && plan != nil && plan.Down != nil && plan.Up != nil
	if p != nil && wanted && p.plan == plan && !w.anew.Swap(false) {
		return
	}
	w.ungauge()
	if !wanted {
		return
	}
	c := steer.Config{Clock: netio.ClockSince(w.d.since), Ring: w.past(), Line: steer.Line{
		Device: w.config.Interface, Reflectors: w.config.Reflectors, Slow: true,
		Params: follow.Params{Rates: [2]follow.Bounds{held(plan.DownBps), held(plan.UpBps)}},
	}}
	c.Again = func() { w.anew.Store(true); w.news.tell(change{}) }
	c.Tell = func(text string) { w.d.log("%s: its delay: %s", w.config.Name(), text) }
	c.Asked, c.Heard = w.overheard.ask, w.overheard.hear
	var err error
	if how := w.router.Driver.Retune; how != nil {
		if c.Slow = !how.Netlink; how.Netlink {
			c.Inbound = plan.Down.Device
		}
		if how.Device != nil {
			ctx, cancel := context.WithTimeout(context.Background(), actionTime)
			defer cancel()
			c.Device, err = how.Device(ctx, w.router.Here, w.config.Interface)
		}
	}
	p = &pursuit{plan: plan, done: make(chan struct{})}
	if err == nil {
		p.Follower, err = w.d.o.Gauge(c)
	}
	if err != nil {
		if text := err.Error(); text != w.unfollowed {
			w.unfollowed = text
			w.d.log("%s: its delay is not measured: %s", w.config.Name(), text)
		}
		return
	}
	var ctx context.Context
	ctx, p.cancel = context.WithCancel(context.Background()) // ungauge ends it
	w.measured.Store(p)
	go func() {
		defer close(p.done)
		p.Run(ctx)
	}()
}

// ungauge ends it.
func (w *wan) ungauge() {
	if p := w.measured.Swap(nil); p != nil {
		p.cancel()
		<-p.done
	}
}

// held are the bounds of a rate that does not change.
func held(r unit.Rate) follow.Bounds { return follow.Bounds{Least: r, Usual: r, Most: r} }

// follow starts to follow the line.
func (w *wan) follow() {
	p, err := w.pursuit()
	if err != nil {
		if text := err.Error(); text != w.unfollowed {
			w.unfollowed = text
			w.d.trouble("%s: %s", w.config.Name(), text)
		}
		return
	}
	w.unfollowed = ""
	var ctx context.Context
	ctx, p.cancel = context.WithCancel(context.Background()) // abandon ends it
	w.line.Store(p)
	go func() {
		defer close(p.done)
		p.Run(ctx)
		if p.setter != nil {
			_ = p.setter.Close()
		}
	}()
}

// pursuit returns one that does not run yet.
func (w *wan) pursuit() (p *pursuit, err error) {
	if w.d.o.Follow == nil {
		return nil, errors.New("follow the line: this build can't; use the full one, or follow = false")
	}
	c := steer.Config{Clock: netio.ClockSince(w.d.since), Ring: w.past(), Decided: w.decided}
	if c.Line, err = w.followed(); err != nil {
		return nil, err
	}
	name := w.config.Name()
	c.Again = func() { w.anew.Store(true); w.news.tell(change{}) }
	c.Tell = func(text string) { w.d.log("%s: %s", name, text) }
	c.Asked, c.Heard = w.overheard.ask, w.overheard.hear
	c.Set = func(ctx context.Context, rates [2]unit.Rate) error {
		_, err := w.call(ctx, func(ctx context.Context) (any, error) { return nil, w.retune(ctx, rates) })
		return err
	}
	p = &pursuit{plan: w.plan, done: make(chan struct{})}
	if !c.Slow {
		if p.setter, err = w.d.o.Setter(); err != nil {
			return nil, fmt.Errorf("follow the line: %w", err)
		}
		w.d.own(p.setter.Port())
	}
	if p.Follower, err = w.d.o.Follow(c); err != nil && p.setter != nil {
		err = errors.Join(err, p.setter.Close())
	}
	return p, err
}

// followed returns the line that is to be followed.
func (w *wan) followed() (l steer.Line, err error) {
	p, c, how := w.plan, w.wanted(), w.router.Driver.Retune
	if err := Followable(w.router.Driver, *p); err != nil {
		return l, fmt.Errorf("follow the line: %w; the rates are held", err)
	}
	l = steer.Line{Device: c.Interface, Inbound: p.Down.Device, Reflectors: c.Reflectors, Server: w.d.serverOf(w), Slow: !how.Netlink, Params: follow.Params{Rates: bounds(c, *p), Every: how.Every}}
	if how.Netlink {
		l.Calls = [2][]int{follow.Down: p.CallTins(plan.DirectionDown), follow.Up: p.CallTins(plan.DirectionUp)}
	}
	for d := range l.Params.Rates {
		l.Params.Rates[d].LearnMost = l.Params.Rates[d].LearnMost && len(l.Calls[follow.Down])+len(l.Calls[follow.Up]) > 0
	}
	if l.Slow {
		l.Inbound = ""
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
	if how.Device != nil {
		ctx, cancel := context.WithTimeout(context.Background(), actionTime)
		defer cancel()
		if l.Device, err = how.Device(ctx, w.router.Here, c.Interface); err != nil {
			return l, fmt.Errorf("follow the line: %w; the rates are held", err)
		}
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
	l := w.line.Load()
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
	w.record = cmp.Or(w.rates.Record(), w.record) // it is ours, and the usual rates stay in the configuration
	return err
}

// again goes on with a plan that was made again. Where the line is followed, because the
// interface is another one, the rates to which it was followed stay.
func (w *wan) again(p *plan.Plan) {
	w.plan = p
	if l := w.line.Load(); l != nil && Followable(w.router.Driver, *p) == nil {
		l.NewLine()
		l.plan = p
	}
}

// abandon ends the following. The shapers get the plan's rates again, so that everybody
// else finds what is recorded.
func (w *wan) abandon() {
	w.ungauge()
	p := w.line.Swap(nil)
	if p == nil {
		return
	}
	p.cancel()
	<-p.done
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
	w.record = cmp.Or(w.rates.Record(), w.record)
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
		for _, p := range []*pursuit{w.measured.Load(), w.line.Load()} {
			if p != nil {
				m = p.Metrics(w.key)
			}
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
