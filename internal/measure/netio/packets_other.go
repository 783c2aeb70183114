//go:build !linux

package netio

import "net"

// A packetSocket is the socket of a PacketServer.
type packetSocket struct{ conn *net.UDPConn }

func openPacketSocket(c *net.UDPConn) (*packetSocket, error) {
	return &packetSocket{conn: c}, nil
}

func kernelStamp([]byte) int64 { return 0 }

// serve handles one datagram at a time.
func (s *PacketServer) serve(handle Handler) error {
	buf := make([]byte, 2048)
	var from Peer
	for i := 0; ; i++ {
		n, addr, err := s.socket.conn.ReadFromUDPAddrPort(buf)
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
		from.Addr, s.leaves = addr, now
		if out := handle(&from, s.stamp.instant(0, now), buf[:n]); out != nil {
			s.socket.send(&from, out)
		}
	}
}

func (s *packetSocket) send(to *Peer, b []byte) { _, _ = s.conn.WriteToUDPAddrPort(b, to.Addr) }

func (s *packetSocket) close() error { return s.conn.Close() }
