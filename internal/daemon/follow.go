package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"unbloat/internal/apply"
	"unbloat/internal/daemon/config"
	"unbloat/internal/daemon/keep"
	"unbloat/internal/metrics"
	"unbloat/internal/plan"
	"unbloat/internal/platform"
	"unbloat/internal/reason"
	"unbloat/unit"
)

// A Line is one that is to be followed. Arrays are by direction: down, up.
type Line struct {
	Device     string        // the WAN's interface
	Inbound    string        // whose queue shapes the download; "": the system tells nothing of the shapers' queues
	Every      time.Duration // least time between two changes of a rate; 0: as often as needed
	Slow       bool          // rates are changed by programs: Change takes no set and calls none
	Rates      [2]Bounds
	Reflectors []netip.Addr // none: the built-in ones
	Learn      string       // file of the learned rates; "": none
	Server     string       // answers probes too, if it is an unbloat serve; "": none
	// Change has set called with each interface whose shaper is to have another
	// rate, while nobody else changes the router. With Slow it changes them itself.
	Change func(ctx context.Context, rates [2]unit.Rate, set func(device string, rate unit.Rate) error) error
	Ring   *metrics.Ring // takes in what is believed
	Base   time.Time     // when the clock of Ring agreed with the machine's
	// Decided is told of each change, with Direction, From, To and Why.
	Decided func(Decision)
	// Again has the line followed by another follower, soon: what this one was made for is
	// no longer so.
	Again func()
	// Own says that what comes from a netlink port is done by the follower itself.
	Own  func(port uint32)
	Tell func(text string) // what went wrong
}

// Bounds are the rates of a shaper: never less, usually, never more.
type Bounds struct{ Least, Usual, Most unit.Rate }

// A Follower follows a Line.
type Follower interface {
	Run(ctx context.Context) // until ctx ends
	NewLine()                // the interface is another one
	Rates() [2]unit.Rate
	Status() LineStatus
	Metrics(wan string) metrics.WAN // without how often it was put in place
}

// LineStatus is what a follower believes.
type LineStatus struct {
	Down       WayStatus         `json:"down"`
	Up         WayStatus         `json:"up"`
	Reflectors []ReflectorStatus `json:"reflectors"`
	ProbeBytes uint64            `json:"probe_bytes"` // of Ethernet frames since the daemon began to follow
	Blind      bool              `json:"blind,omitempty"`
}

// WayStatus is one direction of a LineStatus.
type WayStatus struct {
	Rate     unit.Rate     `json:"rate_bps"`
	Capacity unit.Rate     `json:"capacity_bps"` // what the line is believed to carry; 0: not known yet
	Carried  unit.Rate     `json:"carried_bps"`
	DelayMs  float64       `json:"delay_ms"` // that the line's queue adds
	FloorMs  float64       `json:"floor_ms"` // of it, what the line adds under any load
	Why      reason.Reason `json:"why"`
}

// ReflectorStatus is what is known of a reflector.
type ReflectorStatus struct {
	Address  string  `json:"address"` // of the server of the configuration: as it is there
	Operator string  `json:"operator,omitempty"`
	Answers  bool    `json:"answers"`
	Asked    uint64  `json:"asked"`
	Answered uint64  `json:"answered"`
	BaseMs   float64 `json:"base_ms,omitempty"` // least round trip lately
}

// A pursuit is a follower that runs.
type pursuit struct {
	Follower
	plan   *plan.Plan // that is in place, with the rates that it has set there
	now    *plan.Plan // of a Retuner: what runs; nil: the plan
	cancel context.CancelFunc
	done   chan struct{}
}

// pursue starts or ends the following of the line, as the WAN's state says. It
// belongs to the loop.
func (w *wan) pursue() {
	p := w.line.Load()
	wanted := w.config.Follow && w.plan != nil && w.d.isCareful() == "" && (w.pending == nil || !w.pending.armed)
	switch w.keeper.State() {
	case keep.InPlace:
		again := w.anew.Swap(false)
		if p != nil && (again || !wanted || p.plan != w.plan) { // somebody has given it another plan
			w.abandon()
			p = nil
		}
		if wanted && p == nil {
			w.follow()
		}
	case keep.Suspended, keep.Held, keep.Foreign, keep.Contested:
		w.abandon()
	}
}

// follow starts to follow the line.
func (w *wan) follow() {
	l, err := w.followed()
	var f Follower
	if err == nil {
		f, err = w.d.o.Follow(l)
	}
	if err != nil {
		if text := err.Error(); text != w.unfollowed {
			w.unfollowed = text
			w.d.trouble("%s: %s", w.config.Name(), text)
		}
		return
	}
	w.unfollowed = ""
	ctx, cancel := context.WithCancel(context.Background()) // abandon ends it
	p := &pursuit{Follower: f, plan: w.plan, cancel: cancel, done: make(chan struct{})}
	w.line.Store(p)
	go func() {
		defer close(p.done)
		f.Run(ctx)
	}()
}

// followed returns the line as a follower takes it.
func (w *wan) followed() (Line, error) {
	p, c, how := w.plan, w.wanted(), w.router.Driver.Retune
	if w.d.o.Follow == nil {
		return Line{}, errors.New("follow the line: this build can't; use the full one, or follow = false")
	}
	if err := Followable(w.router.Driver, *p); err != nil {
		return Line{}, fmt.Errorf("follow the line: %w; the rates are held", err)
	}
	l := Line{Device: c.Interface, Inbound: p.Down.Device, Reflectors: c.Reflectors, Learn: c.Learn, Rates: bounds(c, *p), Every: how.Every, Slow: !how.Netlink}
	if l.Slow {
		l.Inbound = ""
	}
	if how.Device != nil {
		ctx, cancel := context.WithTimeout(context.Background(), actionTime)
		defer cancel()
		var err error
		if l.Device, err = how.Device(ctx, w.router.Here, c.Interface); err != nil {
			return Line{}, fmt.Errorf("follow the line: %w; the rates are held", err)
		}
	}
	l.Change = func(ctx context.Context, rates [2]unit.Rate, set func(string, unit.Rate) error) error {
		_, err := w.call(ctx, func(ctx context.Context) (any, error) {
			if l.Slow {
				return nil, w.retuneSlowly(ctx, rates)
			}
			return nil, w.retune(rates, set)
		})
		return err
	}
	l.Ring, l.Base, l.Server = w.past(), w.d.since, w.d.serverOf(w)
	l.Own, l.Decided = w.d.own, w.decided
	l.Again = func() { w.anew.Store(true); w.tell(change{}) }
	l.Tell = func(text string) { w.d.log("%s: %s", c.Name(), text) }
	return l, nil
}

// bounds are the rates between which a line is followed.
func bounds(c config.WAN, p plan.Plan) (out [2]Bounds) {
	for d, x := range [2]struct{ least, line, most, rate unit.Rate }{{c.LeastDown, c.Down, c.MostDown, p.DownBps}, {c.LeastUp, c.Up, c.MostUp, p.UpBps}} {
		const unlessGiven = 10 // the least is this part of the usual rate
		b := Bounds{Least: x.least, Usual: x.rate, Most: x.most}
		if b.Least == 0 {
			b.Least = x.rate / unlessGiven
		}
		if b.Most == 0 {
			b.Most = max(x.line, x.rate)
		}
		b.Usual = min(max(b.Usual, b.Least), b.Most)
		out[d] = b
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

// retuneSlowly gives the shapers other rates with programs, and reads them back. It
// belongs to the loop.
func (w *wan) retuneSlowly(ctx context.Context, rates [2]unit.Rate) error {
	l := w.line.Load()
	if l == nil || l.plan != w.plan || w.keeper.State() != keep.InPlace {
		return fmt.Errorf("change the rates of %s: it is not in place now", w.config.Name())
	}
	unlock, err := w.d.lockRouter(ctx, w.config.Router)
	if err != nil {
		return err
	}
	defer unlock()
	w.act(true)
	defer w.act(false)
	p := retuned(w.plan, rates, platform.RetuneGrain)
	engine := w.router.Engine
	if _, ok := engine.Backend.(platform.Retuner); ok {
		if err := engine.Retune(ctx, *w.plan, p); err != nil {
			w.keeper.Changed(time.Now()) // it may have either rates
			return err
		}
		l.now = &p
		return nil
	}
	if _, err := engine.Mend(ctx, p); err != nil {
		w.keeper.Changed(time.Now())
		return err
	}
	w.plan, l.plan = &p, &p
	if id, err := engine.RecordID(w.config.Interface); err == nil {
		w.record = id // it is ours, and the usual rates stay in the configuration
	}
	return nil
}

// mendFollowed puts the WAN in place while its line is followed: what is there is to
// have the rates that the line was followed to.
func (w *wan) mendFollowed(ctx context.Context, engine *apply.Engine, l *pursuit) (apply.Mended, error) {
	m, err := engine.MendAt(ctx, *w.plan, *l.now)
	if err != nil {
		return m, err
	}
	return m, engine.Retune(ctx, *w.plan, *l.now)
}

// retune gives the shapers other rates. It belongs to the loop.
func (w *wan) retune(rates [2]unit.Rate, set func(device string, rate unit.Rate) error) error {
	l := w.line.Load()
	if l == nil || l.plan != w.plan || w.keeper.State() != keep.InPlace {
		return fmt.Errorf("change the rates of %s: it is not in place now", w.config.Name())
	}
	p := retuned(w.plan, rates, netlinkGrain)
	var why []error
	for _, x := range [2]struct{ is, want *plan.Shaper }{{w.plan.Down, p.Down}, {w.plan.Up, p.Up}} {
		if x.is.Rate == x.want.Rate {
			continue
		}
		if err := set(x.want.Device, x.want.Rate); err != nil {
			x.want.Rate = x.is.Rate
			why = append(why, err)
		}
	}
	p.DownBps, p.UpBps = p.Down.Rate, p.Up.Rate
	w.plan, l.plan = &p, &p
	if len(why) > 0 {
		w.keeper.Changed(time.Now()) // it is not as it was thought to be
	}
	return errors.Join(why...)
}

// netlinkGrain is what CAKE's rates are multiples of: whole bytes a second.
const netlinkGrain = 8 * unit.BitPerSecond

// retuned returns a plan with other rates, multiples of grain, and nothing else.
func retuned(p *plan.Plan, rates [2]unit.Rate, grain unit.Rate) plan.Plan {
	q, down, up := *p, *p.Down, *p.Up
	down.Rate, up.Rate = max(rates[0]/grain, 1)*grain, max(rates[1]/grain, 1)*grain
	q.DownBps, q.UpBps, q.Down, q.Up = down.Rate, up.Rate, &down, &up
	return q
}

// again gives a plan that was made again, because the interface is another one, the
// rates that the line was followed to.
func (w *wan) again(p *plan.Plan) *plan.Plan {
	l := w.line.Load()
	if l == nil || Followable(w.router.Driver, *p) != nil {
		return p
	}
	l.NewLine()
	if _, ok := w.router.Engine.Backend.(platform.Retuner); ok {
		q := retuned(p, l.Rates(), platform.RetuneGrain)
		l.plan, l.now = p, &q
		return p
	}
	q := retuned(p, l.Rates(), netlinkGrain)
	l.plan = &q
	return &q
}

// abandon ends the following. The rates stay; those that no record knows, of a
// Retuner, are the plan's again, so that everybody else finds what is recorded.
func (w *wan) abandon() {
	p := w.line.Swap(nil)
	if p == nil {
		return
	}
	p.cancel()
	<-p.done
	if p.now == nil || w.router == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), actionTime)
	defer cancel()
	w.act(true)
	defer w.act(false)
	if err := w.router.Engine.Retune(ctx, *p.plan, *p.plan); err != nil {
		w.d.trouble("%s: %v", w.config.Name(), err)
	}
}

// own remembers a netlink port whose changes are no news.
func (d *Daemon) own(port uint32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ports[port] = true
}

// Metrics returns what the daemon's metrics say now.
func (d *Daemon) metrics() metrics.Snapshot {
	out := metrics.Snapshot{Version: d.o.Version, Go: d.o.Go, Panics: d.panics.Load()}
	for _, w := range d.all() {
		s, _ := w.snapshot()
		m := metrics.WAN{Name: w.key, Way: [2]metrics.Way{{Rate: s.Down}, {Rate: s.Up}}}
		if l := w.line.Load(); l != nil {
			m = l.Metrics(w.key)
		}
		m.Reconciles = []metrics.Count{}
		w.mu.Lock()
		for _, c := range causes() {
			m.Reconciles = append(m.Reconciles, metrics.Count{Cause: string(c), N: w.reconciled[c]})
		}
		w.mu.Unlock()
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
