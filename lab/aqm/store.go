package aqm

import (
	"fmt"
	"math/bits"

	"unbloat/unit"
)

// maxPacketSize bounds a packet, so that sums of sizes and products with
// intervals stay far inside 64 bits.
const maxPacketSize = 64 << 10

// node is a packet in the slab, linked to the next one of its chain.
type node struct {
	Packet
	next uint32 // index into store.nodes; 0 ends a chain
}

// chain is a FIFO of packets inside a slab.
type chain struct {
	head, tail uint32 // indices into store.nodes; 0 when empty
	packets    uint32
	bytes      uint32
}

// store is the slab that a queue's packets live in, and their accounting. Its
// free nodes form a chain too, so that steady traffic allocates nothing.
type store struct {
	nodes  []node // nodes[0] is not used: index 0 means "none"
	free   uint32
	memory int64 // bytes of kernel memory the queued packets would take
	stats  Stats
	onDrop DropFunc
}

// newStore returns an empty slab.
func newStore(onDrop DropFunc) store { return store{nodes: make([]node, 1), onDrop: onDrop} }

// Len returns how many packets are queued.
func (s *store) Len() int { return s.stats.Packets }

// Stats returns the counters.
func (s *store) Stats() Stats { return s.stats }

// admit counts p as offered, stamps it and stores it in a node of no chain.
func (s *store) admit(now unit.Instant, p Packet) uint32 {
	if p.Size < 1 || p.Size > maxPacketSize {
		panic(fmt.Sprintf("aqm: packet of %d bytes; 1 to %d are possible", p.Size, maxPacketSize))
	}
	n := s.free
	if n == 0 {
		n = uint32(len(s.nodes))
		s.nodes = append(s.nodes, node{})
	} else {
		s.free = s.nodes[n].next
	}
	d := &s.nodes[n]
	d.Packet, d.Enqueued, d.next = p, now, 0
	s.stats.Offered++
	s.stats.OfferedBytes += p.Size
	s.stats.Packets++
	s.stats.Backlog += p.Size
	s.memory += memoryOf(p.Size)
	return n
}

// push appends node n to c.
func (s *store) push(c *chain, n uint32) {
	if c.head == 0 {
		c.head = n
	} else {
		s.nodes[c.tail].next = n
	}
	c.tail = n
	c.packets++
	c.bytes += uint32(s.nodes[n].Size)
}

// pop takes the first node off c, or 0; it no longer counts as queued, and the
// caller passes it to send or drop.
func (s *store) pop(c *chain) uint32 {
	n := c.head
	if n == 0 {
		return 0
	}
	d := &s.nodes[n]
	c.head = d.next
	c.packets--
	c.bytes -= uint32(d.Size)
	s.stats.Packets--
	s.stats.Backlog -= d.Size
	s.memory -= memoryOf(d.Size)
	return n
}

// send frees a popped node and returns its packet.
func (s *store) send(n uint32) Packet {
	d := &s.nodes[n]
	s.stats.Sent++
	s.stats.SentBytes += d.Size
	d.next = s.free
	s.free = n
	return d.Packet
}

// drop frees a popped node and reports the drop to onDrop.
func (s *store) drop(now unit.Instant, n uint32, why Reason) {
	d := &s.nodes[n]
	s.stats.Dropped++
	s.stats.DroppedBytes += d.Size
	if why == Overlimit {
		s.stats.Overlimits++
	}
	d.next = s.free
	s.free = n
	if s.onDrop != nil {
		s.onDrop(now, d.Packet, why)
	}
}

// refuse drops a packet that was admitted but pushed to no chain.
func (s *store) refuse(now unit.Instant, n uint32, why Reason) {
	d := &s.nodes[n]
	s.stats.Packets--
	s.stats.Backlog -= d.Size
	s.memory -= memoryOf(d.Size)
	s.drop(now, n, why)
}

// mark sets CE if the packet understands it, and says whether it does. A
// packet that carries CE already counts as told (Linux INET_ECN_set_ce).
func (s *store) mark(n uint32) bool {
	d := &s.nodes[n]
	if d.ECN == NotECT {
		return false
	}
	d.ECN = CE
	s.stats.Marked++
	return true
}

// next is Queue.Next of a queue that never holds a packet back.
func (s *store) next(now unit.Instant) (unit.Instant, bool) {
	return now, s.stats.Packets > 0
}

// memoryOf returns the bytes of memory Linux charges for a packet (truesize)
// on a 64-bit machine: 64 bytes of headroom and 320 of skb_shared_info in a
// power-of-two slab, and 256 of sk_buff. 64 bytes cost 768, 1514 cost 2304.
func memoryOf(size unit.Size) int64 {
	data := (uint64(size)+64+63)&^63 + 320
	return int64(1)<<bits.Len64(data-1) + 256
}
