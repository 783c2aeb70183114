package follow

import (
	"time"

	"unbloat/unit"
)

// Starlink gives each terminal another satellite or another share at the seconds 12,
// 27, 42 and 57 of each minute. Packets around it are late, or lost, without a queue.
const (
	starlinkStep = 15 * time.Second
	starlinkAt   = 12 * time.Second       // the first of a minute
	quietAround  = 300 * time.Millisecond // before and after: packets are late for so long

	// Where nobody has told of it, it is seen: places of the 15 s, half of quietAround and
	// more; as many events near one of them as chance hardly brings; of all events.
	starlinkBins  = 60
	starlinkLeast = 6.0
	starlinkShare = 0.6 // and of half as many it is no longer so
)

// starlink finds the pattern: late packets again and again at the same place of 15 s.
// It takes no clock on the wall for it, which may be off by more than it lasts.
type starlink struct {
	bins  [starlinkBins]float64 // events, those long ago count less
	all   float64
	late  unit.Instant // the last time that packets were late
	begun bool
	seen  bool
	at    time.Duration // place of the 15 s
}

// look takes in whether packets are late.
func (s *starlink) look(now unit.Instant, late bool) {
	if !late {
		return
	}
	event := !s.begun || now.Sub(s.late) > moment
	s.late, s.begun = now, true
	if !event {
		return
	}
	s.all += 1 - s.all/20 // what was seen long ago counts less
	for i := range s.bins {
		s.bins[i] -= s.bins[i] / 20
	}
	s.bins[int(place(now)*starlinkBins/starlinkStep)]++
	// An event may lie at the edge of two.
	best, most := 0, 0.0
	for i := range s.bins {
		if near := s.near(i); near > most {
			best, most = i, near
		}
	}
	switch {
	case most >= starlinkLeast && most >= starlinkShare*s.all:
		s.seen, s.at = true, time.Duration(2*best+1)*starlinkStep/(2*starlinkBins)
	case most < starlinkShare/2*s.all:
		s.seen = false
	}
}

// near returns the events in a bin and those beside it.
func (s *starlink) near(i int) float64 {
	return s.bins[(i+starlinkBins-1)%starlinkBins] + s.bins[i] + s.bins[(i+1)%starlinkBins]
}

// place returns where in a period of 15 s an instant lies.
func place(at unit.Instant) time.Duration {
	into := time.Duration(at) % starlinkStep
	if into < 0 {
		into += starlinkStep
	}
	return into
}

// quiet says whether an instant is next to one of Starlink's.
func (c *Controller) quiet(at unit.Instant) bool {
	middle := c.starlink.at
	switch {
	case c.p.Starlink && c.lessons.wall:
		middle = place(c.lessons.monday.Add(starlinkAt)) // days and hours are multiples of 15 s
	case !c.starlink.seen:
		return false
	}
	off := place(at.Add(-middle))
	return off < quietAround || off > starlinkStep-quietAround
}
