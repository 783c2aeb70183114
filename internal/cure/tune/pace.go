package tune

import (
	"time"

	"unbloat/unit"
)

// A pace has the durations of a tuning: of phases and trials, of what is cut off
// their beginning, and the most for all of it.
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
	apartTime  = 2500 * time.Millisecond // that count, of a load in one direction alone
	lineBudget = 120 * time.Second
	mostTrials = 5
	reserve    = 3 * time.Second
)

// Many downloads that start together send ten packets each at first (RFC 6928), and
// none goes below a window of two. That fills the queue at the provider, which our
// shaper does not control. It drains only by the rate that the shaper leaves
// unused. So phases are longer with many connections, also because the p95 of so
// many flows' bursts needs more probes.
const (
	manyFlows  = 32
	manyTime   = 10 * time.Second
	manyBudget = 210 * time.Second
	manyRest   = 12 * time.Second        // instead of reserve: hundreds of connections take longer to open and close
	drainTime  = 4750 * time.Millisecond // the queue should be empty after this …
	leastDrain = 0.80                    // … unless that needs a lower rate than this; then it takes longer,
	mostDrain  = 15 * time.Second        // but the tuning waits at most this long
)

// manyTopUp is where the search starts for many uploads. Their sum is steadier than
// that of a few, so the measured rate is closer to the line's, and never above it.
const manyTopUp = 0.998

func paceOf(flowsDown, flowsUp int) pace {
	if max(flowsDown, flowsUp) < manyFlows {
		return pace{head, loadTime, trialTime, reserve, lineBudget}
	}
	return pace{head, manyTime, manyTime, manyRest, manyBudget}
}

// MostTime returns the longest time that a tuning loads the line, for numbers of
// parallel downloads and uploads.
func MostTime(flowsDown, flowsUp int) time.Duration {
	return paceOf(flowsDown, flowsUp).budget + mostFraming
}

// mostFraming is how long both directions' trains take at most, and their queues to drain.
const mostFraming = 25 * time.Second

// firstFlight is the initial window of a connection in full frames (RFC 6928).
const firstFlight = 10

// settling returns the time that the first packets of many uploads take on the line.
// A shaper drops most of them, and they are sent again after a second or more; only
// then is the load steady.
func settling(flowsUp int, up unit.Rate) time.Duration {
	if flowsUp < manyFlows {
		return 0
	}
	return time.Duration(flowsUp*firstFlight) * up.Time(fullFrame)
}

// topOf returns where the search starts. With many downloads it is low enough that
// the given queue drains within drainTime, but not below leastDrain.
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

// draining returns the time in which a queue drains, with a shaper at the given share
// of the line's rate.
func draining(queue time.Duration, share float64) time.Duration {
	return time.Duration(float64(queue) / (1 - share))
}

// waiting returns the pace of phases that wait first, for at most mostDrain.
func (p pace) waiting(wait time.Duration) pace {
	wait = min(mostDrain, wait)
	p.head, p.load, p.trial = p.head+wait, p.load+wait, p.trial+wait
	return p
}
