package daemon

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"unbloat/internal/keep/incident"
	"unbloat/internal/keep/metrics"
	"unbloat/internal/keep/supervise"
	"unbloat/unit"
)

// Times of the history.
const (
	archiveEvery = 5 * time.Minute // between two writes to a disk
	mostSteps    = 1500            // of one answer
)

// An Archive keeps on a disk what lines did.
type Archive interface {
	// Add writes to a file what lines did, all or nothing, and thins what is old. What is
	// there already is replaced.
	Add(ctx context.Context, file string, did []Period) error
	// Read calls each for what a line did from one time to before another, oldest first.
	// A file that is not there has nothing.
	Read(ctx context.Context, file, wan string, from, to time.Time, each func(Period)) error
	// AddIncidents keeps incidents that have ended, with their samples, and thins what is old.
	AddIncidents(ctx context.Context, file string, ended []incident.Incident) error
	// Incidents returns those that were within a time, oldest first, without samples; id:
	// that one alone, with them.
	Incidents(ctx context.Context, file, id string, from, to time.Time) ([]incident.Incident, error)
}

// A Period is what a line did in one step of time.
type Period struct {
	WAN    string // as in keys of WANs: the interface, or the router and the interface
	At     time.Time
	Step   time.Duration
	Moment metrics.Moment
}

// A past is the part of a WAN that keeps what its line did, for a day. Others read the ring.
type past struct {
	ring    atomic.Pointer[metrics.Ring] // nil: nothing was noted yet
	carried tally                        // counted last
}

// A tally is what an interface had carried at a time; zero: that is not known.
type tally struct {
	at             time.Time
	received, sent uint64
}

// since returns what was carried since an earlier one, in bit/s, if that can be told.
func (t tally) since(was tally) (carried [2]float64, ok bool) {
	lasted := t.at.Sub(was.at).Seconds()
	if was.at.IsZero() || lasted <= 0 || t.received < was.received || t.sent < was.sent {
		return carried, false
	}
	const bits = 8
	return [2]float64{bits * float64(t.received-was.received) / lasted, bits * float64(t.sent-was.sent) / lasted}, true
}

// notes returns what takes in what the line does.
func (p *past) notes() *metrics.Ring {
	if p.ring.Load() == nil {
		p.ring.CompareAndSwap(nil, metrics.NewRing())
	}
	return p.ring.Load()
}

// hold notes of a line that is not followed, if anything is known: the rates that hold, and
// what was carried since the last time.
func (p *past) hold(at unit.Instant, is WANStatus, now tally) {
	way := metrics.MomentWay{Delay: metrics.NoDelay, DelayMax: metrics.NoDelay}
	m := metrics.Moment{Way: [2]metrics.MomentWay{way, way}}
	known := is.State == supervise.InPlace
	if known {
		m.Way[0].Rate, m.Way[1].Rate = float32(is.Down), float32(is.Up)
	}
	if now != (tally{}) {
		if carried, ok := now.since(p.carried); ok {
			known = true
			m.Way[0].Carried, m.Way[1].Carried = float32(carried[0]), float32(carried[1])
		}
		p.carried = now
	}
	if known {
		p.notes().Add(at, m)
	}
}

// pause says that something else notes what the line does meanwhile.
func (p *past) pause() { p.carried = tally{} }

// heldEvery is how often is noted what a line does that is not followed.
const heldEvery = time.Second

// watchHeld notes until ctx ends what those lines do that are not followed: the rates
// that hold, and what is carried on this machine's interfaces. A line that is followed, or
// measured, is noted by what does that.
func (d *Daemon) watchHeld(ctx context.Context) {
	every(ctx, heldEvery, func() {
		for _, w := range d.all() {
			if w.following.runs.Load() != nil {
				w.past.pause()
				continue
			}
			s, _ := w.snapshot()
			w.past.hold(d.instant(d.now()), s, w.count())
		}
	})
}

// count reads the counters of the WAN's interface, if it is one of this machine.
func (w *wan) count() tally {
	if w.routerName == "" && w.d.o.Count != nil {
		if received, sent, ok := w.d.o.Count(w.name); ok {
			return tally{time.Now(), received, sent}
		}
	}
	return tally{}
}

// instant returns the instant of the rings that a time of the machine's clock is now.
func (d *Daemon) instant(t time.Time) unit.Instant {
	now := d.now()
	return unit.Instant(d.since.UnixNano()).Add(time.Since(d.since) - now.Sub(t.Round(0)))
}

// clockAt returns the time that an instant of the rings was, by the machine's clock as
// it is now: one that was set meanwhile was wrong before.
func (d *Daemon) clockAt(i unit.Instant) time.Time {
	ago := unit.Instant(d.since.UnixNano()).Add(time.Since(d.since)).Sub(i)
	return d.now().Round(0).Add(-ago)
}

// An archiver knows how the history of all WANs gets to a disk. keepHistory alone uses it.
type archiver struct {
	to   unit.Instant // until when it is written
	said string       // why it is not, as it was told last
}

// writeEvery writes to the disk now and then until ctx ends, and then for the last time.
func writeEvery(ctx context.Context, between time.Duration, write func(context.Context)) {
	every(ctx, between, func() { write(ctx) })
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	write(last)
}

// historyFile is the file that the configuration names for what is kept; "": none.
func (d *Daemon) historyFile() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.o.Archive == nil {
		return ""
	}
	return d.config.History
}

// keepHistory writes what lines did to the disk, if the configuration names a file.
func (d *Daemon) keepHistory(ctx context.Context) { writeEvery(ctx, archiveEvery, d.writeHistory) }

// writeHistory writes the minutes that are over. What can't be written now is tried
// again with the next, as long as it is in memory; the reason is told once.
func (d *Daemon) writeHistory(ctx context.Context) {
	file := d.historyFile()
	if file == "" {
		return
	}
	var did []Period
	now := d.instant(d.now())
	over := now - now%unit.Instant(time.Minute)
	for _, w := range d.all() {
		if r := w.past.ring.Load(); r != nil {
			r.Minutes(d.archive.to, over, func(i unit.Instant, m metrics.Moment) {
				did = append(did, Period{w.key, d.clockAt(i).Truncate(time.Second), time.Minute, m})
			})
		}
	}
	if len(did) == 0 {
		return
	}
	err := d.o.Archive.Add(ctx, file, did)
	a, was := &d.archive, d.archive.said
	if err != nil {
		if a.said = err.Error(); a.said != was {
			d.trouble("history: %s; the last day stays in memory, and is written when that is possible again", a.said)
		}
		return
	}
	if a.to, a.said = over, ""; was != "" {
		d.log("history: written again")
	}
}

// history returns what the line did.
func (w *wan) history(ctx context.Context, p HistoryParams) (out History, err error) {
	now := w.d.now()
	from, to, err := spanOf("history", p.From, p.To, now.Add(-metrics.RingMinutes), now)
	if err != nil {
		return out, err
	}
	file := w.d.historyFile()
	in := newHistory(w.name, w.routerName, from, to, p.Step)
	ring := w.past.ring.Load()
	if file != "" {
		until := to
		if ring != nil { // what is in memory is newer
			ring.Minutes(0, math.MaxInt64, func(i unit.Instant, _ metrics.Moment) {
				if t := w.d.clockAt(i); t.Before(until) {
					until = t
				}
			})
		}
		if err := w.d.o.Archive.Read(ctx, file, w.key, from, until, func(x Period) { in.add(x.At, x.Moment) }); err != nil {
			return out, err
		}
	}
	if ring == nil && file == "" {
		return in.history(), &Error{CodePrecondition, fmt.Sprintf("tell what %s did: nothing is known of it yet; ask again when it is in place (`unbloat status`)", w.key)}
	}
	if ring != nil {
		each := ring.Minutes
		if in.step < time.Minute && w.d.instant(from) >= w.d.instant(now.Add(-metrics.RingSeconds)) {
			each = ring.Seconds
		}
		each(w.d.instant(from), w.d.instant(to), func(i unit.Instant, m metrics.Moment) { in.add(w.d.clockAt(i), m) })
	}
	return in.history(), nil
}

// ReadHistory returns what an archive knows of a line, as MethodHistory does. step is
// in seconds; 0: as short as possible.
func ReadHistory(ctx context.Context, a Archive, file, wan, router string, from, to time.Time, step int) (History, error) {
	in := newHistory(wan, router, from, to, step)
	err := a.Read(ctx, file, keyOf(router, wan), from, to, func(x Period) { in.add(x.At, x.Moment) })
	return in.history(), err
}

// A historian joins moments to steps.
type historian struct {
	out   History
	step  time.Duration
	begin time.Time
	n     uint32
	known [2]uint32 // with a capacity
	timed [2]uint32 // with a delay
	rated [2]uint32 // with a rate
	now   int64     // number of the step
	sum   metrics.Moment
}

// newHistory returns one whose steps are so long that an answer has mostSteps at
// most. step is what was asked for in seconds; 0: as short as possible.
func newHistory(wan, router string, from, to time.Time, step int) *historian {
	least := int(to.Sub(from)/time.Second)/mostSteps + 1
	for _, round := range []int{1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 6 * 3600, 24 * 3600} {
		if least <= round {
			least = round
			break
		}
	}
	s := max(step, least)
	h := &historian{step: time.Duration(s) * time.Second, begin: from}
	h.out = History{Schema: HistorySchema, WAN: wan, Router: router, Step: s, At: []int64{}}
	for _, w := range []*HistoryWay{&h.out.Down, &h.out.Up} {
		*w = HistoryWay{Rate: []int64{}, Capacity: []int64{}, Carried: []int64{}, Delay: []*float64{}, DelayMax: []*float64{}}
	}
	return h
}

// add takes in a moment, which is not older than the one before.
func (h *historian) add(t time.Time, m metrics.Moment) {
	k := t.UnixMilli() / h.step.Milliseconds()
	if h.n > 0 && k != h.now {
		h.close()
	}
	h.now = k
	h.n++
	mean := func(of *float32, v float32, n uint32) { *of += (v - *of) / float32(n) }
	for d := range m.Way {
		in, to := m.Way[d], &h.sum.Way[d]
		if in.Rate > 0 {
			h.rated[d]++
			mean(&to.Rate, in.Rate, h.rated[d])
		}
		mean(&to.Carried, in.Carried, h.n)
		if in.Delay >= 0 {
			h.timed[d]++
			mean(&to.Delay, in.Delay, h.timed[d])
			to.DelayMax = max(to.DelayMax, in.DelayMax, in.Delay)
		}
		if in.Capacity > 0 {
			h.known[d]++
			mean(&to.Capacity, in.Capacity, h.known[d])
		}
	}
}

func (h *historian) close() {
	h.out.At = append(h.out.At, h.now*h.step.Milliseconds())
	for d, w := range []*HistoryWay{&h.out.Down, &h.out.Up} {
		s := h.sum.Way[d]
		w.Rate = append(w.Rate, int64(s.Rate))
		w.Capacity = append(w.Capacity, int64(s.Capacity))
		w.Carried = append(w.Carried, int64(s.Carried))
		var mean, most *float64
		if h.timed[d] > 0 {
			mean, most = thousandths(s.Delay), thousandths(s.DelayMax)
		}
		w.Delay, w.DelayMax = append(w.Delay, mean), append(w.DelayMax, most)
	}
	h.n, h.known, h.timed, h.rated, h.sum = 0, [2]uint32{}, [2]uint32{}, [2]uint32{}, metrics.Moment{}
}

func thousandths(v float32) *float64 {
	r := math.Round(float64(v)*1000) / 1000
	return &r
}

func (h *historian) history() History {
	if h.n > 0 {
		h.close()
	}
	return h.out
}
