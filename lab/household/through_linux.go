package household

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"unbloat/guard"
	"unbloat/lab/scenario"
)

// What carries a call's packets besides UDP.
const (
	relayName    = "turn.lab"
	relayPort    = "443"
	relayHeader  = 4  // of ChannelData (RFC 8656): a channel and a length
	tunnelHeader = 32 // of WireGuard: its own header and the tag
	tunnelInner  = 28 // IP and UDP inside it
	// relayKept is how much of a call waits in its sender for TCP: what comes then
	// is left out, as libwebrtc's sockets do.
	relayKept = 16_000
	queued    = 512 // packets that wait for a reader
)

// A pipe is one end of what carries packets: what is written goes by send, what
// comes is read as from the other end's address.
type pipe struct {
	own, other net.Addr
	send       func(b []byte) error
	got        chan []byte
	gone       chan struct{}
	once       sync.Once
	closes     []io.Closer
}

func newPipe(own, other net.Addr, send func([]byte) error, closes ...io.Closer) *pipe {
	return &pipe{own: own, other: other, send: send, got: make(chan []byte, queued), gone: make(chan struct{}), closes: closes}
}

// came hands a packet to the reader; one that does not read loses it.
func (p *pipe) came(b []byte) {
	select {
	case p.got <- append([]byte(nil), b...):
	default:
	}
}

// ReadFrom implements net.PacketConn.
func (p *pipe) ReadFrom(b []byte) (int, net.Addr, error) {
	select {
	case packet := <-p.got:
		return copy(b, packet), p.other, nil
	case <-p.gone:
		return 0, nil, net.ErrClosed
	}
}

// WriteTo implements net.PacketConn. There is one address to write to.
func (p *pipe) WriteTo(b []byte, _ net.Addr) (int, error) {
	if err := p.send(b); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Close implements net.PacketConn.
func (p *pipe) Close() (err error) {
	p.once.Do(func() {
		close(p.gone)
		for _, c := range p.closes {
			err = errors.Join(err, c.Close())
		}
	})
	return err
}

// LocalAddr implements net.PacketConn.
func (p *pipe) LocalAddr() net.Addr { return p.own }

// SetDeadline, SetReadDeadline and SetWriteDeadline implement net.PacketConn; a pipe
// has none.
func (p *pipe) SetDeadline(time.Time) error      { return nil }
func (p *pipe) SetReadDeadline(time.Time) error  { return nil }
func (p *pipe) SetWriteDeadline(time.Time) error { return nil }

// relayed carries the packets between two addresses by TLS on TCP: as a relay of
// TURN does that is on the far side's machine.
func (c *calls) relayed(ctx context.Context, home, away *net.UDPConn) (atHome, atFar net.PacketConn, err error) {
	near, far := home.LocalAddr(), away.LocalAddr()
	home.Close()
	away.Close()
	now := time.Now()
	cert, err := guard.Certificate{Subject: pkix.Name{CommonName: relayName}, Names: []string{relayName}, From: now.Add(-time.Hour), To: now.Add(24 * time.Hour)}.Make()
	if err != nil {
		return nil, nil, err
	}
	leaf, err := x509.ParseCertificate(cert.Certificate[0])
	if err != nil {
		return nil, nil, fmt.Errorf("read the relay's certificate: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(leaf)
	addr := net.JoinHostPort(c.task.address(1), relayPort)
	var listener net.Listener
	if err := inside(c.task.Home.ServerNode, func() (err error) {
		listener, err = net.Listen("tcp4", addr)
		return err
	}); err != nil {
		return nil, nil, fmt.Errorf("listen for the relay: %w", err)
	}
	defer listener.Close()
	type accepted struct {
		conn net.Conn
		err  error
	}
	incoming := make(chan accepted, 1)
	go func() {
		conn, err := listener.Accept()
		incoming <- accepted{conn, err}
	}()
	client, err := (&net.Dialer{Timeout: connectLimit}).DialContext(ctx, "tcp4", addr)
	if err != nil {
		return nil, nil, fmt.Errorf("connect to the relay: %w", err)
	}
	server := <-incoming
	if server.err != nil {
		return nil, nil, fmt.Errorf("accept at the relay: %w", server.err)
	}
	for _, x := range []net.Conn{client, server.conn} {
		if err := notSentLow(x.(*net.TCPConn)); err != nil {
			return nil, nil, err
		}
	}
	a := tls.Client(client, &tls.Config{RootCAs: roots, ServerName: relayName})
	b := tls.Server(server.conn, &tls.Config{Certificates: []tls.Certificate{*cert}})
	shaken := make(chan error, 1)
	go func() { shaken <- b.HandshakeContext(ctx) }()
	if err := errors.Join(a.HandshakeContext(ctx), <-shaken); err != nil {
		return nil, nil, fmt.Errorf("TLS with the relay: %w", err)
	}
	one, two := newRelay(a, near, far), newRelay(b, far, near)
	return one, two, nil
}

// notSentLow has the kernel take little more than it can send, so that what waits,
// waits where it can be left out.
func notSentLow(c *net.TCPConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, relayKept)
	}); err != nil {
		return err
	}
	return failed
}

// newRelay makes one end of the relayed call.
func newRelay(conn net.Conn, own, other net.Addr) *pipe {
	waiting := make(chan []byte, relayKept/callMTU)
	p := newPipe(own, other, func(b []byte) error {
		framed := make([]byte, relayHeader, relayHeader+len(b))
		binary.BigEndian.PutUint16(framed, 0x4000) // the first channel
		binary.BigEndian.PutUint16(framed[2:], uint16(len(b)))
		select {
		case waiting <- append(framed, b...):
		default: // left out
		}
		return nil
	}, conn)
	go func() {
		for {
			select {
			case b := <-waiting:
				if _, err := conn.Write(b); err != nil {
					return // the call is closed
				}
			case <-p.gone:
				return
			}
		}
	}()
	go func() {
		r, head, body := bufio.NewReader(conn), make([]byte, relayHeader), make([]byte, 1<<16)
		for {
			if _, err := io.ReadFull(r, head); err != nil {
				return
			}
			n := binary.BigEndian.Uint16(head[2:])
			if _, err := io.ReadFull(r, body[:n]); err != nil {
				return
			}
			p.came(body[:n])
		}
	}()
	return p
}

// tunnelled carries the call and an upload by QUIC in one flow of UDP, with
// WireGuard's headers and without its secrets.
func (c *calls) tunnelled(ctx context.Context, home, away *net.UDPConn) (atHome, atFar net.PacketConn, err error) {
	near, far := home.LocalAddr().(*net.UDPAddr), away.LocalAddr().(*net.UDPAddr)
	calls, bulk := tunnel(home, far)
	farCalls, farBulk := tunnel(away, nil)
	for _, p := range []*pipe{calls, bulk} {
		p.own, p.other = near, far
	}
	for _, p := range []*pipe{farCalls, farBulk} {
		p.own, p.other = far, near
	}
	task := c.task
	task.Load = scenario.Load{Kind: scenario.QUICUpload, Flows: 1, Host: task.Load.Host}
	c.tunnel = &quicFlows{task: task, near: bulk, far: farBulk}
	return calls, farCalls, c.tunnel.prepare(ctx)
}

// tunnel splits one socket in two: for the call, and for the upload. The far end
// answers whoever spoke last, as WireGuard does.
func tunnel(conn *net.UDPConn, to *net.UDPAddr) (calls, bulk *pipe) {
	var mu sync.Mutex
	send := func(channel byte) func(b []byte) error {
		return func(b []byte) error {
			mu.Lock()
			defer mu.Unlock()
			if to == nil {
				return nil
			}
			packet := make([]byte, tunnelHeader+tunnelInner, tunnelHeader+tunnelInner+len(b))
			packet[0] = channel
			_, err := conn.WriteToUDP(append(packet, b...), to)
			return err
		}
	}
	calls, bulk = newPipe(nil, nil, send(0), conn), newPipe(nil, nil, send(1))
	go func() {
		for b := make([]byte, 1<<16); ; {
			n, from, err := conn.ReadFromUDP(b)
			if err != nil {
				return // the call is closed
			}
			if n < tunnelHeader+tunnelInner {
				continue
			}
			mu.Lock()
			to = from
			mu.Unlock()
			p := calls
			if b[0] == 1 {
				p = bulk
			}
			p.came(b[tunnelHeader+tunnelInner : n])
		}
	}()
	return calls, bulk
}
