package tune

import (
	"slices"
	"time"

	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/probe"
)

const (
	longestStart = 2 * time.Second        // that is left out beyond pace.head
	excess       = 5 * time.Millisecond   // over what comes later: a round trip that is still the start's
	calm         = 200 * time.Millisecond // without one: the start is over
)

// afterStart leaves out more of a loaded phase's beginning if its flows were still
// draining the burst of their slow start. The queue of that burst is the provider's: it
// comes at every rate of the shaper, and how long it takes is chance. A delay that lasts
// is not left out: the burst has to end within longestStart and half of the phase, and
// the rest is measured against the second half.
func afterStart(raw *phases.RawPhase) {
	half := raw.To.Sub(raw.From) / 2
	var later []time.Duration
	for _, s := range raw.Samples {
		if s.Fate == probe.Answered && !s.Sent.Before(raw.From.Add(half)) && s.Sent.Before(raw.To) {
			later = append(later, s.RTT())
		}
	}
	if len(later) == 0 {
		return
	}
	slices.Sort(later)
	high := later[len(later)*95/100] + excess

	end := raw.From // of the start, as far as is seen
	for _, s := range raw.Samples {
		switch at := s.Sent; {
		case at.Before(raw.From):
		case at.Sub(end) >= calm:
			raw.From = end
			return
		case at.Sub(raw.From) >= min(longestStart, half):
			return
		case s.Fate != probe.Answered || s.RTT() > high:
			end = at + 1
		}
	}
}
