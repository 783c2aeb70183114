package tune

import (
	"time"

	"unbloat/unit"
)

// A pace is how long the parts of a tuning take: phases and trials with what is
// cut off their beginning, and all of it together, at most.
type pace struct{ head, load, trial, budget time.Duration }

// Lengths of the phases: two full tests and six trials fit into two minutes of
// line time. With many downloads they are longer, by what the line's own queue
// takes to drain.
const (
	idleTime   = 4 * time.Second
	loadTime   = 8 * time.Second
	trialTime  = 7 * time.Second
	head       = 2 * time.Second
	tail       = 250 * time.Millisecond
	lineBudget = 120 * time.Second
	manyBudget = 180 * time.Second
	mostTrials = 5
	reserve    = 3 * time.Second // connecting, commands, draining
)

// Many downloads that begin together send ten packets each before they know
// anything of the line (RFC 6928), and none goes below two on the way. That
// fills the queue in front of the line, where no shaper of ours reaches, and a
// few big ones giving way is not what empties it: it drains by what the shaper
// leaves of the line alone.
const (
	manyFlows  = 32
	drainTime  = 6 * time.Second  // within which the queue is to be empty again …
	leastDrain = 0.80             // … if that leaves so much of the line; else it takes longer,
	mostDrain  = 15 * time.Second // but no longer than this is waited for it
)

func paceOf(flowsDown int) pace {
	p := pace{head, loadTime, trialTime, lineBudget}
	if flowsDown >= manyFlows {
		p.budget = manyBudget
	}
	return p
}

// MostTime is the longest that a tuning with so many downloads at once occupies
// the line.
func MostTime(flowsDown int) time.Duration { return paceOf(flowsDown).budget }

// drainShare returns the share of the line behind which a queue that takes as
// long as queue to pass the line is empty within drainTime, or the least that
// is given up for it.
func drainShare(queue time.Duration) float64 {
	return max(leastDrain, 1-queue.Seconds()/drainTime.Seconds())
}

// draining returns the pace of phases that wait first until a queue has drained
// behind a shaper of the given share of the line.
func (p pace) draining(queue time.Duration, shaped, line unit.Rate) pace {
	left := 1 - float64(shaped)/float64(line)
	wait := mostDrain
	if left > 0 {
		wait = min(mostDrain, time.Duration(float64(queue)/left))
	}
	p.head, p.load, p.trial = p.head+wait, p.load+wait, p.trial+wait
	return p
}
