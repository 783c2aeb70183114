package follow

import (
	"math"
	"time"

	"unbloat/unit"
)

// A dip of the line is over when its queue is. Shares are of the rate before it.
const (
	dipMost   = 350 * time.Millisecond // a longer queue is of a line that fell
	dipUnsure = 250 * time.Millisecond // the same where the ways can't be told apart
	dipBack   = 0.7                    // of the rate before it, at first and at least
	dipMore   = 0.15                   // after one that was right
	dipLess   = 0.1                    // after one that was not
	dipHolds  = time.Second            // without a queue: it was right
	varying   = 10.0                   // s; a line that holds its capacity for less has dips upwards too
)

// drained ends an episode.
func (w *way) drained(now unit.Instant, capacity float64, known, oneWay bool) {
	if !known {
		capacity = w.capacity
	}
	if capacity > 0 {
		w.target = below * capacity
	}
	w.failed = max(capacity, w.target)
	if e := &w.episode; e.on && w.goal > 0 && (w.is == Down || oneWay && w.varies()) {
		// A queue that is gone so soon was from a dip, and the line is what it was. Up,
		// where the shaper alone drains the queue, it soon is after a fall as well: there
		// only a line that has changed often is taken to be back.
		switch lasted := now.Sub(e.began); {
		case oneWay && lasted < dipMost:
			w.target = max(w.target, w.dipShare*min(w.goal, e.from))
			w.dipped = now
		case lasted < dipUnsure:
			w.target = max(w.target, dipBack*min(w.goal, e.from))
		}
	}
	same := w.settled > 0 && math.Abs(w.failed-w.settled) < steadyBand*w.settled
	if same || w.goal < w.failed {
		w.goal = 0
	}
	w.compare(now, w.failed)
	wait := retryShare * max(w.holds, now.Sub(w.different).Seconds())
	if w.holds < volatile || w.goal > 0 {
		wait = 0
	}
	w.retry = now.Add(min(time.Duration(wait*1e9), retryMost))
	w.episode = episode{}
	w.risen = now
	w.step = 0
	w.say(now, Drained, w.target)
}

// varies says whether the line has changed often lately.
func (w *way) varies() bool { return w.holds < varying }

// judgeDip learns from the queue that begins now how much of its rate the line had
// again after the last dip: radio links often all of it, others seldom.
func (w *way) judgeDip(now unit.Instant) {
	switch {
	case w.dipped == 0:
	case now.Sub(w.dipped) < dipHolds:
		w.dipShare = max(w.dipShare-dipLess, dipBack)
	default:
		w.dipShare = min(w.dipShare+dipMore, 1)
	}
	w.dipped = 0
}

// compare notes whether the line has changed, and how long it usually stays as it is.
func (w *way) compare(now unit.Instant, capacity float64) {
	if w.settled > 0 && math.Abs(capacity-w.settled) < steadyBand*w.settled {
		return
	}
	if w.settled > 0 {
		w.holds += holdsMean * (min(now.Sub(w.different).Seconds(), holdsMost.Seconds()) - w.holds)
	}
	w.settled, w.different = capacity, now
}
