package sim

import (
	"time"

	"unbloat/lab/aqm"
	"unbloat/unit"
)

// delayedAck is how long a receiver owes an acknowledgement at most (Linux's
// TCP_ATO_MIN), unless two segments have come.
const delayedAck = 40 * time.Millisecond

// receive handles a segment that arrived.
func (c *Conn) receive(n *Network, p *packet) {
	if c.stopped {
		return
	}
	before := c.expected
	c.file(n, p)
	if c.params.Arrived != nil && c.expected > before && !c.stopped {
		c.params.Arrived(n.now, int64(c.expected))
	}
}

// file files a segment, and acknowledges what is due.
func (c *Conn) file(n *Network, p *packet) {
	if p.ecn == aqm.CE {
		c.counts.Marked++
		c.ece = true
	} else if p.has(noteCWR) {
		c.ece = false
	}
	now := false
	switch {
	case p.seq == c.expected:
		if c.pending == 0 { // RFC 7323: of the earliest segment not acknowledged
			c.echo = p.sent
		}
		now = c.highest > c.expected // a hole is filled, or stays
		c.expected++
		if now {
			c.join()
		}
		c.took(n)
		c.highest = max(c.highest, c.expected)
	case p.seq < c.expected:
		now, c.copied = true, true
	default:
		if c.outOfOrder(p.seq) {
			c.took(n)
		} else {
			c.copied = true
		}
		now = true
	}
	c.pending++
	if c.quick > 0 {
		c.quick--
		now = true
	}
	if c.pending >= 2 || now || p.ecn == aqm.CE {
		if p.seq >= c.expected || c.pending == 1 {
			c.echo = p.sent
		}
		c.acknowledge(n)
		return
	}
	n.set(&c.ackAlarm, n.now.Add(delayedAck), c.index, taskDelayedAck)
}

// took counts a segment that has arrived for the first time. Segments that wait
// behind a hole count too: they have crossed the line.
func (c *Conn) took(n *Network) {
	if n.now >= c.binEnd {
		c.closeBin(n.now)
	}
	c.binBytes += int64(c.params.Payload)
}

// closeBin files the bin under way, and begins the one that now is in.
func (c *Conn) closeBin(now unit.Instant) {
	for ; now >= c.binEnd; c.binEnd = c.binEnd.Add(c.params.Bin) {
		c.bins = append(c.bins, c.binBytes)
		c.binBytes = 0
	}
}

// join takes the range that what is expected now begins, if there is one.
func (c *Conn) join() {
	for i, r := range c.ranges {
		if r.from == c.expected {
			c.expected = r.to
			c.ranges = append(c.ranges[:i], c.ranges[i+1:]...)
			return
		}
	}
}

// outOfOrder files a segment beyond a hole; its range becomes the newest. It
// says whether the segment is new.
func (c *Conn) outOfOrder(seq int32) bool {
	joined := span{seq, seq + 1}
	if len(c.ranges) > 0 && seq >= c.highest {
		if seq == c.ranges[0].to {
			c.ranges[0].to++
			c.highest = seq + 1
			return true
		}
	}
	kept, isNew := c.ranges[:0], true
	for _, r := range c.ranges {
		switch {
		case seq >= r.from && seq < r.to:
			joined, isNew = r, false
		case r.to == joined.from:
			joined.from = r.from
		case r.from == joined.to:
			joined.to = r.to
		default:
			kept = append(kept, r)
		}
	}
	kept = append(kept, span{})
	copy(kept[1:], kept)
	kept[0] = joined
	c.ranges = kept
	c.highest = max(c.highest, seq+1)
	return isNew
}

// acknowledge sends an acknowledgement of all that has arrived.
func (c *Conn) acknowledge(n *Network) {
	if c.stopped {
		return
	}
	c.ackAlarm.want = never
	id, p := n.packets.take()
	p.kind, p.owner, p.seq, p.size = kindAck, c.index, c.expected, ackFrame
	p.sent, p.echo = n.now, c.echo
	if c.ece {
		p.notes |= noteECE
	}
	if c.highest > c.expected || c.copied {
		c.tell(p)
	}
	c.pending = 0
	n.send(c.params.Direction.reverse(), id)
}

// tell puts the SACK blocks into an acknowledgement, with that of a copy.
func (c *Conn) tell(p *packet) {
	r := &p.sacks
	r.n = uint8(copy(r.spans[:], c.ranges))
	if c.copied { // its own copy's block comes first
		c.copied = false
		p.notes |= noteDup
		r.n = min(r.n, mostRuns-1)
		p.size += sackBlock
		if r.n == 0 {
			p.size += sackOption
		}
	}
	if r.n > 0 {
		p.size += sackOption + sackBlock*int32(r.n)
	}
}
