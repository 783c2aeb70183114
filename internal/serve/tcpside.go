package serve

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
)

// A tcpSide is the common part of servers for other programs' TCP protocols:
// the listener, the accounts of clients, and what must be closed at the end.
type tcpSide struct {
	server   *Server
	protocol string
	tcp      *net.TCPListener
	wg       sync.WaitGroup

	mu     sync.Mutex
	closed bool
	open   map[io.Closer]bool // what close closes
}

// listenTCPSide listens on an address. Clients of these protocols cannot prove
// that they know a key, so it returns errNoKeys if there is one.
func listenTCPSide(s *Server, protocol, address, key string) (*tcpSide, error) {
	if key != "" {
		return nil, errNoKeys
	}
	a, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return nil, err
	}
	l, err := s.sockets.stream(a)
	if err != nil {
		return nil, err
	}
	return &tcpSide{server: s, protocol: protocol, tcp: l, open: map[io.Closer]bool{}}, nil
}

func (p *tcpSide) name() string { return p.protocol }

func (p *tcpSide) addr() netip.AddrPort { return p.tcp.Addr().(*net.TCPAddr).AddrPort() }

func (p *tcpSide) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.tcp.Close()
	for c := range p.open {
		c.Close()
	}
}

// accept handles each connection that is within the limits in a goroutine of its
// own, until close. nth is its place in the order in which they were accepted.
// Who has the connection last must end it.
func (p *tcpSide) accept(handle func(c *client, nth uint64)) error {
	defer p.wg.Wait()
	for nth := uint64(0); ; nth++ {
		c, err := p.tcp.AcceptTCP()
		if err != nil {
			if retry(err) {
				continue
			}
			if errors.Is(err, net.ErrClosed) {
				return nil
			}
			return err
		}
		k, err := p.server.client(c, p.protocol)
		if err != nil {
			continue
		}
		p.hold(k)
		p.wg.Go(func() { handle(k, nth) })
	}
}

// hold makes close close c too, until forget.
func (p *tcpSide) hold(c io.Closer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		c.Close()
	}
	p.open[c] = true
}

// end closes what was held.
func (p *tcpSide) end(c io.Closer) {
	p.forget(c)
	c.Close()
}

func (p *tcpSide) forget(c io.Closer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, c)
}

func (p *tcpSide) refuse(from net.Addr, err error) {
	p.server.log.Debug("refused", "protocol", p.protocol, "from", from, "reason", err)
}
