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

	class   uint8
	classed bool
}

// Class returns the traffic class (DSCP and ECN) of the datagram at hand, if the system was
// asked for it (AskClasses) and tells.
func (p *Peer) Class() (class uint8, known bool) { return p.class, p.classed }

// oobLocal holds two control messages: where to send from, and with which DSCP.
const oobLocal = 64

// A PacketServer answers datagrams.
type PacketServer struct {
	socket *packetSocket
	addr   netip.AddrPort
	clock  *Clock
	stamp  stamper
	leaves unit.Instant
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
	return NewPacketServer(clock, c)
}

// NewPacketServer is ListenPackets of a socket that is open already. The server
// takes it over.
func NewPacketServer(clock *Clock, c *net.UDPConn) (*PacketServer, error) {
	_ = c.SetReadBuffer(1 << 20)
	s := &PacketServer{addr: c.LocalAddr().(*net.UDPAddr).AddrPort(), clock: clock, stamp: stamper{clock: clock}}
	var err error
	if s.socket, err = openPacketSocket(c); err != nil {
		return nil, fmt.Errorf("listen on UDP %s: %w", s.addr, err)
	}
	return s, nil
}

// Addr returns the address listened on.
func (s *PacketServer) Addr() netip.AddrPort { return s.addr }

// A Handler answers a datagram with the one that it returns, or with nothing.
// The datagram and the peer are valid during the call only; the answer, which
// may be in the datagram's own memory, until the next datagrams are read.
type Handler func(from *Peer, at unit.Instant, b []byte) []byte

// Serve hands every datagram to handle, with the instant at which the kernel
// received it, and sends what handle returns, until the server is closed.
func (s *PacketServer) Serve(handle Handler) error { return s.serve(handle) }

// Leaves returns when the answer that a handler is about to give leaves: answers
// that travel together leave together. It is for handlers, during their call.
func (s *PacketServer) Leaves() unit.Instant { return s.leaves }

// Send sends a datagram to a peer. What the system does not take is lost.
func (s *PacketServer) Send(to *Peer, b []byte) { s.socket.send(to, b) }

// Close ends Serve.
func (s *PacketServer) Close() error { return s.socket.close() }
