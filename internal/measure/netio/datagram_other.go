//go:build !linux

package netio

import (
	"fmt"
	"net"
	"net/netip"
	"sync"

	"unbloat/unit"
)

// A Datagram is a connected UDP socket. A goroutine reads it and stamps what
// arrives; Drain takes what has come.
type Datagram struct {
	conn  *net.UDPConn
	stamp stamper
	done  chan struct{}

	mu     sync.Mutex
	queue  []arrival
	free   [][]byte
	taking []arrival
}

type arrival struct {
	at unit.Instant
	b  []byte
}

const (
	slotSize = 2048
	maxQueue = 4096 // beyond it datagrams are dropped, as a full socket does
)

// DialDatagram opens a socket to the address. A DSCP other than 0 is not supported here.
func DialDatagram(clock *Clock, to netip.AddrPort, dscp int) (*Datagram, error) {
	if dscp != 0 {
		return nil, unsupported(fmt.Sprintf("mark datagrams to %s with DSCP %d", to, dscp))
	}
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
	if err != nil {
		return nil, fmt.Errorf("open a UDP socket to %s: %w", to, err)
	}
	d := &Datagram{conn: c, stamp: stamper{clock: clock}, done: make(chan struct{})}
	go d.read(clock)
	return d, nil
}

func (d *Datagram) read(clock *Clock) {
	defer close(d.done)
	buf := make([]byte, slotSize)
	for {
		n, err := d.conn.Read(buf)
		now := clock.Now()
		if err != nil {
			if isClosed(err) {
				return
			}
			continue // what ICMP reports of an earlier datagram
		}
		d.mu.Lock()
		if len(d.queue) < maxQueue {
			var b []byte
			if k := len(d.free); k > 0 {
				b, d.free = d.free[k-1], d.free[:k-1]
			}
			d.queue = append(d.queue, arrival{now, append(b[:0], buf[:n]...)})
		}
		d.mu.Unlock()
	}
}

// Send sends b. A datagram that the system would not take now is lost, which
// is no error; neither is a refusal that ICMP reports of an earlier one.
func (d *Datagram) Send(b []byte) error {
	if _, err := d.conn.Write(b); err != nil && isClosed(err) {
		return fmt.Errorf("send a datagram: %w", err)
	}
	return nil
}

// Drain hands over every datagram that has arrived, with the instant of its
// arrival. The bytes are valid during the call only.
func (d *Datagram) Drain(receive func(at unit.Instant, b []byte)) error {
	d.stamp.look()
	d.mu.Lock()
	d.taking, d.queue = d.queue, d.taking[:0]
	d.mu.Unlock()
	for _, a := range d.taking {
		receive(a.at, a.b)
	}
	d.mu.Lock()
	for _, a := range d.taking {
		d.free = append(d.free, a.b)
	}
	d.mu.Unlock()
	return nil
}

// Steps returns how often the machine's clock was set meanwhile.
func (d *Datagram) Steps() int { return d.stamp.steps }

// Close closes the socket and waits for its reader.
func (d *Datagram) Close() error {
	err := d.conn.Close()
	<-d.done
	return err
}

// DialPing opens a ping socket, which this program knows on Linux only.
func DialPing(_ *Clock, to netip.Addr, _ int) (*Datagram, bool, error) {
	return nil, false, unsupported(fmt.Sprintf("open a ping socket to %s", to))
}
