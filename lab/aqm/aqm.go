// Package aqm holds queue algorithms: FIFO, CoDel, FQ-CoDel, COBALT and CAKE,
// start-time fair queueing, and the shapers in front of them.
//
// Everything here is a plain state machine. Time enters as now, which must not
// go backwards from call to call; randomness enters as a seed; the keys of
// flow and host come with the packet. Nothing reads a clock, opens a socket,
// locks, or allocates once a queue has grown to the size of its load.
// Algorithms count in integers; where a division rounds, the code says which way.
//
// CoDel and FQ-CoDel exist in several dialects, one for each implementation
// that people run. dialect.go names every difference and its source.
//
// A queue is not safe for concurrent use.
package aqm

import "unbloat/unit"

// ECN says what a queue may do to a packet instead of dropping it (RFC 3168).
type ECN uint8

// The states of a packet's ECN field. ECT(0) and ECT(1) are one here, because
// no queue in this package treats them differently.
const (
	NotECT ECN = iota // dropping is the only signal it understands
	ECT               // may be marked
	CE                // has been marked, here or earlier on its way
)

// Packet is what a queue holds: sizes and keys, no bytes. It is passed by value.
type Packet struct {
	// ID belongs to the caller and is carried untouched.
	ID uint64
	// Size is the length the queue counts, at least 1 byte and at most
	// 64 KiB: on Linux the IP packet and its Ethernet header.
	Size unit.Size
	// Enqueued is when the queue took the packet; the queue sets it.
	Enqueued unit.Instant
	// Flow is the key (hash) of the packet's flow, usually of its 5-tuple.
	Flow uint32
	// Source and Destination are keys (hashes) of the two hosts.
	Source, Destination uint32
	// DSCP is the packet's differentiated-services code point, 0–63.
	DSCP uint8
	// ECN is the packet's ECN field; a queue that marks sets it to CE.
	ECN ECN
}

// Reason says why a queue dropped a packet.
type Reason uint8

// Why a packet was dropped.
const (
	Overlimit Reason = iota // the queue was full
	Signal                  // the algorithm told the sender to slow down
)

// String names the reason in one word.
func (r Reason) String() string {
	if r == Overlimit {
		return "overlimit"
	}
	return "signal"
}

// DropFunc is called for each packet that a queue drops, while the queue drops
// it. It must not call the queue.
type DropFunc func(now unit.Instant, p Packet, why Reason)

// Queue is one queue discipline.
type Queue interface {
	// Enqueue offers a packet. The queue may drop it, or others to make room.
	Enqueue(now unit.Instant, p Packet)
	// Dequeue takes the next packet to send. It returns false when the queue
	// is empty, or holds its packets back until the instant Next returns.
	Dequeue(now unit.Instant) (Packet, bool)
	// Next returns the earliest instant, at or after now, at which Dequeue
	// can yield a packet; false when the queue is empty.
	Next(now unit.Instant) (unit.Instant, bool)
	// Len returns how many packets are queued.
	Len() int
	// Stats returns the counters.
	Stats() Stats
}

// Stats counts what a queue did since it was made. At any time
// Offered = Sent + Dropped + Packets, and the same in bytes.
type Stats struct {
	Offered, Sent, Dropped                uint64    // packets
	OfferedBytes, SentBytes, DroppedBytes unit.Size // their bytes
	Overlimits                            uint64    // of the dropped: for want of room
	Marked                                uint64    // packets given ECN's CE here
	Packets                               int       // in the queue now
	Backlog                               unit.Size // their bytes
}

// holding returns the counters with a packet that its inner queue has sent, and that a
// shaper still holds back.
func (s Stats) holding(p Packet) Stats {
	s.Sent--
	s.SentBytes -= p.Size
	s.Packets++
	s.Backlog += p.Size
	return s
}

// plus returns the sum of two queues' counters.
func (s Stats) plus(t Stats) Stats {
	return Stats{
		Offered: s.Offered + t.Offered, Sent: s.Sent + t.Sent, Dropped: s.Dropped + t.Dropped,
		OfferedBytes: s.OfferedBytes + t.OfferedBytes, SentBytes: s.SentBytes + t.SentBytes,
		DroppedBytes: s.DroppedBytes + t.DroppedBytes, Overlimits: s.Overlimits + t.Overlimits,
		Marked: s.Marked + t.Marked, Packets: s.Packets + t.Packets, Backlog: s.Backlog + t.Backlog,
	}
}
