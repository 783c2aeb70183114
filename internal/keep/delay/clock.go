package delay

import (
	"time"

	"unbloat/unit"
)

// A peerClock is the clock that a connection's peer stamps its segments with. How long a
// segment was on its way it does not tell, as it may begin anywhere; but how much longer
// than the quickest one, and that is the queue towards us alone. All systems that matter
// count milliseconds; a clock that goes another way is not used.
type peerClock struct {
	at     unit.Instant // when the first stamp came; 0: none has
	stamp  uint32
	odd    bool             // it counts no milliseconds
	least  [2]time.Duration // of this time and the one before
	turned unit.Instant
}

const (
	// clockLeast is how long the quickest segment is remembered: clocks that run apart by
	// 50 ppm part by 1.5 ms in it.
	clockLeast = 30 * time.Second
	// clockQueue is more than a queue delays a segment, and clockRun a share by which no
	// clock that counts milliseconds runs apart from ours.
	clockQueue = 2 * time.Second
	clockRun   = 50
)

// behind takes a segment's stamp in, and returns how much longer it took than the quickest.
func (c *peerClock) behind(at unit.Instant, stamp uint32) (time.Duration, bool) {
	if c.at == 0 {
		*c = peerClock{at: at, stamp: stamp, turned: at}
	}
	past := at.Sub(c.at)
	took := past - time.Duration(int32(stamp-c.stamp))*time.Millisecond
	if took > clockQueue+past/clockRun || took < -clockQueue-past/clockRun {
		c.odd = true
	}
	if at.Sub(c.turned) > clockLeast {
		c.least[1], c.least[0], c.turned = c.least[0], took, at
	}
	c.least[0] = min(c.least[0], took)
	return took - min(c.least[0], c.least[1]), !c.odd
}
