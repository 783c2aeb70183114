package serve

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"

	"unbloat/internal/measure/netio"
)

// Sockets are opened by a service manager, which keeps them open while the
// program is replaced by a newer version (sd_listen_fds(3)). Each is used for
// the address with its port. A nil *Sockets is empty.
type Sockets struct {
	listeners []*net.TCPListener
	datagrams []*net.UDPConn
}

// firstSocket is the descriptor of the first one.
const firstSocket = 3

// InheritSockets takes the sockets that a service manager opened for this
// process; nil if there are none. getenv is os.Getenv.
func InheritSockets(getenv func(string) string) (*Sockets, error) {
	if getenv("LISTEN_PID") != strconv.Itoa(os.Getpid()) {
		return nil, nil
	}
	n, err := strconv.Atoi(getenv("LISTEN_FDS"))
	if err != nil || n < 0 || n > 1024 {
		return nil, fmt.Errorf("take the service manager's sockets: LISTEN_FDS=%q is not their number", getenv("LISTEN_FDS"))
	}
	s := &Sockets{}
	for fd := firstSocket; fd < firstSocket+n; fd++ {
		f := os.NewFile(uintptr(fd), "socket "+strconv.Itoa(fd))
		l, notStream := net.FileListener(f) // a copy, which child processes do not inherit
		if tcp, ok := l.(*net.TCPListener); ok {
			s.listeners = append(s.listeners, tcp)
			f.Close()
			continue
		}
		c, notPackets := net.FilePacketConn(f)
		f.Close()
		udp, ok := c.(*net.UDPConn)
		if !ok {
			return nil, fmt.Errorf("take the service manager's sockets: number %d is neither TCP nor UDP: %w", fd, errors.Join(notStream, notPackets))
		}
		s.datagrams = append(s.datagrams, udp)
	}
	return s, nil
}

// stream returns a listening socket for a TCP address: an inherited one, or a
// new one.
func (s *Sockets) stream(a *net.TCPAddr) (*net.TCPListener, error) {
	if s != nil && a.Port != 0 {
		for i, l := range s.listeners {
			if at, ok := l.Addr().(*net.TCPAddr); ok && at.Port == a.Port {
				s.listeners = slices.Delete(s.listeners, i, i+1)
				return l, nil
			}
		}
	}
	return net.ListenTCP("tcp", a)
}

// Datagrams is stream for UDP.
func (s *Sockets) Datagrams(a *net.UDPAddr) (*net.UDPConn, error) {
	if s != nil && a.Port != 0 {
		for i, c := range s.datagrams {
			if at, ok := c.LocalAddr().(*net.UDPAddr); ok && at.Port == a.Port {
				s.datagrams = slices.Delete(s.datagrams, i, i+1)
				return c, nil
			}
		}
	}
	return net.ListenUDP("udp", a)
}

// packets opens a server of datagrams on an address, such as ":7676".
func (s *Sockets) packets(clock *netio.Clock, address string) (*netio.PacketServer, error) {
	a, err := net.ResolveUDPAddr("udp", address)
	if err != nil {
		return nil, fmt.Errorf("listen on UDP %s: %w", address, err)
	}
	c, err := s.Datagrams(a)
	if err != nil {
		return nil, fmt.Errorf("listen on UDP: %w", err)
	}
	return netio.NewPacketServer(clock, c)
}

// Unused returns the addresses of inherited sockets on which no protocol of
// this server listens.
func (s *Sockets) Unused() []string {
	var out []string
	if s != nil {
		for _, l := range s.listeners {
			out = append(out, "tcp "+l.Addr().String())
		}
		for _, c := range s.datagrams {
			out = append(out, "udp "+c.LocalAddr().String())
		}
	}
	return out
}
