package netio

import (
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unbloat/unit"
)

// Answers are sent with the DSCP that the handler asks for, over IPv4 and IPv6,
// and on a dual-stack socket.
func TestMark(t *testing.T) {
	const dscp = 46
	for _, c := range []struct{ listen, dial, host string }{
		{"127.0.0.1:0", "udp4", "127.0.0.1"}, {"[::]:0", "udp4", "127.0.0.1"}, {"[::]:0", "udp6", "::1"},
	} {
		s, err := ListenPackets(NewClock(), c.listen)
		if err != nil {
			t.Skipf("SKIPPED: %v", err)
		}
		defer s.Close()
		go s.Serve(func(from *Peer, _ unit.Instant, b []byte) []byte {
			from.Mark(dscp << 2)
			return b
		})
		conn, err := net.DialUDP(c.dial, nil, &net.UDPAddr{IP: net.ParseIP(c.host), Port: int(s.Addr().Port())})
		if err != nil {
			t.Skipf("SKIPPED: %v", err)
		}
		defer conn.Close()
		raw, err := conn.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		_ = raw.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_RECVTOS, 1)
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVTCLASS, 1) // one of the two options is of another address family
		})
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err := conn.Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
		oob := make([]byte, 200)
		_, n, _, _, err := conn.ReadMsgUDP(make([]byte, 10), oob)
		if err != nil {
			t.Fatal(err)
		}
		messages, err := unix.ParseSocketControlMessage(oob[:n])
		if err != nil || len(messages) != 1 || messages[0].Data[0] != dscp<<2 {
			t.Errorf("%s to %s: %v, %v", c.dial, c.listen, messages, err)
		}
	}
}
