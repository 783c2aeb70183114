package netio

import (
	"fmt"
	"net"
	"net/netip"

	"unbloat/unit"
)

// A Peer is where a datagram came from and which of our addresses it came to,
// so that the answer leaves from there.
type Peer struct {
	Addr  netip.AddrPort
	local [oobLocal]byte
	n     int
}

const oobLocal = 48

// A PacketServer answers datagrams.
type PacketServer struct {
	conn  *net.UDPConn
	clock *Clock
	stamp stamper
}

// ListenPackets opens a UDP socket on address, such as ":7676".
func ListenPackets(clock *Clock, address string) (*PacketServer, error) {
	a, err := net.ResolveUDPAddr("udp", address)
	if err != nil {
		return nil, fmt.Errorf("listen on UDP %s: %w", address, err)
	}
	c, err := net.ListenUDP("udp", a)
	if err != nil {
		return nil, fmt.Errorf("listen on UDP: %w", err)
	}
	_ = c.SetReadBuffer(1 << 20)
	askStamps(c)
	return &PacketServer{conn: c, clock: clock, stamp: stamper{clock: clock}}, nil
}

// Addr returns the address listened on.
func (s *PacketServer) Addr() netip.AddrPort {
	return s.conn.LocalAddr().(*net.UDPAddr).AddrPort()
}

// A Handler answers a datagram with the one that it returns, or with nothing.
// The datagram and the peer are valid during the call only; the answer, which
// may be in the datagram's own memory, until the next datagrams are read.
type Handler func(from *Peer, at unit.Instant, b []byte) []byte

// Serve hands every datagram to handle, with the instant at which the kernel
// received it, and sends what handle returns, until the server is closed.
func (s *PacketServer) Serve(handle Handler) error { return s.serve(handle) }

// serveEach handles one datagram at a time.
func (s *PacketServer) serveEach(handle Handler) error {
	buf := make([]byte, slotSize)
	oob := make([]byte, 256)
	var from Peer
	for i := 0; ; i++ {
		n, oobn, _, addr, err := s.conn.ReadMsgUDPAddrPort(buf, oob)
		if err != nil {
			if isClosed(err) {
				return nil
			}
			continue // what ICMP reports of an earlier answer
		}
		now := s.clock.Now()
		if i%256 == 0 {
			s.stamp.look()
		}
		from.Addr = addr
		from.n = putLocal(from.local[:], oob[:oobn])
		if out := handle(&from, s.stamp.instant(kernelStamp(oob[:oobn]), now), buf[:n]); out != nil {
			s.Send(&from, out)
		}
	}
}

// Send sends a datagram to a peer. What the system does not take is lost.
func (s *PacketServer) Send(to *Peer, b []byte) {
	_, _, _ = s.conn.WriteMsgUDPAddrPort(b, to.local[:to.n], to.Addr)
}

// Close ends Serve.
func (s *PacketServer) Close() error { return s.conn.Close() }
