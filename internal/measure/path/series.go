package path

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// A series holds the probes to one hop in one phase, in the order they were sent.
type series struct {
	samples []time.Duration // round trip, or one of the marks
	lost    int
}

// Marks of probes without a round trip.
const (
	underWay = time.Duration(-1)
	gone     = time.Duration(-2)
)

// add books a probe and returns its index.
func (s *series) add() int {
	s.samples = append(s.samples, underWay)
	return len(s.samples) - 1
}

// answer books the round trip of probe i.
func (s *series) answer(i int, rtt time.Duration) { s.samples[i] = rtt }

// lose books probe i as lost.
func (s *series) lose(i int) {
	s.samples[i] = gone
	s.lost++
}

func (s *series) stats() Stats {
	out := Stats{Sent: len(s.samples), Lost: s.lost}
	for _, d := range s.samples {
		if d >= 0 {
			out.RTTs = append(out.RTTs, d)
		}
	}
	return out
}

// seen is an address that answered at a hop, and how often.
type seen struct {
	addr netip.Addr
	n    int
}

// maxAddrs bounds what is kept of a hop: load is seldom spread over more paths.
const maxAddrs = 16

// saw books who answered.
func (h *hop) saw(a netip.Addr) {
	i := slices.IndexFunc(h.addrs, func(s seen) bool { return s.addr == a })
	if i < 0 {
		if len(h.addrs) == maxAddrs {
			return
		}
		i = len(h.addrs)
		h.addrs = append(h.addrs, seen{addr: a})
	}
	h.addrs[i].n++
}

// quote books with which traffic class a probe of another came here.
func (h *hop) quote(sent, came uint8) {
	if h.quoted == nil {
		h.quoted = map[uint8]map[uint8]int{}
	}
	if h.quoted[sent] == nil {
		h.quoted[sent] = map[uint8]int{}
	}
	h.quoted[sent][came]++
}

// addresses returns who answered, most answers first.
func (h *hop) addresses() []netip.Addr {
	order := slices.SortedStableFunc(slices.Values(h.addrs), func(a, b seen) int { return cmp.Compare(b.n, a.n) })
	var out []netip.Addr
	for _, s := range order {
		out = append(out, s.addr)
	}
	return out
}
