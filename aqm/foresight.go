package aqm

import (
	"unsafe"

	"unbloat/internal/near"
)

// Foresight is what a queue may have beside Queue, for who offers it packets of
// thousands of flows: memory is asked for early. It changes no decision.
type Foresight interface {
	// Soon says that a packet of that flow will be offered soon.
	Soon(flow uint32)
	// Coming guesses which packets will leave next and a little later, by their
	// IDs; 0 for either that it does not know.
	Coming() (next, later uint64)
}

// Soon implements Foresight.
func (q *FQCoDel) Soon(flow uint32) {
	near.Lines(unsafe.Pointer(&q.flows[flow%uint32(len(q.flows))]), 1)
}

// fewPackets stay near by themselves.
const fewPackets = 64

// Coming implements Foresight. In the round of old flows each sends a packet or
// so: the sixth flow from the first is asked for, the first packet of the
// fourth, and the IDs are those of the second and of the third.
func (q *FQCoDel) Coming() (next, later uint64) {
	if q.stats.Packets < fewPackets {
		return 0, 0
	}
	i := q.old.head
	if q.fresh.head != 0 {
		i = q.fresh.head
	}
	for k := 1; i != 0 && k < 6; k++ {
		f := &q.flows[i-1]
		switch k {
		case 2:
			next = q.nodes[f.head].ID
		case 3:
			later = q.nodes[f.head].ID
		case 4:
			near.Lines(unsafe.Pointer(&q.nodes[f.head]), 1)
		case 5:
			if f.next != 0 {
				near.Lines(unsafe.Pointer(&q.flows[f.next-1]), 1)
			}
		}
		i = f.next
	}
	return next, later
}

// Soon implements Foresight, of a tree of one leaf.
func (h *HTB) Soon(flow uint32) {
	if h.foresight != nil {
		h.foresight.Soon(flow)
	}
}

// Coming implements Foresight, of a tree of one leaf.
func (h *HTB) Coming() (next, later uint64) {
	if h.foresight == nil {
		return 0, 0
	}
	return h.foresight.Coming()
}

var (
	_ Foresight = (*FQCoDel)(nil)
	_ Foresight = (*HTB)(nil)
)
