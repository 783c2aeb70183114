//go:build !linux

package netio

import "net"

// Congestion returns which congestion control a connection sends with; "" where
// the system does not tell.
func Congestion(*net.TCPConn) string { return "" }

// SetDSCP marks what the server sends from here on with a DSCP (0–63). Here it
// can only be 0: else the error wraps ErrNotSupported.
func (s *PacketServer) SetDSCP(dscp int) error {
	if dscp == 0 {
		return nil
	}
	return ErrNotSupported
}

// CanMark says that Peer.Mark works here.
const CanMark = false

// AskClasses does nothing here: Peer.Class knows no traffic class.
func (s *PacketServer) AskClasses() {}

// Mark has the answer to the datagram at hand sent with a traffic class (DSCP and ECN).
func (p *Peer) Mark(uint8) {}

// Mark is of Linux only.
func (d *Datagram) Mark(uint8) error { return unsupported("mark datagrams") }

// Class knows no traffic class here.
func (d *Datagram) Class() (class uint8, known bool) { return 0, false }
