package sim

import (
	"time"

	"unbloat/unit"
)

// LEDBAT's parameters, as BitTorrent's uTP has them (RFC 6817, BEP 29).
const (
	ledbatTarget = 100 * time.Millisecond
	ledbatGain   = 1.0 // windows' worth of segments a round trip, at no queueing delay at all
	ledbatMinute = 60 * time.Second
)

// ledbat yields to others: it grows while the queueing delay that it sees is
// below its target, and shrinks above it.
type ledbat struct {
	base     [2]time.Duration // least one-way delay of the last and of this minute
	minute   unit.Instant
	fraction float64
}

func (l *ledbat) start(*Conn, unit.Instant) {}

func (l *ledbat) sample(_ *Conn, a *ack) {
	if a.oneWay <= 0 {
		return
	}
	if a.now.Sub(l.minute) > ledbatMinute {
		l.base[0], l.base[1], l.minute = l.base[1], 0, a.now
	}
	if l.base[1] == 0 || a.oneWay < l.base[1] {
		l.base[1] = a.oneWay
	}
}

func (l *ledbat) grow(c *Conn, a *ack) {
	base := l.base[1]
	if l.base[0] > 0 {
		base = min(base, l.base[0])
	}
	off := float64(ledbatTarget-(a.oneWay-base)) / float64(ledbatTarget)
	if c.cwnd < c.ssthresh { // slow start, until a quarter of the target
		if off > 0.75 {
			c.slowStart(a.delivered)
			return
		}
		c.ssthresh = c.cwnd
	}
	l.fraction += ledbatGain * off * float64(a.delivered) / float64(c.cwnd)
	for l.fraction >= 1 {
		c.cwnd++
		l.fraction--
	}
	for l.fraction <= -1 {
		c.cwnd = max(c.cwnd-1, 2)
		l.fraction++
	}
}

func (l *ledbat) reduce(c *Conn, _ unit.Instant) int32 { return max(c.cwnd/2, 2) }
func (l *ledbat) timeout(*Conn, unit.Instant)          { l.fraction = 0 }
func (l *ledbat) recovered(*Conn)                      {}
