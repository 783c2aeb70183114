package netio

import (
	"fmt"
	"net"
	"net/netip"
	"time"

	"unbloat/unit"
)

// A Counter counts what passes one interface of this machine, from any sender.
// The zero value counts nothing.
type Counter struct {
	clock  *Clock
	name   string
	at     unit.Instant
	rx, tx uint64
}

// NewCounter starts to watch the interface towards an address. The loopback,
// which counts everything twice, is refused.
func NewCounter(clock *Clock, to netip.Addr) (*Counter, error) {
	name, err := InterfaceTowards(to)
	if err != nil {
		return nil, err
	}
	c := &Counter{clock: clock, name: name, at: clock.Now()}
	c.rx, c.tx, err = readCounters(name)
	return c, err
}

// Rates returns what was received and sent since, headers of the link included.
func (c *Counter) Rates() (down, up unit.Rate, ok bool) {
	if c.name == "" {
		return 0, 0, false
	}
	rx, tx, err := readCounters(c.name)
	took := c.clock.Now().Sub(c.at)
	if err != nil || took < 100*time.Millisecond || rx < c.rx || tx < c.tx {
		return 0, 0, false
	}
	rate := func(n uint64) unit.Rate { return unit.Rate(float64(n) * 8 / took.Seconds()) }
	return rate(rx - c.rx), rate(tx - c.tx), true
}

// PassedBy returns how many bytes connections of this machine have moved over
// its interface so far, each way and headers included, at most: every segment
// that came or went, new or again, in order or not. ok is false where the
// system does not tell, and after a connection's end.
func PassedBy(conns []*net.TCPConn) (in, out int64, ok bool) {
	for _, c := range conns {
		i, o, err := passed(c)
		if err != nil {
			return 0, 0, false
		}
		in, out = in+i, out+o
	}
	return in, out, len(conns) > 0
}

// InterfaceTowards returns the name of the interface through which this machine
// sends to an address. Nothing is sent. The loopback is refused with an error
// that wraps ErrNotSupported.
func InterfaceTowards(to netip.Addr) (string, error) {
	if !to.IsValid() || to.IsLoopback() {
		return "", fmt.Errorf("find the interface towards %s: %w for it", to, ErrNotSupported)
	}
	source, err := SourceFor(to)
	if err != nil {
		return "", err
	}
	name, loopback, err := interfaceOf(source)
	if err == nil && loopback {
		err = fmt.Errorf("it is the loopback: %w", ErrNotSupported)
	}
	if err != nil {
		return "", fmt.Errorf("find the interface towards %s: %w", to, err)
	}
	return name, nil
}
