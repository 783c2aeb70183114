package follow

import (
	"time"

	"unbloat/unit"
)

// Estimator: what the line loses. A queue that drops what waits longest, as Starlink's,
// lets nothing wait for long: it shows by what it loses. Radio links lose some whatever
// they carry. Which of both it is a lower rate tells, as with delay: if the line loses as
// much as before, the loss is its own.

const (
	lossSlack  = 0.005                            // share beyond the line's own that is left alone: no call notices it
	lossEnough = 12                               // KiB more than that, eight packets: fewer are chance
	lossAtOnce = 4                                // KiB that count of a window: an outage loses hundreds in one or two
	lossShows  = lossEnough / lossAtOnce * window // until it is enough
	lossOwn    = 0.10                             // share: more is no radio's own, for nobody could use it
	lossTells  = 8                                // KiB that are lost in the time in which a lower rate is judged, if it does not help
	lossSpan   = 4096                             // KiB over which the mean is taken: 1 % of it are 28 packets
)

// loss is what one direction loses.
type loss struct {
	own  float64 // share that the line loses whatever it carries
	mean float64 // share lately
	more float64 // KiB that were lost beyond it lately: a sum that never falls below 0
	was  [2]uint64
	bits float64 // of the counter when the window began
	at   unit.Instant
	// Of the window, and of all since more was 0 or the judging began.
	part, all kib
	passed    [2]float64 // bit/s that came through in the last two windows
}

type kib struct{ seen, lost float64 }

func (k *kib) share() float64 { return min(k.lost/max(k.seen, 1), 1) }

func (k *kib) add(seen, lost float64) { k.seen, k.lost = k.seen+seen, k.lost+lost }

// lossUnclear says that nothing is to be learnt from what a direction loses now: the buffer
// was full lately, or a lower rate is on trial for a delay, or not yet long enough.
func (w *way) lossUnclear(now unit.Instant) bool {
	cut := &w.policy.cut
	return w.full > 0 && now.Sub(w.full) < moment || cut.on && (cut.loss == 0 || now < cut.judge)
}

// look reads the counters. unclear says that nothing is to be learnt from what is lost now,
// judged that all of it counts, because a lower rate is on trial.
func (l *loss) look(h *counters, d Direction, unclear, judged bool) {
	if h.n == 0 {
		return
	}
	k := h.last()
	is := [2]uint64{k.Way[d].Seen, k.Way[d].Lost}
	if is[0] < l.was[0] || is[1] < l.was[1] {
		l.was = is
	}
	seen, lost := float64(is[0]-l.was[0]), float64(is[1]-l.was[1])
	l.was = is
	l.mean += (lost - seen*l.mean) / max(lossSpan, seen)
	l.own = min(l.own, l.mean)
	if unclear {
		l.restart(k, d)
		return
	}
	l.part.add(seen, lost)
	l.all.add(seen, lost)
	took := k.At.Sub(l.at)
	if took < window {
		return
	}
	passed := (float64(k.Way[d].Bytes)*8 - l.bits) / took.Seconds()
	if d == Up {
		passed *= 1 - l.part.share() // down what is lost has not arrived
	}
	l.passed = [2]float64{passed, l.passed[0]}
	l.more += min(l.part.lost, lossAtOnce) - (l.own+lossSlack)*l.part.seen
	if l.more <= 0 && !judged {
		l.all = kib{}
	}
	l.more = max(l.more, 0)
	l.part, l.bits, l.at = kib{}, float64(k.Way[d].Bytes)*8, k.At
}

// restart begins to count anew.
func (l *loss) restart(k *Counters, d Direction) {
	l.more, l.part, l.all = 0, kib{}, kib{}
	l.bits, l.at = float64(k.Way[d].Bytes)*8, k.At
}

// some says that the line seems to lose more than its own, for longer than an outage does,
// or a flow that begins too fast.
func (l *loss) some() bool { return l.more > 2*lossAtOnce }

// losing says that it does.
func (l *loss) losing() bool { return l.more >= lossEnough }

// carried returns what came through lately, in bit/s.
func (l *loss) carried() float64 { return max(l.passed[0], l.passed[1]) }

// judge says whether it is known what became of a share that was lost before a cut, and
// whether it still is lost.
func (l *loss) judge(before float64, since time.Duration) (known, still bool) {
	more := max(before-l.own, lossSlack)
	return l.all.seen*more >= lossTells || since > 2*moment, l.all.share() > l.own+more/2
}

// found notes that a lower rate has not made a share less.
func (l *loss) found(share float64) { l.own, l.mean, l.more, l.all = share, share, 0, kib{} }

// forget drops what was learnt of another line.
func (l *loss) forget() { *l = loss{was: l.was, bits: l.bits, at: l.at} }
