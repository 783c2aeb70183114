package sim

import (
	"time"

	"unbloat/unit"
)

// Wire is distance: packets arrive Delay after they were sent, in order,
// however many they are. It has no rate; see Bottleneck for that.
type Wire struct {
	Delay  time.Duration // one way
	Jitter time.Duration // added to it, uniformly from −Jitter to +Jitter; the order is kept
	Loss   float64       // 0–1, at random
}

// inFlight is a packet on a wire.
type inFlight struct {
	at unit.Instant
	id uint32
}

// wire is a Wire at work: a ring of packets in the order of their arrival.
type wire struct {
	Wire
	direction Direction
	source    int // of its events
	line      ring[inFlight]
	last      unit.Instant
}

// carry puts a packet on the wire, or loses it.
func (n *Network) carry(w *wire, id uint32) {
	if w.Loss > 0 && n.random.Float64() < w.Loss {
		n.lose(id)
		return
	}
	delay := w.Delay
	if w.Jitter > 0 {
		delay += time.Duration(n.random.Int64N(2*int64(w.Jitter)+1)) - w.Jitter
	}
	at := max(n.now.Add(max(delay, 0)), w.last)
	w.last = at
	w.line.push(inFlight{at, id})
	if w.line.len == 1 {
		n.due[w.source] = at
	}
}

// arrive takes the first packet off the wire.
func (n *Network) arrive(w *wire) {
	id := w.line.pop().id
	n.due[w.source] = never
	if w.line.len > 0 {
		n.due[w.source] = w.line.at(0).at
	}
	if w.direction == Up {
		n.deliver(id)
	} else {
		n.enqueue(&n.modems[Down], id)
	}
}
