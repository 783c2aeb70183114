package netio

import (
	"time"

	"unbloat/unit"
)

// A moderation decides when a server of datagrams collects them for a moment
// instead of waking for each, as network cards moderate their interrupts. What
// is collected carries the kernel's stamp of its arrival, so nothing is
// falsified: its stay is part of the answer.
type moderation struct {
	since unit.Instant // the window's begin
	n     int          // datagrams in it
	on    bool         // as the last window was
}

// What moderation does, and from which rate on: below it, waking for each
// datagram is cheap, and each is answered at once.
const (
	moderateWindow = 5 * time.Millisecond
	moderateRate   = 20_000 // datagrams a second
	moderateRest   = 2 * time.Millisecond
)

// rest books n datagrams, read at now, and returns for how long to collect
// the next.
func (m *moderation) rest(now unit.Instant, n int) time.Duration {
	m.n += n
	if d := now.Sub(m.since); d >= moderateWindow {
		m.on = float64(m.n) >= moderateRate*d.Seconds()
		m.since, m.n = now, 0
	}
	if !m.on {
		return 0
	}
	return moderateRest
}
