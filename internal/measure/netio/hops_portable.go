package netio

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"sync"

	"golang.org/x/net/icmp"
)

// A portableHops is a HopSocket through golang.org/x/net/icmp, for systems
// other than Linux. A goroutine reads it and stamps what arrives.
type portableHops struct {
	conn  *icmp.PacketConn
	way   HopWay
	six   bool
	to    net.Addr
	clock *Clock
	done  chan struct{}

	mu    sync.Mutex
	queue []HopEvent
}

// newPortableHops opens a raw socket, or a ping socket where the system has
// them (macOS).
func newPortableHops(clock *Clock, to netip.Addr, way HopWay) (*portableHops, error) {
	to = to.Unmap()
	network, any4 := "ip4:icmp", "0.0.0.0"
	if to.Is6() {
		network, any4 = "ip6:ipv6-icmp", "::"
	}
	var peer net.Addr = &net.IPAddr{IP: to.AsSlice(), Zone: to.Zone()}
	if way == HopICMP {
		network = "udp4"
		if to.Is6() {
			network = "udp6"
		}
		peer = &net.UDPAddr{IP: to.AsSlice(), Zone: to.Zone()}
	}
	c, err := icmp.ListenPacket(network, any4)
	if errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("open a socket for %s probes to %s: %w: %w; run as root", way, to, ErrNotAllowed, err)
	}
	if err != nil {
		return nil, fmt.Errorf("open a socket for %s probes to %s: %w", way, to, err)
	}
	s := &portableHops{conn: c, way: way, six: to.Is6(), to: peer, clock: clock, done: make(chan struct{})}
	go s.read()
	return s, nil
}

func (s *portableHops) read() {
	defer close(s.done)
	buf := make([]byte, slotSize)
	for {
		n, from, err := s.conn.ReadFrom(buf)
		now := s.clock.Now()
		if err != nil {
			if isClosed(err) {
				return
			}
			continue // a passing error of the network
		}
		e := HopEvent{At: now, From: addrOf(from), Form: HopMessage, Data: append([]byte(nil), buf[:n]...)}
		s.mu.Lock()
		if len(s.queue) < maxHopQueue && e.From.IsValid() {
			s.queue = append(s.queue, e)
		}
		s.mu.Unlock()
	}
}

// maxHopQueue is how many answers wait for Drain; beyond it they are dropped, as a full socket does.
const maxHopQueue = 4096

// addrOf returns the address of a packet's sender without its zone.
func addrOf(a net.Addr) netip.Addr {
	var ip net.IP
	switch a := a.(type) {
	case *net.IPAddr:
		ip = a.IP
	case *net.UDPAddr:
		ip = a.IP
	}
	addr, _ := netip.AddrFromSlice(ip)
	return addr.Unmap()
}

func (s *portableHops) Way() HopWay { return s.way }

func (s *portableHops) Send(ttl int, _ uint16, b []byte) error {
	var err error
	if s.six {
		err = s.conn.IPv6PacketConn().SetHopLimit(ttl)
	} else {
		err = s.conn.IPv4PacketConn().SetTTL(ttl)
	}
	if err != nil {
		return fmt.Errorf("limit a probe to %d hops: %w", ttl, err)
	}
	if _, err := s.conn.WriteTo(b, s.to); err != nil {
		return fmt.Errorf("send a probe to %s: %w", s.to, err)
	}
	return nil
}

func (s *portableHops) Mark(class uint8) error {
	var err error
	if s.six {
		err = s.conn.IPv6PacketConn().SetTrafficClass(int(class))
	} else {
		err = s.conn.IPv4PacketConn().SetTOS(int(class))
	}
	if err != nil {
		return fmt.Errorf("mark probes with the traffic class %#02x: %w", class, err)
	}
	return nil
}

func (s *portableHops) Drain(receive func(HopEvent)) error {
	s.mu.Lock()
	queue := s.queue
	s.queue = nil
	s.mu.Unlock()
	for _, e := range queue {
		receive(e)
	}
	return nil
}

// Close closes the socket and waits for its reader.
func (s *portableHops) Close() error {
	err := s.conn.Close()
	<-s.done
	return err
}
