// Package steer follows one line on the router itself: it gives package follow's
// controller what a gauge measures, and the shapers the rates that it decides.
package steer

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"unbloat/internal/keep/delay"
	"unbloat/internal/keep/follow"
	"unbloat/internal/keep/metrics"
	"unbloat/internal/measure/netio"
	"unbloat/unit"
)

// A Gauge measures a line; *Sockets is one.
type Gauge interface {
	Ask(now unit.Instant, target int) error
	Read(now unit.Instant, receive func(delay.Sample)) error
	Count(now unit.Instant) (Counts, error)
	Stats() GaugeStats
	Reset()
	Close() error
}

// A Sleeper wakes at instants of the clock: *netio.Sleeper, or *netio.TimerSleeper
// in a test's own time.
type Sleeper interface {
	Until(at unit.Instant) bool // false: it is closed
	Close()                     // from any goroutine, again and again
}

// A Line is one that is to be followed, as its configuration and its plan say.
type Line struct {
	Device  string // the WAN's interface
	Inbound string // the interface whose queue shapes the download, such as an ifb; "": none, or the system tells nothing of queues
	// Params have the rates, and how often they may change. What measures the line adds the
	// reflectors; times between probes that are 0 are those of the budget.
	Params     follow.Params
	Reflectors []netip.Addr // none: the built-in ones
	Server     string       // answers probes too, if it is an unbloat serve; "": none
	// Slow says that programs change the rates, and the system does not tell what waits in
	// the shapers. Then one that carries nearly its rate is taken to have something waiting.
	Slow bool
	// Calls are the tins of CAKE that calls take, by direction. Only a line that has some
	// learns the most that it carries.
	Calls [2][]int
	// Memory keeps what is learnt of the line. It is written at most once an hour, and when
	// Run ends. nil: that is known until then.
	Memory *Memory
	// Log opens a file for a log of all that is measured and decided (follow.Recorder): at
	// first, and when the one before has LogMost bytes. nil: there is none.
	Log func() (io.WriteCloser, error)
}

// A Config is a line, with what following it needs of the rest of the program.
type Config struct {
	Line
	Clock *netio.Clock
	Ring  *metrics.Ring // takes in what is believed; nil: one of its own
	// Set gives the shapers new rates in place. It may refuse now; then it is asked
	// again with the next change. Errors are reported once for each text.
	Set func(ctx context.Context, rates [2]unit.Rate) error
	// Decided is told of each change that was made; nil: nobody.
	Decided func(follow.Why)
	// Asked is told of each question, and Heard of each answer; nil: nobody.
	Asked func(at unit.Instant, to delay.Target)
	Heard func(delay.Sample)
	// Again asks for another follower, soon: what this one was made for is no longer so.
	Again func()
	// Tell is given what went wrong, and what was right again; nil: nobody.
	Tell func(text string)
	// Wall returns the time in the zone of the people at the line; nil: time.Now.
	Wall func() time.Time
	// Echo opens a stream of probes at the line's server; nil: there is none.
	Echo func(ctx context.Context) (Stream, error)

	// What measures the line. Follow fills it in.
	Targets []delay.Target // the reflectors, in the gauge's order
	Open    func() (Gauge, error)
	Sleeper Sleeper     // wakes for each round; Run closes it
	heard   *hearing    // of a line that is measured alone; nil: the controller tells its delay
	Moved   func() bool // the targets are not those of the WAN's addresses any more; nil: they always are
}

// A Follower follows one line.
type Follower struct {
	config     Config
	controller *follow.Controller
	feed       *follow.Feed
	log        *logbook // nil: none
	notes      *notebook
	gauge      Gauge
	said       string
	fresh      atomic.Bool // the line is another one

	talk talk
	last follow.Counters // a moment ago, where backlogs are guessed
	full [2]bool

	mu      sync.Mutex
	view    View
	ring    *metrics.Ring
	changes [2]map[string]uint64
	delayed [2]metrics.Histogram
}

// A View is what a Follower believes and has done.
type View struct {
	Down       follow.Belief `json:"down"`
	Up         follow.Belief `json:"up"`
	Reflectors []Reflector   `json:"reflectors"`
	ProbeBytes uint64        `json:"probe_bytes"`     // of Ethernet frames since it began to follow
	Blind      bool          `json:"blind,omitempty"` // the line cannot be measured now
}

// Ways returns what is believed of each direction, by follow.Direction.
func (v *View) Ways() [2]*follow.Belief {
	return [2]*follow.Belief{follow.Down: &v.Down, follow.Up: &v.Up}
}

// A Reflector is one, and what is known of it.
type Reflector struct {
	Address  string     `json:"address"` // or what else it is; of the server as the configuration has it
	Operator string     `json:"operator,omitempty"`
	Kind     delay.Kind `json:"-"`
	follow.Health
}

// reflectorOf says what a target is to people.
func reflectorOf(t delay.Target, h follow.Health) Reflector {
	r := Reflector{Address: t.Addr.String(), Operator: t.Operator, Kind: t.Kind, Health: h}
	switch t.Kind {
	case delay.FirstHop:
		r.Address = "first hop"
	case delay.Native:
		r.Address, r.Operator = t.Operator, ""
	}
	return r
}

// New returns a follower whose shapers have the usual rates. The error names a bad
// parameter.
func New(c Config) (*Follower, error) {
	c.Params = follow.ParamsOf(c.Params, c.Targets)
	notes := openNotebook(c.Memory, c.Wall, c.Clock.Now(), c.Tell)
	c.Params.Learned = notes.learned
	controller, err := follow.New(c.Params, c.Clock.Now())
	if err != nil {
		return nil, err
	}
	var log *logbook
	feed := follow.NewFeed(controller)
	if c.Log != nil {
		if log, err = openLogbook(controller, c.Log, c.Clock.Now()); err != nil && c.Tell != nil {
			c.Tell(err.Error())
		}
		feed = follow.NewFeed(log)
	}
	if c.Ring == nil {
		c.Ring = metrics.NewRing()
	}
	f := &Follower{config: c, controller: controller, feed: feed, log: log, notes: notes, ring: c.Ring, changes: [2]map[string]uint64{{}, {}}}
	f.look(f.config.Clock.Now())
	return f, nil
}

// openEvery is how long after a failure the gauge is opened again.
const openEvery = 5 * time.Second

// Run follows the line until ctx ends. Nothing of what goes wrong meanwhile ends
// it: the rates stay.
func (f *Follower) Run(ctx context.Context) {
	defer func() {
		f.notes.close(f.config.Clock.Now(), f.controller, f.config.Tell)
		if f.log != nil {
			_ = f.log.Close()
		}
		if f.gauge != nil {
			_ = f.gauge.Close()
		}
	}()
	sleeper := f.config.Sleeper
	defer sleeper.Close()
	defer context.AfterFunc(ctx, sleeper.Close)()
	for ctx.Err() == nil && sleeper.Until(f.round(ctx)) {
	}
}

// round measures and decides once, and returns when the next is due.
func (f *Follower) round(ctx context.Context) unit.Instant {
	now := f.config.Clock.Now()
	if f.gauge == nil {
		if f.moved() { // the address came after the follower had been made
			f.config.Again()
		}
		g, err := f.config.Open()
		if err != nil {
			f.tell(err)
			f.look(now)
			return now.Add(openEvery)
		}
		f.gauge = g
	}
	if f.fresh.Swap(false) {
		if f.log != nil {
			f.log.NewLine(now)
		} else {
			f.controller.NewLine(now)
		}
		f.gauge.Reset()
	}
	f.notes.round(now, f.controller, f.config.Tell)
	d, err := f.feed.Round(now, sources{f.gauge, f})
	why := []error{err}
	if f.log != nil {
		why = append(why, f.log.round(now), f.log.Err())
	}
	if d.Change[follow.Down] || d.Change[follow.Up] {
		if err := f.config.Set(ctx, [2]unit.Rate{d.Rate[follow.Down], d.Rate[follow.Up]}); err != nil {
			why = append(why, err)
		} else {
			f.changed(d)
		}
	}
	f.tell(errors.Join(why...))
	f.look(now)
	return max(d.Next, now.Add(time.Millisecond))
}

// sources are a gauge's, as a feed takes them.
type sources struct {
	Gauge
	f *Follower
}

// Ask implements follow.Sources.
func (s sources) Ask(now unit.Instant, target int) error {
	if tell := s.f.config.Asked; tell != nil {
		tell(now, s.f.config.Targets[target])
	}
	return s.Gauge.Ask(now, target)
}

// Read implements follow.Sources.
func (s sources) Read(now unit.Instant, receive func(delay.Sample)) error {
	if tell, to := s.f.config.Heard, receive; tell != nil {
		receive = func(x delay.Sample) {
			tell(x)
			to(x)
		}
	}
	h := s.f.config.heard
	if h == nil {
		return s.Gauge.Read(now, receive)
	}
	fuller, most := follow.Down, 0.0
	for d := follow.Down; d <= follow.Up; d++ {
		if b := s.f.controller.Belief(d); float64(b.Carried) > most*float64(b.Rate) {
			fuller, most = d, float64(b.Carried)/float64(b.Rate)
		}
	}
	return s.Gauge.Read(now, func(x delay.Sample) {
		h.hear(x, fuller)
		receive(x)
	})
}

// Count implements follow.Sources.
func (s sources) Count(now unit.Instant) (r follow.Reading, err error) {
	c, err := s.Gauge.Count(now)
	if err == nil && c.Link.Index == 0 {
		err = errors.New("the interface is away")
	}
	if err != nil {
		return r, err
	}
	r.At = c.At
	up, down := c.Link.Queue, c.Inbound.Queue
	r.Way[follow.Up] = follow.Count{Bytes: unit.Size(c.Link.TxBytes), Backlog: unit.Size(up.Backlog), Drops: up.Drops}
	r.Way[follow.Down] = follow.Count{Bytes: unit.Size(c.Link.RxBytes), Backlog: unit.Size(down.Backlog), Drops: down.Drops}
	for d, x := range c.Loss {
		r.Way[d].Seen, r.Way[d].Lost = x.Seen, x.Line
	}
	if s.f.config.Slow {
		s.f.guess(r.At, &r.Way)
	}
	r.Call = s.f.talk.look(r.At, packetsOf(s.f.config.Calls, [2]*netio.QueueCounts{follow.Down: &down, follow.Up: &up}))
	r.Rates = [2]unit.Rate{follow.Down: down.Rate, follow.Up: up.Rate}
	return r, nil
}

// packetsOf counts the packets that went as calls do.
func packetsOf(tins [2][]int, queues [2]*netio.QueueCounts) (n [2]uint32) {
	for d := range tins {
		for _, tin := range tins[d] {
			n[d] += queues[d].Tins[tin-1]
		}
	}
	return n
}

// talk tells by the packets that go as calls do whether there is one.
type talk struct {
	packets [2]uint32
	at      unit.Instant // of that reading; 0: there is none
	until   unit.Instant // it lasts so long, unless more comes
}

const (
	talkPackets = 25.0             // a second, in either direction; the sound of a call has 33 or 50, and our own probes are up to 15
	talkOver    = 10 * time.Second // pauses of speech are shorter
)

func (t *talk) look(now unit.Instant, packets [2]uint32) bool {
	past := now.Sub(t.at)
	if t.at != 0 && past < time.Second {
		return now < t.until
	}
	for d, n := range packets {
		if n -= t.packets[d]; t.at != 0 && int32(n) > 0 && float64(n) >= talkPackets*past.Seconds() {
			t.until = now.Add(talkOver)
		}
	}
	t.packets, t.at = packets, now
	return now < t.until
}

// What stands in for a backlog that is not told.
const (
	fullShare = 0.92 // of a shaper's rate; it counts Ethernet's headers, or not
	fullWaits = 16   // packets
	fullOver  = 200 * time.Millisecond
)

// guess puts a backlog where a shaper carried nearly its rate since the reading of a
// moment ago.
func (f *Follower) guess(at unit.Instant, way *[2]follow.Count) {
	packet := cmp.Or(f.config.Params.Packet, usualPacket)
	since := at.Sub(f.last.At)
	for d := range way {
		if f.last.At != 0 && since > 0 {
			carried := float64(way[d].Bytes-f.last.Way[d].Bytes) * 8 / since.Seconds()
			f.full[d] = carried >= fullShare*float64(f.controller.Belief(follow.Direction(d)).Rate)
		}
		if f.full[d] {
			way[d].Backlog = fullWaits * packet
		}
	}
	if f.last.At == 0 || since >= fullOver {
		f.last = follow.Counters{At: at, Way: *way}
	}
}

const usualPacket = 1514 * unit.Byte

// changed counts the changes by reason.
func (f *Follower) changed(d follow.Decision) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for w, is := range d.Change {
		if is {
			f.changes[w][string(d.Why[w].Cause.Code())]++
			if f.config.Decided != nil {
				f.config.Decided(d.Why[w])
			}
		}
	}
}

// tell reports what went wrong, once for each text.
func (f *Follower) tell(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text == f.said || f.config.Tell == nil {
		return
	}
	if f.said = text; text == "" {
		text = "the line is followed again"
	}
	f.config.Tell(text)
}

// look takes in what others may see.
func (f *Follower) look(now unit.Instant) {
	f.mu.Lock()
	defer f.mu.Unlock()
	v := &f.view
	v.Blind = f.gauge == nil
	if f.gauge != nil {
		v.ProbeBytes = f.gauge.Stats().ProbeBytes
	}
	v.Reflectors = v.Reflectors[:0]
	for i, t := range f.config.Targets {
		v.Reflectors = append(v.Reflectors, reflectorOf(t, f.controller.Health(i)))
	}
	if h := f.config.heard; h != nil {
		_, known := h.delay(now, follow.Down)
		v.Blind = v.Blind || !known
	}
	var m metrics.Moment
	for d, is := range v.Ways() {
		b := f.controller.Belief(follow.Direction(d))
		if h := f.config.heard; h != nil {
			added, _ := h.delay(now, follow.Direction(d))
			b.Delay = unit.Milliseconds(added)
		}
		*is = b
		m.Way[d] = metrics.MomentOf(b)
		if v.Blind {
			m.Way[d].Delay, m.Way[d].DelayMax = metrics.NoDelay, metrics.NoDelay
		} else {
			f.delayed[d].Add(time.Duration(b.Delay))
		}
	}
	f.ring.Add(now, m)
}

// View returns what the follower believes now.
func (f *Follower) View() View {
	f.mu.Lock()
	defer f.mu.Unlock()
	v := f.view
	v.Reflectors = slices.Clone(v.Reflectors)
	return v
}

// Rates returns the rates that the shapers are to have, by follow.Direction.
func (f *Follower) Rates() [2]unit.Rate {
	f.mu.Lock()
	defer f.mu.Unlock()
	return [2]unit.Rate{f.view.Down.Rate, f.view.Up.Rate}
}

// Metrics returns the WAN's metrics, without how often it was put in place.
func (f *Follower) Metrics(name string) metrics.WAN {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := metrics.WAN{Name: name, ProbeBytes: f.view.ProbeBytes}
	for d, b := range f.view.Ways() {
		h := f.delayed[d]
		w.Way[d] = metrics.Way{Belief: *b, Delays: &h}
		for _, reason := range slices.Sorted(maps.Keys(f.changes[d])) {
			w.Way[d].Changes = append(w.Way[d].Changes, metrics.Count{Cause: reason, N: f.changes[d][reason]})
		}
	}
	for _, r := range f.view.Reflectors {
		address := r.Address
		if r.Kind == delay.Native {
			address = "server"
		}
		w.Reflectors = append(w.Reflectors, metrics.Reflector{Address: address, Up: r.Answers})
	}
	return w
}

// Seconds calls f for each of the last seconds, oldest first: see metrics.Ring.
func (f *Follower) Seconds(from, to unit.Instant, each func(unit.Instant, metrics.Moment)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ring.Seconds(from, to, each)
}

// Minutes is Seconds of minutes.
func (f *Follower) Minutes(from, to unit.Instant, each func(unit.Instant, metrics.Moment)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ring.Minutes(from, to, each)
}

// NewLine says that the WAN's route, address or interface is another: what was
// measured counts no longer. It may be called from any goroutine. A WAN that had no
// address yet when it was followed first may turn out to have IPv6 alone.
func (f *Follower) NewLine() {
	if f.moved() {
		f.config.Again()
		return
	}
	f.fresh.Store(true)
}

func (f *Follower) moved() bool { return f.config.Moved != nil && f.config.Moved() }
