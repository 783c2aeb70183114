package sim

import (
	"time"

	"unbloat/aqm"
	"unbloat/unit"
)

// delayedAck is how long a receiver owes an acknowledgement at most (Linux's
// TCP_ATO_MIN), unless two segments have come.
const delayedAck = 40 * time.Millisecond

// receive takes in a segment.
func (c *Conn) receive(n *Network, p *packet) {
	if c.stopped {
		return
	}
	before := c.inOrder
	c.file(n, p)
	if c.arrived != nil && c.inOrder > before && !c.stopped {
		c.arrived(n.now, c.inOrder)
	}
}

// file files a segment, and acknowledges what is due.
func (c *Conn) file(n *Network, p *packet) {
	if p.ecn == aqm.CE {
		c.counts.Marked++
		c.ece = true
	} else if p.cwr {
		c.ece = false
	}
	now := false
	switch {
	case p.seq == c.expected:
		if c.pending == 0 { // RFC 7323: of the earliest segment not acknowledged
			c.echo = p.sent
		}
		now = len(c.ranges) > 0 // a hole is filled, or stays
		c.expected++
		for i, r := range c.ranges {
			if r.from == c.expected {
				c.expected = r.to
				c.ranges = append(c.ranges[:i], c.ranges[i+1:]...)
				break
			}
		}
		c.inOrder += int64(c.expected - p.seq)
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
	n.set(&c.alarms[taskDelayedAck], n.now.Add(delayedAck), c.index, taskDelayedAck)
}

// took counts a segment that has arrived for the first time. Segments that wait
// behind a hole count too: they have crossed the line.
func (c *Conn) took(n *Network) {
	if n.now >= c.binEnd {
		c.closeBin(n.now)
	}
	c.binBytes += int64(c.payload)
}

// closeBin files the bin under way, and begins the one that now is in.
func (c *Conn) closeBin(now unit.Instant) {
	for ; now >= c.binEnd; c.binEnd = c.binEnd.Add(c.bin) {
		c.bins = append(c.bins, c.binBytes)
		c.binBytes = 0
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
	c.alarms[taskDelayedAck].want = never
	id, p := n.packets.take()
	p.kind, p.owner, p.seq, p.size, p.wire = kindAck, c.index, c.expected, ackFrame, c.keys.wires
	p.sent, p.echo, p.ece = n.now, c.echo, c.ece
	p.nsacks = uint8(copy(p.sacks[:], c.ranges))
	p.dup, c.copied = c.copied, false
	if p.dup { // its own copy's block comes first
		p.nsacks = min(p.nsacks, 2)
		p.size += sackBlock
		if p.nsacks == 0 {
			p.size += sackOption
		}
	}
	if p.nsacks > 0 {
		p.size += sackOption + sackBlock*int32(p.nsacks)
	}
	c.pending = 0
	n.send(c.direction.reverse(), id)
}
