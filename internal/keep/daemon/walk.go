package daemon

import (
	"net/netip"
	"slices"
	"time"

	"unbloat/internal/keep/incident"
	"unbloat/internal/measure/path"
)

// A walk asks routers on the way to the first far end, once in an incident whose part is not
// sure.
type walk struct {
	of    string // ID of the incident
	hops  []incident.Hop
	until time.Time // by then they have been asked and may have answered; zero: it is over
}

// Of a walk.
const (
	walkHops   = 12 // at most, from the second
	walkRounds = 3  // one a second
)

// walks asks the routers on the way, and tells the judge what became of it.
func (v *vigil) walks(second time.Time) {
	w := &v.walk
	switch left := w.until.Sub(second); {
	case w.until.IsZero() || v.socket == nil:
	case left <= 0:
		w.until = time.Time{}
		v.judge.Walked(slices.DeleteFunc(w.hops, func(h incident.Hop) bool { return h.Answered == 0 }))
	case left > vigilWait*time.Second:
		c := &v.codecs[0]
		for i := range w.hops {
			w.hops[i].Hop = i + 2
			w.hops[i].Asked++
			v.seq = (v.seq + 1) % path.SeqSpace
			v.asked[v.seq] = question{v.clock.Now(), second, 0, i + 2}
			_ = v.socket.Send(c.Target, i+2, c.Append(nil, v.seq))
		}
	}
}

// near reports whether two addresses are of one network, as far as addresses tell.
func near(a, b netip.Addr) bool {
	bits := 16
	if a.Is6() {
		bits = 32
	}
	p, err := a.Prefix(bits)
	return err == nil && p.Contains(b)
}
