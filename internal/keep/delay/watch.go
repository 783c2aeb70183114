package delay

import (
	"time"

	"unbloat/unit"
)

// A Watch is a Tracker and Losses behind the filter that thins their segments out on a
// fast line. Whoever captures hands over the segments that pass Masks.
type Watch struct {
	*Tracker
	losses *Losses
	gate   Gate
	looked unit.Instant
	seen   uint64 // segments at the last look
}

// watchEvery is how often the share of segments that pass is looked at.
const watchEvery = time.Second

// NewWatch returns a watch to which all segments pass.
func NewWatch(c TrackerConfig) *Watch { return &Watch{Tracker: NewTracker(c), losses: NewLosses()} }

// Masks are bits that must be zero for a segment to pass; 0: all pass.
type Masks struct {
	Stamp    uint32 // in one of its two stamps, or
	Down, Up uint32 // in the sequence number of data
}

// Masks returns those that hold now.
func (w *Watch) Masks() Masks {
	return Masks{w.gate.Mask(), w.losses.Mask(false), w.losses.Mask(true)}
}

// Observe takes in a segment that crossed the WAN's interface.
func (w *Watch) Observe(at unit.Instant, out bool, s *Segment) {
	if Passes(w.gate.Mask(), s) {
		w.Tracker.Observe(at, out, s)
	}
	if w.losses.Passes(out, s) {
		w.losses.Observe(at, out, s)
	}
}

// Loss returns what a direction has lost since NewWatch.
func (w *Watch) Loss(out bool) Loss { return w.losses.Loss(out) }

// Missed says that segments have crossed that were not handed over.
func (w *Watch) Missed() { w.losses.Missed() }

// Reset forgets all connections. See Tracker.Reset.
func (w *Watch) Reset() {
	w.Tracker.Reset()
	w.losses.Missed()
}

// Collect is Tracker.Collect. It says whether the filter is to have other Masks.
func (w *Watch) Collect(now unit.Instant, receive func(Sample)) (refilter bool) {
	w.Tracker.Collect(now, receive)
	since := now.Sub(w.looked)
	if since < watchEvery {
		return false
	}
	segments := w.Tracker.Stats().Segments
	if w.looked != 0 && w.gate.Adjust(float64(segments-w.seen)/since.Seconds()) {
		w.Sampled(w.gate.Period())
		refilter = true
	}
	for d := range w.losses.ways {
		refilter = w.losses.ways[d].adjust(since.Seconds()) || refilter
	}
	w.looked, w.seen = now, segments
	return refilter
}

// Passes says whether a segment passes a filter with that mask. Those that open a
// connection always do, and those without stamps never.
func Passes(mask uint32, s *Segment) bool {
	return s.HasStamp && (s.Flags&FlagSyn != 0 || s.TSval&mask == 0 || s.TSecr&mask == 0)
}
