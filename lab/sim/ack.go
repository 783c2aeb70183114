package sim

import (
	"time"

	"unbloat/unit"
)

// ack is what one acknowledgement told the sender.
type ack struct {
	now       unit.Instant
	prior     int32         // in flight before it
	delivered int32         // segments newly acknowledged or sacked
	advanced  bool          // una moved
	lost      int32         // newly taken for lost
	original  bool          // delivered what was sent once, and before the state was entered
	fack      int32         // of before it
	echo      unit.Instant  // when what caused it was sent
	dup       bool          // told of a copy
	lostAgain bool          // among them what had been sent again
	rtt       time.Duration // of the newest segment delivered that was sent once; 0: none
	sackRTT   time.Duration // of the oldest one newly sacked that was sent once
	oldest    time.Duration // of the oldest one among those acknowledged: what RTO is made of
	oneWay    time.Duration // of the data, as the receiver saw it (LEDBAT)
	rate      rateSample
}

// acked handles an acknowledgement.
func (c *Conn) acked(n *Network, p *packet) {
	if c.stopped {
		return
	}
	a := &n.ack
	c.stampBack = p.sent
	*a = ack{now: n.now, prior: c.inFlight(), oneWay: p.sent.Sub(p.echo), fack: c.fack, echo: p.echo, dup: p.has(noteDup)}
	before := c.delivered
	if p.seq > c.una {
		a.advanced = true
		c.clean(p.seq, a)
	}
	told := &p.sacks
	for k := range told.n {
		c.sack(told.spans[k], a)
	}
	if told.n > 0 || c.sackSeen {
		c.seenSacks, c.sackSeen = told.spans, told.n > 0
	}
	a.delivered = c.delivered - before
	if a.delivered > 0 && c.model != nil {
		c.model.deliveredAt = n.now
	}
	if c.appLimitedUntil > 0 && c.delivered > c.appLimitedUntil {
		c.appLimitedUntil = 0
	}
	if m := a.oldest; m > 0 {
		c.rtt.take(m, c.una, c.nxt)
	} else if a.rtt > 0 {
		c.rtt.take(a.rtt, c.una, c.nxt)
	} else if a.advanced { // only the timestamp tells
		c.rtt.take(n.now.Sub(p.echo), c.una, c.nxt)
	}
	if a.rtt > 0 {
		c.minRTT.take(n.now, a.rtt)
	}
	if c.probing && c.una >= c.probeEnd {
		c.probing = false
	}
	wait := c.detect(a)
	c.control.sample(c, a)
	c.advance(a, p.has(noteECE))
	c.output(n)
	switch {
	case wait > 0 && c.una < c.nxt:
		c.timerIs = timerReorder
		n.set(&c.alarm, n.now.Add(wait), c.index, taskRetransmit)
	case a.advanced || c.timerIs != timerRTO && (c.sacked > 0 || c.lost > 0):
		c.rearm(n)
	case a.sackRTT > 0 && c.una < c.nxt && a.sackRTT > n.now.Sub(c.at(c.una).sent):
		c.rearm(n) // the first segment was sent later than what arrived: it has its time
	}
	if a.advanced && c.una >= c.limit && c.params.Done != nil {
		c.params.Done(n.now)
	}
}

// clean takes segments up to seq as acknowledged (tcp_clean_rtx_queue).
func (c *Conn) clean(seq int32, a *ack) {
	seq = min(seq, c.nxt)
	first := true
	for i := c.una; i < seq; i++ {
		s := c.at(i)
		if s.flags&segSacked != 0 {
			c.sacked--
		} else {
			if s.flags&segTwice == 0 {
				rtt := a.now.Sub(s.sent)
				if first {
					a.oldest, first = rtt, false
				}
				a.rtt = rtt
			}
			c.deliver(i, s, a)
		}
		c.forget(s)
	}
	c.una = seq
	c.scan = max(c.scan, seq)
	if c.una == c.nxt && len(c.resends) > 0 {
		c.resends, c.resendHead = c.resends[:0], 0
	}
}

// forget takes a delivered segment out of the counts of lost and resent ones.
func (c *Conn) forget(s *segment) {
	if s.flags&segLost != 0 {
		c.lost--
		if s.flags&segResent == 0 {
			c.toResend--
		}
	}
	if s.flags&segResent != 0 {
		c.resent--
	}
	s.flags &^= segLost | segResent
}

// deliver counts segment i as delivered, and notes what that says of rate and
// order.
func (c *Conn) deliver(i int32, s *segment, a *ack) {
	c.delivered++
	if i >= c.fack {
		c.fack = i + 1
	} else if i < a.fack && s.flags&segTwice == 0 {
		c.reordered = true
	}
	if s.flags&segTwice == 0 && i < c.high {
		a.original = true
	}
	if c.model != nil {
		c.model.arrives(s, a)
	}
	rtt := a.now.Sub(s.sent)
	if s.flags&segTwice != 0 && rtt < c.minRTT.value {
		return // the original came after all
	}
	if s.sent > c.rackSent || s.sent == c.rackSent && i > c.rackEnd {
		c.rackSent, c.rackEnd, c.rackRTT = s.sent, i, rtt
	}
}

// sack takes a block of segments as arrived. What an earlier acknowledgement
// said already is skipped.
func (c *Conn) sack(b span, a *ack) {
	from, to := max(b.from, c.una), min(b.to, c.nxt)
	seen := span{}
	for _, k := range c.seenSacks {
		if k.from >= b.from && k.to <= b.to && k.to-k.from > seen.to-seen.from {
			seen = k
		}
	}
	for i := from; i < to; i++ {
		if i >= seen.from && i < seen.to {
			i = seen.to - 1
			continue
		}
		s := c.at(i)
		if s.flags&segSacked != 0 {
			continue
		}
		if s.flags&segTwice == 0 {
			a.rtt = a.now.Sub(s.sent)
			a.sackRTT = max(a.sackRTT, a.rtt)
		}
		c.forget(s)
		s.flags |= segSacked
		c.sacked++
		c.deliver(i, s, a)
	}
}

// reorderWindow is how much later than a newer segment one may arrive before
// it counts as lost (tcp_rack_reo_wnd). While nothing has been seen to overtake,
// three segments beyond a hole settle it, as does having lost something already.
func (c *Conn) reorderWindow() time.Duration {
	if c.reordered {
		return min(c.minRTT.value/4, c.rtt.smoothed())
	}
	if c.state == stateRecovery || c.state == stateLoss || c.sacked >= 3 {
		return 0
	}
	return min(c.minRTT.value/4, c.rtt.smoothed())
}

// detect takes segments for lost that were sent before one that has arrived
// (RFC 8985). It returns how long to wait until more may be, 0 for not at all.
func (c *Conn) detect(a *ack) (wait time.Duration) {
	if c.sacked == 0 && c.lost == 0 && c.resent == 0 {
		return 0
	}
	window := c.reorderWindow()
	overdue := func(sent unit.Instant, seq int32) bool { // sent before, and too long ago
		if sent > c.rackSent || sent == c.rackSent && seq >= c.rackEnd {
			return false
		}
		left := sent.Sub(a.now) + c.rackRTT + window
		wait = max(wait, left)
		return left <= 0
	}
	for c.scan < c.nxt {
		s := c.at(c.scan)
		if s.flags&(segSacked|segLost|segTwice) == 0 {
			if !overdue(s.sent, c.scan) {
				break
			}
			s.flags |= segLost
			c.lost++
			c.toResend++
			c.hint = min(c.hint, c.scan)
			a.lost++
		}
		c.scan++
	}
	for c.resendHead < len(c.resends) {
		r := c.resends[c.resendHead]
		if r.seq >= c.una {
			s := c.at(r.seq)
			if s.flags&segResent != 0 && s.sent == r.at {
				if !overdue(r.at, r.seq) {
					break
				}
				if s.flags&segLost == 0 { // a probe's
					s.flags |= segLost
					c.lost++
				}
				s.flags &^= segResent
				c.resent--
				c.toResend++
				c.hint = min(c.hint, r.seq)
				a.lost++
				a.lostAgain = true
			}
		}
		c.resendHead++
	}
	return wait
}

// afterReordering is called when the reordering window has passed.
func (c *Conn) afterReordering(n *Network) {
	a := &n.ack
	*a = ack{now: n.now, prior: c.inFlight()}
	wait := c.detect(a)
	c.advance(a, false)
	c.output(n)
	if wait > 0 {
		c.timerIs = timerReorder
		n.set(&c.alarm, n.now.Add(wait), c.index, taskRetransmit)
		return
	}
	c.rearm(n)
}

// advance moves the state machine on, and the window with it
// (tcp_fastretrans_alert, tcp_cong_control).
func (c *Conn) advance(a *ack, ece bool) {
	if c.state == stateLoss && c.spurious && a.original || c.resentInVain(a) {
		c.undo()
	}
	// After a mark, something sent since must be acknowledged too, so that the
	// receiver has seen CWR (tcp_fastretrans_alert).
	if c.state != stateOpen && a.advanced && (c.una > c.high || c.una == c.high && c.state != stateReducing) {
		if c.state != stateLoss && c.model == nil {
			c.cwnd = c.ssthresh
		}
		c.state = stateOpen
		c.control.recovered(c)
	}
	switch {
	case c.toResend > 0 && (c.state == stateOpen || c.state == stateReducing),
		a.lostAgain && c.state == stateLoss:
		c.enter(stateRecovery, a)
	case ece && c.state == stateOpen && c.params.ECN:
		c.announceCWR = true
		c.enter(stateReducing, a)
	}
	switch {
	case c.model != nil:
		c.model.update(c, a)
	case c.state == stateRecovery || c.state == stateReducing:
		c.reduceWindow(a)
	case a.delivered > 0 && c.mayGrow():
		c.control.grow(c, a)
	}
}

// resentInVain says whether what was sent again since the window was reduced had
// arrived already: of each a copy was heard of (tcp_try_undo_dsack), or what
// fills the hole left before anything was sent again (tcp_try_undo_partial).
func (c *Conn) resentInVain(a *ack) bool {
	if c.resentAt == 0 {
		return false
	}
	if a.dup && c.undoResends > 0 {
		if c.undoResends--; c.undoResends == 0 {
			return true
		}
	}
	return c.state == stateRecovery && c.reordered && a.advanced && a.echo < c.resentAt && c.resent == 0
}

// undo takes a reduction back: what it took for lost has come after all, so it was
// only late (tcp_try_undo_loss).
func (c *Conn) undo() {
	for i := c.una; i < c.nxt; i++ {
		s := c.at(i)
		if s.flags&(segLost|segResent) == segLost {
			s.flags &^= segLost
			c.lost--
		}
	}
	c.toResend, c.scan = 0, c.una
	c.cwnd, c.ssthresh = max(c.cwnd, c.undoCwnd), max(c.ssthresh, c.undoSsthresh)
	c.state, c.spurious = stateOpen, false
	c.resentAt, c.undoResends = 0, 0
}

// enter begins to reduce the window, with or without losses.
func (c *Conn) enter(s state, a *ack) {
	if c.state == stateOpen {
		c.undoCwnd, c.undoSsthresh, c.undoResends, c.resentAt = c.cwnd, c.ssthresh, 0, 0
	}
	if c.state == stateOpen || c.state == stateLoss {
		c.reducePrior, c.reduceDelivered, c.reduceOut = c.cwnd, 0, 0
		c.ssthresh = c.control.reduce(c, a.now)
	}
	c.state, c.high = s, c.nxt
	c.probing = false
}

// reduceWindow is proportional rate reduction (RFC 6937, tcp_cwnd_reduction).
func (c *Conn) reduceWindow(a *ack) {
	if a.delivered <= 0 && a.lost <= 0 {
		return
	}
	flight := c.inFlight()
	c.reduceDelivered += a.delivered
	var send int32
	if gap := c.ssthresh - flight; gap < 0 {
		send = int32((int64(c.ssthresh)*int64(c.reduceDelivered)+int64(c.reducePrior)-1)/int64(max(c.reducePrior, 1))) - c.reduceOut
	} else {
		send = max(c.reduceDelivered-c.reduceOut, a.delivered)
		if a.advanced && a.lost == 0 {
			send++
		}
		send = min(gap, send)
	}
	if c.reduceOut == 0 {
		send = max(send, 1)
	}
	c.cwnd = max(flight+max(send, 0), 1)
}

// mayGrow says whether the window was in the way lately: one that is not used
// says nothing of the network (tcp_is_cwnd_limited).
func (c *Conn) mayGrow() bool {
	return c.limited || c.cwnd < c.ssthresh && c.cwnd < 2*c.mostOut
}
