//go:build !linux

package netio

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"runtime"
	"sync"

	"golang.org/x/net/icmp"

	"unbloat/unit"
)

// A portableReflectors is a ReflectorSocket through golang.org/x/net/icmp. A
// goroutine of each family reads, and stamps what arrives.
type portableReflectors struct {
	clock *Clock
	stamp stamper
	ends  [2]*icmp.PacketConn // IPv4, IPv6; nil: this system has no such family
	done  sync.WaitGroup

	mu    sync.Mutex
	queue []HopEvent
}

func openReflectors(clock *Clock, _ string) (ReflectorSocket, error) {
	if runtime.GOOS == "windows" {
		return nil, unsupported("ask reflectors")
	}
	r := &portableReflectors{clock: clock, stamp: stamper{clock: clock}}
	var why []error
	for i, end := range []struct{ network, any string }{{"ip4:icmp", "0.0.0.0"}, {"ip6:ipv6-icmp", "::"}} {
		c, err := icmp.ListenPacket(end.network, end.any)
		if errors.Is(err, fs.ErrPermission) {
			err = fmt.Errorf("%w: %w; run as root", ErrNotAllowed, err)
		}
		if err != nil {
			why = append(why, err)
			continue
		}
		r.ends[i] = c
		r.done.Go(func() { r.read(c) })
	}
	if len(why) == len(r.ends) {
		return nil, fmt.Errorf("open raw sockets for probes: %w", errors.Join(why...))
	}
	return r, nil
}

func (r *portableReflectors) read(c *icmp.PacketConn) {
	buf := make([]byte, slotSize)
	for {
		n, from, err := c.ReadFrom(buf)
		now := r.clock.Now()
		if err != nil {
			if isClosed(err) {
				return
			}
			continue // a passing error of the network
		}
		e := HopEvent{At: now, From: addrOf(from), Data: append([]byte(nil), buf[:n]...)}
		r.mu.Lock()
		if len(r.queue) < maxHopQueue && e.From.IsValid() {
			r.queue = append(r.queue, e)
		}
		r.mu.Unlock()
	}
}

func (r *portableReflectors) Send(to netip.Addr, hops int, b []byte) error {
	const usual = 64
	to = to.Unmap()
	if hops == 0 {
		hops = usual
	}
	var err error
	c := r.ends[0]
	switch {
	case to.Is6():
		if c = r.ends[1]; c != nil {
			err = c.IPv6PacketConn().SetHopLimit(hops)
		}
	case c != nil:
		err = c.IPv4PacketConn().SetTTL(hops)
	}
	if c == nil {
		return fmt.Errorf("send a probe to %s: %w by this system", to, ErrNotSupported)
	}
	if err != nil {
		return fmt.Errorf("limit a probe to %s to %d hops: %w", to, hops, err)
	}
	if _, err := c.WriteTo(b, &net.IPAddr{IP: to.AsSlice(), Zone: to.Zone()}); err != nil {
		return fmt.Errorf("send a probe to %s: %w", to, err)
	}
	return nil
}

func (r *portableReflectors) Drain(receive func(at unit.Instant, from netip.Addr, b []byte)) error {
	r.stamp.look()
	r.mu.Lock()
	queue := r.queue
	r.queue = nil
	r.mu.Unlock()
	for _, e := range queue {
		receive(e.At, e.From, e.Data)
	}
	return nil
}

func (r *portableReflectors) Steps() int { return r.stamp.steps }

// Close closes the sockets and waits for their readers.
func (r *portableReflectors) Close() error {
	var why error
	for _, c := range r.ends {
		if c != nil {
			why = errors.Join(why, c.Close())
		}
	}
	r.done.Wait()
	return why
}
