package sim

import (
	"time"

	"unbloat/unit"
)

// resend is a retransmission that is under way. They are kept in the order in
// which they were sent.
type resend struct {
	at  unit.Instant
	seq int32
}

// output sends what window, pace and application allow: lost segments first.
func (c *Conn) output(n *Network) {
	if c.stopped || !c.started {
		return
	}
	wasIdle := c.una == c.nxt
	c.limited = false
	for {
		again := c.toResend > 0
		if !again && (c.nxt >= c.limit || c.nxt-c.una >= c.window) {
			if c.nxt >= c.limit && c.inFlight() < c.cwnd { // the application is the limit
				c.appLimitedUntil = max(c.delivered+c.inFlight(), 1)
			}
			break
		}
		if c.inFlight() >= c.cwnd {
			c.limited = true
			break
		}
		if c.paceRate > 0 && c.nextSend > n.now {
			c.limited = true
			n.set(&c.paceAlarm, c.nextSend, c.index, taskPace)
			break
		}
		if again {
			c.resendOne(n)
		} else {
			c.sendNew(n)
		}
	}
	if out := c.nxt - c.una; out > c.mostOut || c.una >= c.mostOutEnd {
		c.mostOut, c.mostOutEnd = out, c.nxt
	}
	if wasIdle && c.nxt > c.una {
		c.rearm(n)
	}
}

// sendNew sends the next segment for the first time.
func (c *Conn) sendNew(n *Network) {
	if int(c.nxt-c.una) == len(c.segments) {
		c.grow()
	}
	i := c.nxt
	*c.at(i) = segment{}
	if c.state == stateRecovery || c.state == stateReducing {
		c.reduceOut++
	}
	c.transmit(n, i, false)
	c.nxt++
}

// resendOne sends the first lost segment again that has not been yet.
func (c *Conn) resendOne(n *Network) {
	i := max(c.hint, c.una)
	for ; ; i++ {
		if i >= c.nxt {
			panic("sim: the count of segments to resend is wrong")
		}
		if s := c.at(i); s.flags&(segLost|segResent) == segLost {
			break
		}
	}
	c.hint = i + 1
	c.toResend--
	c.again(n, i)
	if i == c.una {
		c.rearm(n)
	}
}

// again sends segment i again.
func (c *Conn) again(n *Network, i int32) {
	s := c.at(i)
	s.flags |= segResent | segTwice
	c.resent++
	if c.state == stateRecovery || c.state == stateReducing {
		c.reduceOut++
	}
	if c.resendHead > 64 && c.resendHead*2 > len(c.resends) || c.resendHead == len(c.resends) {
		c.resends = c.resends[:copy(c.resends, c.resends[c.resendHead:])]
		c.resendHead = 0
	}
	c.resends = append(c.resends, resend{n.now, i})
	if c.state == stateRecovery || c.state == stateLoss {
		if c.resentAt == 0 {
			c.resentAt = n.now
		}
		c.undoResends++
	}
	c.transmit(n, i, true)
}

// timerKind says what a connection's retransmission timer stands for.
type timerKind uint8

const (
	timerRTO timerKind = iota
	timerProbe
	timerReorder
)

const (
	leastRTO = 200 * time.Millisecond // Linux's TCP_RTO_MIN
	mostRTO  = 120 * time.Second
	// tick is two jiffies at 100 Hz, by which Linux lengthens a tail loss probe.
	probeSlack = 20 * time.Millisecond
)

// rearm sets the retransmission timer anew (tcp_rearm_rto, tcp_schedule_loss_probe).
func (c *Conn) rearm(n *Network) {
	at := never
	if c.una < c.nxt {
		after := c.rtt.timeout()
		c.timerIs = timerRTO
		if c.state == stateOpen && c.sacked == 0 && c.lost == 0 && !c.probing {
			probe := 2 * c.rtt.smoothed()
			if c.nxt-c.una == 1 {
				probe += leastRTO
			} else {
				probe += probeSlack
			}
			if probe < after {
				after, c.timerIs = probe, timerProbe
			}
		}
		at = n.now.Add(after)
	}
	n.set(&c.alarm, at, c.index, taskRetransmit)
}

// retransmitTimeout is called when the timer goes off.
func (c *Conn) retransmitTimeout(n *Network) {
	if c.stopped || c.una >= c.nxt {
		return
	}
	switch c.timerIs {
	case timerReorder:
		c.afterReordering(n)
		return
	case timerProbe:
		c.probe(n)
		return
	}
	c.counts.Timeouts++
	c.spurious = c.state == stateOpen || c.state == stateReducing
	if c.state == stateOpen || c.state == stateReducing || c.una >= c.high {
		c.undoCwnd, c.undoSsthresh, c.undoResends, c.resentAt = c.cwnd, c.ssthresh, 0, 0
	}
	if c.state == stateOpen || c.una >= c.high { // else the window has been reduced for this loss
		c.ssthresh = c.control.reduce(c, n.now)
	}
	c.high = c.nxt
	c.state = stateLoss
	c.lost, c.resent, c.toResend = 0, 0, 0
	for i := c.una; i < c.nxt; i++ {
		s := c.at(i)
		s.flags &^= segResent
		if s.flags&segSacked == 0 {
			s.flags |= segLost
			c.lost++
			c.toResend++
		}
	}
	c.hint, c.scan = c.una, c.nxt
	c.resends, c.resendHead = c.resends[:0], 0
	c.cwnd = 1
	c.probing = false
	c.control.timeout(c, n.now)
	c.rtt.backOff()
	c.nextSend = min(c.nextSend, n.now)
	c.output(n)
	c.rearm(n)
}

// probe sends a tail loss probe: something new, else the last segment again
// (RFC 8985 section 7).
func (c *Conn) probe(n *Network) {
	c.probing, c.probeEnd = true, c.nxt
	switch {
	case c.nxt < c.limit && c.nxt-c.una < c.window:
		c.sendNew(n)
		c.probeEnd = c.nxt
	case c.at(c.nxt-1).flags&(segSacked|segLost|segResent) == 0:
		c.again(n, c.nxt-1)
	}
	c.rearm(n)
}

// rttEstimate is RFC 6298 as Linux computes it (tcp_rtt_estimator).
type rttEstimate struct {
	srtt, mdev       time.Duration // 8 and 4 times
	mdevMost, rttvar time.Duration
	roundEnd         int32
	shift            uint8 // doublings
}

// take adds a measured round trip; una and nxt separate the rounds.
func (r *rttEstimate) take(m time.Duration, una, nxt int32) {
	r.shift = 0
	if r.srtt == 0 {
		r.srtt, r.mdev = m<<3, m<<1
		r.rttvar = max(r.mdev, leastRTO)
		r.mdevMost, r.roundEnd = r.rttvar, nxt
		return
	}
	m -= r.srtt >> 3
	r.srtt += m
	if m < 0 {
		m = -m
		m -= r.mdev >> 2
		if m > 0 { // a shorter round trip must not raise the deviation quickly
			m >>= 3
		}
	} else {
		m -= r.mdev >> 2
	}
	r.mdev += m
	if r.mdev > r.mdevMost {
		r.mdevMost = r.mdev
		r.rttvar = max(r.rttvar, r.mdevMost)
	}
	if una > r.roundEnd {
		if r.mdevMost < r.rttvar {
			r.rttvar -= (r.rttvar - r.mdevMost) >> 2
		}
		r.roundEnd, r.mdevMost = nxt, leastRTO
	}
}

func (r *rttEstimate) smoothed() time.Duration { return r.srtt >> 3 }

func (r *rttEstimate) timeout() time.Duration {
	return min(max((r.srtt>>3+r.rttvar)<<r.shift, leastRTO), mostRTO)
}

func (r *rttEstimate) backOff() {
	if r.shift < 10 {
		r.shift++
	}
}

// minFilter is the least round trip of the last 5 minutes or so.
type minFilter struct {
	value time.Duration
	at    unit.Instant
}

func (f *minFilter) take(now unit.Instant, v time.Duration) {
	if f.value == 0 || v <= f.value || now.Sub(f.at) > 300*time.Second {
		f.value, f.at = v, now
	}
}
