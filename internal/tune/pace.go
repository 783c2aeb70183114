package tune

import (
	"time"

	"unbloat/unit"
)

// A pace is how long the parts of a tuning take: phases and trials with what is
// cut off their beginning, and all of it together, at most.
type pace struct {
	head, load, trial time.Duration
	reserve           time.Duration // connecting, commands, draining
	budget            time.Duration
}

// Lengths of the phases: two full tests and six trials fit into two minutes of
// line time.
const (
	idleTime   = 4 * time.Second
	loadTime   = 8 * time.Second
	trialTime  = 7 * time.Second
	head       = 2 * time.Second
	tail       = 250 * time.Millisecond
	lineBudget = 120 * time.Second
	mostTrials = 5
	reserve    = 3 * time.Second
)

// Many downloads that begin together send ten packets each before they know
// anything of the line (RFC 6928), and none goes below two on the way. That
// fills the queue in front of the line, where no shaper of ours reaches, and a
// few big ones giving way is not what empties it: it drains by what the shaper
// leaves of the line alone. Phases are longer then, by that, and since the p95
// of so many flows' bursts needs more probes to be sure of.
const (
	manyFlows  = 32
	manyTime   = 10 * time.Second
	manyBudget = 210 * time.Second
	manyRest   = 12 * time.Second        // as reserve: hundreds of connections take longer to connect and to end
	drainTime  = 4750 * time.Millisecond // within which the queue is to be empty again …
	leastDrain = 0.80                    // … if that leaves so much of the line; else it takes longer,
	mostDrain  = 15 * time.Second        // but no longer than this is waited for it
)

// manyTopUp is where the search of the upload begins with many uploads: what
// they bring together is steadier than what a few bring, so what was measured is
// nearer to what the line carries, and never above.
const manyTopUp = 0.998

func paceOf(flowsDown, flowsUp int) pace {
	if max(flowsDown, flowsUp) < manyFlows {
		return pace{head, loadTime, trialTime, reserve, lineBudget}
	}
	return pace{head, manyTime, manyTime, manyRest, manyBudget}
}

// MostTime is the longest that a tuning with so many downloads and uploads at
// once occupies the line.
func MostTime(flowsDown, flowsUp int) time.Duration { return paceOf(flowsDown, flowsUp).budget }

// firstFlight is how many full frames each connection sends before it knows
// anything of the line.
const firstFlight = 10

// settling is how long what many uploads send at first takes on the line: a
// shaper that drops most of it has them try again after a second and more, and
// until then the load is not what it will be.
func settling(flowsUp int, up unit.Rate) time.Duration {
	if flowsUp < manyFlows {
		return 0
	}
	return time.Duration(flowsUp*firstFlight) * up.Time(fullFrame)
}

// topOf returns where the search begins. With many downloads that is low enough
// for a queue of that length to drain within drainTime, but not below leastDrain.
func topOf(flowsDown, flowsUp int, queue time.Duration) shares {
	top := shares{topDown, topUp}
	if flowsDown >= manyFlows {
		top.down = min(topDown, max(leastDrain, 1-queue.Seconds()/drainTime.Seconds()))
	}
	if flowsUp >= manyFlows {
		top.up = manyTopUp
	}
	return top
}

// draining is how long a queue takes to drain behind a shaper of the given share
// of the line.
func draining(queue time.Duration, share float64) time.Duration {
	return time.Duration(float64(queue) / (1 - share))
}

// waiting returns the pace of phases that wait first, but not for longer than
// mostDrain.
func (p pace) waiting(wait time.Duration) pace {
	wait = min(mostDrain, wait)
	p.head, p.load, p.trial = p.head+wait, p.load+wait, p.trial+wait
	return p
}
