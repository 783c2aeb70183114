package delay

import (
	"time"

	"unbloat/unit"
)

// A Watch is a Tracker behind the filter that thins its segments out on a fast
// line. Whoever captures hands over the segments that pass Mask.
type Watch struct {
	*Tracker
	gate   Gate
	looked unit.Instant
	seen   uint64 // segments at the last look
}

// watchEvery is how often the share of segments that pass is looked at.
const watchEvery = time.Second

// NewWatch returns a watch to which all segments pass.
func NewWatch(c TrackerConfig) *Watch { return &Watch{Tracker: NewTracker(c)} }

// Mask returns the bits that must be zero in one of a segment's stamps; 0: all pass.
func (w *Watch) Mask() uint32 { return w.gate.Mask() }

// Collect is Tracker.Collect. It says whether the filter is to have another Mask.
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
	w.looked, w.seen = now, segments
	return refilter
}

// Passes says whether a segment passes a filter with that mask. Those that open a
// connection always do, and those without stamps never.
func Passes(mask uint32, s *Segment) bool {
	return s.HasStamp && (s.Flags&FlagSyn != 0 || s.TSval&mask == 0 || s.TSecr&mask == 0)
}
