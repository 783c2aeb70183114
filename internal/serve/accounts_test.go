package serve

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"unbloat/internal/measure/protocol/iperf3"
	"unbloat/testkit/await"
)

// dialFrom connects to a server from one of the loopback's addresses.
func dialFrom(t *testing.T, from string, to netip.AddrPort) *peer {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := d.Dial("tcp", to.String())
	if err != nil {
		t.Skip("SKIPPED: no second loopback address here: ", err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	return &peer{t, c.(*net.TCPConn), bufio.NewReader(c)}
}

// The connections of a test may come from several addresses: of carrier-grade
// NAT, of two providers. Each is charged to the address that it comes from, and
// given back to that one, however it ends.
func TestConnectionsFromTwoAddresses(t *testing.T) {
	const one, other, flows = "127.0.0.1", "127.0.0.2", 5
	s := startAll(t, Limits{AddressConns: 3 * flows, Handshake: 1500 * time.Millisecond}, "")
	native := func(lines ...string) {
		p := dialFrom(t, one, s.Addr())
		token := p.must(hello).Token
		for range flows {
			dialFrom(t, other, s.Addr()).must(fmt.Sprintf(`{"op":"data","token":%q,"group":1,"dir":"up"}`, token))
		}
		for _, l := range lines {
			p.must(l)
		}
		p.Close()
	}
	iperf := func(n byte, streams int) {
		c := dialFrom(t, one, s.Iperf3())
		cookie := iperf3.MakeCookie([iperf3.CookieSize - 1]byte{n, 1})
		say(t, c, cookie[:])
		state(t, c, iperf3.ParamExchange)
		frame, err := iperf3.Frame(iperf3.Params{TCP: true, Parallel: flows, Time: 1})
		if err != nil {
			t.Fatal(err)
		}
		say(t, c, frame)
		state(t, c, iperf3.CreateStreams)
		for range streams {
			say(t, dialFrom(t, other, s.Iperf3()), cookie[:])
		}
		if streams == flows {
			state(t, c, iperf3.TestStart)
			state(t, c, iperf3.TestRunning)
			c.Close()
		}
	}
	start, stop := fmt.Sprintf(`{"op":"start","group":1,"flows":%d}`, flows), `{"op":"stop","group":1}`
	for n := range 8 {
		native(start, stop)
		native(start) // ended by the end of its session
		native()      // never begun
		iperf(byte(n), flows)
		released(t, s)
	}
	iperf('x', flows-1) // never begins
	released(t, s)
}

func say(t *testing.T, p *peer, b []byte) {
	t.Helper()
	if _, err := p.Write(b); err != nil {
		t.Fatal(err)
	}
}

func state(t *testing.T, p *peer, want iperf3.State) {
	t.Helper()
	var b [1]byte
	if _, err := io.ReadFull(p.in, b[:]); err != nil || iperf3.State(b[0]) != want {
		t.Fatalf("%q instead of %q: %v", iperf3.State(b[0]), want, err)
	}
}

// released checks that nothing is charged to any address once all is over.
func released(t *testing.T, s *Server) {
	t.Helper()
	text := ""
	if !await.True(10*time.Second, func() bool {
		text = ""
		a := s.accounts
		a.mu.Lock()
		defer a.mu.Unlock()
		for from, c := range a.of {
			if c.conns != 0 || c.sessions != 0 || c.held != 0 {
				text += fmt.Sprintf("%s: %d connections, %d sessions, %v held\n", from, c.conns, c.sessions, c.held)
			}
		}
		if a.conns != 0 || a.sessions != 0 || a.held != 0 {
			text += fmt.Sprintf("all: %d connections, %d sessions, %v held\n", a.conns, a.sessions, a.held)
		}
		return text == ""
	}) {
		t.Fatalf("after all is over:\n%s", text)
	}
}
