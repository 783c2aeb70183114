package netio

import (
	"net"
	"syscall"
	"time"

	"unbloat/unit"
)

// Arrivals watches what comes in on a TCP connection that somebody else reads,
// by the kernel's count of segments: what waits behind a hole has arrived, long
// before it can be read. Its methods are not for concurrent use.
type Arrivals struct {
	clock *Clock
	raw   syscall.RawConn
	came  arrivals
}

// WatchArrivals begins to watch a connection; every is how far marks are apart.
func WatchArrivals(clock *Clock, c *net.TCPConn, every time.Duration) *Arrivals {
	a := &Arrivals{clock: clock, came: arrivals{every: every}}
	a.raw, _ = c.SyscallConn() // fails only on a nil connection
	a.Mark()
	return a
}

// Mark notes what has arrived by now. Where the system does not tell, and after
// the connection's end, it does nothing.
func (a *Arrivals) Mark() {
	now := a.clock.Now()
	if m, mss, err := readArrivals(a.raw); err == nil {
		m.at = now
		a.came.add(m, mss)
	}
}

// Bins returns what arrived between the marks, headers of TCP and below not
// counted; nothing where the system does not tell.
func (a *Arrivals) Bins(start unit.Instant, width time.Duration) Bins {
	return a.came.bins(start, width)
}

// lately is how many marks back Waiting looks for a time without a hole.
const lately = 20

// Waiting says whether what arrived of late waits behind a hole, as far as the
// marks tell: more segments came than is explained by what came in order.
func (a *Arrivals) Waiting() bool {
	marks := a.came.marks
	if len(marks) < 2 {
		return false
	}
	recent := marks[max(0, len(marks)-lately):]
	mss := max(a.came.mss, 1)
	excess := func(m mark) int64 { return m.segments*mss - m.inOrder }
	least := excess(recent[0])
	for _, m := range recent {
		least = min(least, excess(m))
	}
	const short = 8 // segments that were not full
	return excess(recent[len(recent)-1]) > least+short*mss
}
