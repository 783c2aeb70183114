package metrics

import (
	"math"
	"sync"
	"time"

	"unbloat/internal/keep/follow"
	"unbloat/unit"
)

// A Moment is what is known of a WAN at one time. Rates are in bit/s, delays in
// milliseconds.
type Moment struct {
	Way [2]MomentWay // Down, Up
}

// A MomentWay is one direction of a Moment.
type MomentWay struct {
	Rate     float32 // of the shaper; 0: there is none
	Capacity float32 // that the line is believed to have; 0: not known
	Carried  float32
	Delay    float32 // that queues on the line add; below 0: not known
	DelayMax float32 // the worst within a second or a minute; below 0: not known
}

// MomentOf returns what is believed of a direction.
func MomentOf(b follow.Belief) MomentWay {
	ms := float32(b.Delay.Ms())
	return MomentWay{Rate: float32(b.Rate), Capacity: float32(b.Capacity), Carried: float32(b.Carried), Delay: ms, DelayMax: ms}
}

// NoDelay is a delay that is not known, of a line on which nothing measures it.
const NoDelay = -1

// A Ring keeps a WAN's last hours by the second and its last day by the minute, in
// memory that NewRing takes. Several goroutines may use it.
type Ring struct {
	mu      sync.Mutex
	seconds series
	minutes series
}

// How far back a Ring reaches.
const (
	RingSeconds = 2 * time.Hour
	RingMinutes = 24 * time.Hour
)

// NewRing returns an empty ring.
func NewRing() *Ring {
	return &Ring{seconds: newSeries(time.Second, RingSeconds), minutes: newSeries(time.Minute, RingMinutes)}
}

// Add takes in a moment: those of one second, and of one minute, become one, with
// the mean of each figure and the worst delay. What is not known does not
// count. What is older than the newest moment is ignored.
func (r *Ring) Add(now unit.Instant, m Moment) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seconds.add(now, m)
	r.minutes.add(now, m)
}

// Seconds calls f for each second from one instant to before another of which
// something is known, oldest first.
func (r *Ring) Seconds(from, to unit.Instant, f func(unit.Instant, Moment)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seconds.each(from, to, f)
}

// Minutes is Seconds of minutes.
func (r *Ring) Minutes(from, to unit.Instant, f func(unit.Instant, Moment)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.minutes.each(from, to, f)
}

// A series is a ring of slots of one length.
type series struct {
	step   time.Duration
	slots  []slot
	newest int64 // number of the newest slot's time
	began  bool
}

type slot struct {
	n        uint32 // moments in it; 0: nothing is known
	m        Moment
	ratedN   [2]uint16 // with a rate
	knownN   [2]uint16 // with a capacity
	delayedN [2]uint16 // with a delay
}

func newSeries(step, reach time.Duration) series {
	return series{step: step, slots: make([]slot, reach/step)}
}

// number returns the number of an instant's slot.
func (s *series) number(at unit.Instant) int64 {
	k := int64(at) / int64(s.step)
	if int64(at)%int64(s.step) < 0 {
		k--
	}
	return k
}

func (s *series) at(k int64) *slot {
	n := int64(len(s.slots))
	return &s.slots[(k%n+n)%n]
}

func (s *series) add(now unit.Instant, m Moment) {
	k := s.number(now)
	switch {
	case !s.began || k-s.newest >= int64(len(s.slots)):
		clear(s.slots)
	case k < s.newest:
		return
	default:
		for i := s.newest + 1; i <= k; i++ {
			*s.at(i) = slot{}
		}
	}
	s.newest, s.began = k, true
	p := s.at(k)
	p.n++
	mean := func(of *float32, v float32, n uint32) { *of += (v - *of) / float32(n) }
	// More than 65535 moments in a minute weigh a little more each.
	count := func(n *uint16) uint32 {
		*n = min(*n, math.MaxUint16-1) + 1
		return uint32(*n)
	}
	for d := range m.Way {
		in, to := m.Way[d], &p.m.Way[d]
		if in.Rate > 0 {
			mean(&to.Rate, in.Rate, count(&p.ratedN[d]))
		}
		mean(&to.Carried, in.Carried, p.n)
		if in.Delay >= 0 {
			mean(&to.Delay, in.Delay, count(&p.delayedN[d]))
			to.DelayMax = max(to.DelayMax, in.Delay, in.DelayMax)
		}
		if in.Capacity > 0 {
			mean(&to.Capacity, in.Capacity, count(&p.knownN[d]))
		}
	}
}

func (s *series) each(from, to unit.Instant, f func(unit.Instant, Moment)) {
	if !s.began {
		return
	}
	oldest := s.newest - int64(len(s.slots)) + 1
	last := min(s.newest, s.number(to-1))
	for k := max(oldest, s.number(from)); k <= last; k++ {
		if p := s.at(k); p.n > 0 {
			m := p.m
			for d, n := range p.delayedN {
				if n == 0 {
					m.Way[d].Delay, m.Way[d].DelayMax = NoDelay, NoDelay
				}
			}
			f(unit.Instant(k*int64(s.step)), m)
		}
	}
}
