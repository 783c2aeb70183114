package aqm

import (
	"errors"

	"unbloat/unit"
)

// FIFOParams bound a FIFO. At least one limit must be set; 0 leaves one out.
type FIFOParams struct {
	Packets int       // at most so many packets (Linux pfifo)
	Bytes   unit.Size // at most so many bytes (Linux bfifo)
	Drop    DropFunc  // told of each drop; may be nil
}

// FIFO is a first-in-first-out queue that refuses what does not fit: the
// buffer of a modem, and the thing every other queue here is compared with.
type FIFO struct {
	store
	params FIFOParams
	queue  chain
}

// NewFIFO returns an empty FIFO, or an error if p sets no limit.
func NewFIFO(p FIFOParams) (*FIFO, error) {
	if p.Packets < 0 || p.Bytes < 0 || p.Packets == 0 && p.Bytes == 0 {
		return nil, errors.New("fifo: needs a limit in packets or in bytes")
	}
	if p.Bytes > 1<<31 {
		return nil, errors.New("fifo: a limit above 2 GiB cannot be counted")
	}
	return &FIFO{store: newStore(p.Drop), params: p}, nil
}

// Enqueue implements Queue: a packet that would exceed a limit is dropped.
func (q *FIFO) Enqueue(now unit.Instant, p Packet) {
	n := q.admit(now, p)
	if q.params.Packets > 0 && q.stats.Packets > q.params.Packets ||
		q.params.Bytes > 0 && q.stats.Backlog > q.params.Bytes {
		q.refuse(now, n, Overlimit)
		return
	}
	q.push(&q.queue, n)
}

// Dequeue implements Queue.
func (q *FIFO) Dequeue(unit.Instant) (Packet, bool) {
	n := q.pop(&q.queue)
	if n == 0 {
		return Packet{}, false
	}
	return q.send(n), true
}

// Next implements Queue: a FIFO never holds a packet back.
func (q *FIFO) Next(now unit.Instant) (unit.Instant, bool) { return q.next(now) }

var _ Queue = (*FIFO)(nil)
