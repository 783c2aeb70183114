// Package netio holds the only sockets, timestamps and counters of the
// operating system: probe sockets with kernel timestamps, precise sleeping,
// bulk TCP senders and receivers, TCP_INFO and the processor's load. What a
// system cannot do returns an error that wraps ErrNotSupported; everything
// here works without it, less exactly.
//
// It is written for one processor and for clocks that jump (the lab's kernel
// runs in virtual time): nothing spins, nothing polls a clock, and bulk data
// costs few system calls and few wake-ups a second, whatever its rate.
package netio

import (
	"errors"
	"time"

	"unbloat/unit"
)

// ErrNotSupported is wrapped by every error that says that this system lacks something.
var ErrNotSupported = errors.New("not supported")

// A Clock gives instants that never step: nanoseconds since 1970 by the
// machine's clock when it was made, advanced by the monotonic clock.
type Clock struct{ base time.Time }

// NewClock returns a clock that agrees with the machine's clock now.
func NewClock() *Clock { return &Clock{base: time.Now()} }

// ClockSince returns a clock that agrees with the machine's clock at a time that
// time.Now has returned, so that clocks since the same time agree for ever.
func ClockSince(base time.Time) *Clock { return &Clock{base: base} }

// Now returns the current instant.
func (c *Clock) Now() unit.Instant {
	return unit.Instant(c.base.UnixNano()).Add(time.Since(c.base))
}

// Time returns i as a time of day.
func (c *Clock) Time(i unit.Instant) time.Time { return time.Unix(0, int64(i)) }

// Step returns how far the machine's clock has been set since the Clock was
// made. The monotonic clock is slewed with it, so only steps show.
func (c *Clock) Step() time.Duration {
	_, step := c.read()
	return step
}

// read returns Now and Step with one reading of the clocks.
func (c *Clock) read() (unit.Instant, time.Duration) {
	t := time.Now()
	base, since := c.base.UnixNano(), t.Sub(c.base)
	return unit.Instant(base).Add(since), time.Duration(t.UnixNano()-base) - since
}

// stepTolerance is what two readings of two clocks may differ without a step.
const stepTolerance = 2 * time.Millisecond

// stamper turns kernel timestamps, which follow the machine's clock, into
// instants of a Clock. It learns of a step when two looks in a row see it.
type stamper struct {
	clock   *Clock
	step    time.Duration // applied now
	suspect time.Duration
	steps   int
}

// look compares the clocks, and returns the current instant; it is to be called now
// and then.
func (s *stamper) look() unit.Instant {
	now, d := s.clock.read()
	if near(d, s.step) {
		s.suspect = s.step
		return now
	}
	if near(d, s.suspect) {
		s.step = d
		s.steps++
	}
	s.suspect = d
	return now
}

func near(a, b time.Duration) bool { return (a - b).Abs() < stepTolerance }

// instant converts a kernel timestamp; one that makes no sense (in the future,
// or older than a socket buffer can be) is replaced by now.
func (s *stamper) instant(kernel int64, now unit.Instant) unit.Instant {
	const oldest = 30 * time.Second
	i := unit.Instant(kernel).Add(-s.step)
	if kernel == 0 || now.Before(i) || now.Sub(i) > oldest {
		return now
	}
	return i
}
