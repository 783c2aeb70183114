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
	frame
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
func (n *Network) carry(w *wire, f frame) {
	if w.Loss > 0 && n.random.Float64() < w.Loss {
		n.lose(f.id)
		return
	}
	delay := w.Delay
	if w.Jitter > 0 {
		delay += time.Duration(n.random.Int64N(2*int64(w.Jitter)+1)) - w.Jitter
	}
	at := max(n.now.Add(max(delay, 0)), w.last)
	w.last = at
	w.line.push(inFlight{at, f})
	if w.line.len == 1 {
		n.due[w.source] = at
	}
}

// arrive takes the first packet off the wire.
func (n *Network) arrive(w *wire) {
	f := w.line.pop().frame
	n.due[w.source] = never
	if w.line.len > 0 {
		n.due[w.source] = w.line.at(0).at
	}
	if w.direction == Up {
		if w.line.len > farAhead {
			n.fetch(w.line.at(farAhead).frame)
		}
		if w.line.len > nearAhead {
			n.fetchMore(w.line.at(nearAhead).frame)
		}
		n.deliver(f.id)
	} else {
		n.enqueue(&n.modems[Down], f)
	}
}
