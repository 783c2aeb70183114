package serve

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"unbloat/internal/measure/protocol/netperf"
	"unbloat/testkit/await"
	"unbloat/unit"
)

// netperfClient is a client of our own.
type netperfClient struct {
	t *testing.T
	*net.TCPConn
}

// netperfServed runs a server for netperf's clients only.
func netperfServed(t *testing.T, o Options) *Server {
	t.Helper()
	o.Listen, o.Netperf = "127.0.0.1:0", "127.0.0.1:0"
	s, err := Listen(o)
	if err != nil {
		t.Fatal(err)
	}
	serveUntilEnd(t, s)
	return s
}

func dialNetperf(t *testing.T, s *Server) *netperfClient {
	t.Helper()
	c, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(s.Netperf()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return &netperfClient{t, c}
}

func (c *netperfClient) read() []byte {
	c.t.Helper()
	b := make([]byte, netperf.MessageSize)
	if _, err := io.ReadFull(c, b); err != nil {
		c.t.Fatal(err)
	}
	return b
}

func (c *netperfClient) ask(r netperf.Request) netperf.Setup {
	c.t.Helper()
	if _, err := c.Write(r.Message()); err != nil {
		c.t.Fatal(err)
	}
	s, err := netperf.ParseSetup(c.read())
	if err != nil {
		c.t.Fatal(err)
	}
	return s
}

// begin requests a test and opens its data connection.
func (c *netperfClient) begin(r netperf.Request) net.Conn {
	c.t.Helper()
	s := c.ask(r)
	if s.Errno != 0 {
		c.t.Fatalf("refused with %d", s.Errno)
	}
	network := "tcp"
	if r.Test == netperf.UDPRR {
		network = "udp"
	}
	data, err := net.Dial(network, netperfPort(c.TCPConn, s.Port))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { data.Close() })
	_ = data.SetDeadline(time.Now().Add(20 * time.Second))
	return data
}

// netperfPort returns the server's address with another port.
func netperfPort(c *net.TCPConn, port int) string {
	a := c.RemoteAddr().(*net.TCPAddr)
	return (&net.TCPAddr{IP: a.IP, Port: port}).String()
}

func (c *netperfClient) results() netperf.Results {
	c.t.Helper()
	r, err := netperf.ParseResults(c.read())
	if err != nil {
		c.t.Fatal(err)
	}
	return r
}

// All tests, one after the other on one control connection: the server counts
// what the client moved, and charges it.
func TestNetperf(t *testing.T) {
	s := netperfServed(t, Options{})
	c := dialNetperf(t, s)

	data := c.begin(netperf.Request{Test: netperf.TCPStream, Duration: time.Second, TOS: 0x28})
	const up = 3_000_001
	if _, err := data.Write(make([]byte, up)); err != nil {
		t.Fatal(err)
	}
	_ = data.(*net.TCPConn).CloseWrite()
	if n, err := io.Copy(io.Discard, data); n != 0 || err != nil {
		t.Errorf("the server's side ends with %d bytes, %v", n, err)
	}
	if r := c.results(); r.Received != up || r.Sent != 0 || r.Elapsed <= 0 || r.Elapsed > 10*time.Second {
		t.Errorf("TCP_STREAM: %+v", r)
	}

	data = c.begin(netperf.Request{Test: netperf.TCPMaerts, Duration: time.Second, TOS: -1})
	began := time.Now()
	down, err := io.Copy(io.Discard, data)
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 900*time.Millisecond || took > 4*time.Second {
		t.Errorf("TCP_MAERTS of 1 s took %v", took)
	}
	data.Close()
	if r := c.results(); r.Sent < down || r.Sent > down+8<<20 || down < 1<<20 {
		t.Errorf("TCP_MAERTS: %d bytes came of %+v", down, r)
	}

	data = c.begin(netperf.Request{Test: netperf.TCPMaerts, Amount: 1_234_567, TOS: -1})
	if n, err := io.Copy(io.Discard, data); n != 1_234_567 || err != nil {
		t.Errorf("TCP_MAERTS of an amount: %d bytes, %v", n, err)
	}
	data.Close()
	if r := c.results(); r.Sent != 1_234_567 {
		t.Errorf("TCP_MAERTS of an amount: %+v", r)
	}

	data = c.begin(netperf.Request{Test: netperf.TCPRR, Duration: time.Second, RequestSize: 100, ResponseSize: 200_000, TOS: -1})
	for range 5 {
		if _, err := data.Write(make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.CopyN(io.Discard, data, 200_000); err != nil {
			t.Fatal(err)
		}
	}
	_ = data.(*net.TCPConn).CloseWrite()
	if r := c.results(); r.Transactions != 5 || r.Received != 500 || r.Sent != 1_000_000 {
		t.Errorf("TCP_RR: %+v", r)
	}

	data = c.begin(netperf.Request{Test: netperf.UDPRR, Duration: time.Second, RequestSize: 20, ResponseSize: 10, TOS: 0xb8})
	b := make([]byte, 100)
	for range 5 {
		if _, err := data.Write(b[:20]); err != nil {
			t.Fatal(err)
		}
		if n, err := data.Read(b); n != 10 || err != nil {
			t.Fatalf("a response of %d bytes, %v", n, err)
		}
	}
	if _, err := data.Write(nil); err != nil {
		t.Fatal(err)
	}
	if r := c.results(); r.Transactions != 5 || r.Received != 100 || r.Sent != 50 || r.Elapsed > 900*time.Millisecond {
		t.Errorf("UDP_RR: %+v", r)
	}

	_ = c.CloseWrite()
	if n, err := io.Copy(io.Discard, c); n != 0 || err != nil {
		t.Errorf("the control connection ends with %d bytes, %v", n, err)
	}
	s.accounts.mu.Lock()
	defer s.accounts.mu.Unlock()
	least := int64(up + 1_234_567 + 1_000_500 + 5*(20+10+2*datagramOverhead) + int(down))
	if s.accounts.total < least || s.accounts.total > least+16<<20 {
		t.Errorf("%d bytes are booked, of %d", s.accounts.total, least)
	}
	if s.accounts.served[protocolNetperf] != 1 || s.accounts.sessions != 0 || s.accounts.conns != 0 {
		t.Errorf("%d sessions, %d now, %d connections now", s.accounts.served[protocolNetperf], s.accounts.sessions, s.accounts.conns)
	}
}

// Two clients at once each get their own test.
func TestNetperfAtOnce(t *testing.T) {
	s := netperfServed(t, Options{NetperfData: freeRange(t, 4)})
	a, b := dialNetperf(t, s), dialNetperf(t, s)
	r := netperf.Request{Test: netperf.TCPStream, Duration: time.Second, TOS: -1}
	da, db := a.begin(r), b.begin(r)
	for i, d := range []net.Conn{da, db} {
		_, _ = d.Write(make([]byte, 1000*(i+1)))
		_ = d.(*net.TCPConn).CloseWrite()
	}
	if x, y := a.results().Received, b.results().Received; x != 1000 || y != 2000 {
		t.Errorf("%d and %d bytes", x, y)
	}
}

// freeRange returns n ports that seem to be unused.
func freeRange(t *testing.T, n uint16) PortRange {
	t.Helper()
	for first := uint16(20000); first < 60000; first += 97 {
		free := true
		for p := first; p < first+n && free; p++ {
			l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: int(p)})
			if free = err == nil; free {
				l.Close()
			}
		}
		if free {
			return PortRange{first, first + n - 1}
		}
	}
	t.Fatal("no ports are free")
	return PortRange{}
}

// Data connections use the ports of the range. If none is free the client is
// told that the server is busy.
func TestNetperfPorts(t *testing.T) {
	ports := freeRange(t, 2)
	s := netperfServed(t, Options{NetperfData: ports})
	r := netperf.Request{Test: netperf.TCPStream, Duration: time.Second, TOS: -1}
	seen := map[int]bool{}
	for range 2 {
		seen[dialNetperf(t, s).ask(r).Port] = true
	}
	if !seen[int(ports.First)] || !seen[int(ports.Last)] {
		t.Errorf("ports %v of %v", seen, ports)
	}
	if got := dialNetperf(t, s).ask(r); got.Errno != netperf.ErrnoBusy {
		t.Errorf("without a free port: %+v", got)
	}
	for text, want := range map[string]PortRange{"": {}, "7": {7, 7}, "12866-13121": {12866, 13121}} {
		if got, err := ParsePortRange(text); err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"x", "-", "0", "5-4", "1-70000", "1-2-3"} {
		if _, err := ParsePortRange(text); err == nil {
			t.Errorf("%q is taken for ports", text)
		}
	}
}

// With a shared key netperf is not served, since its clients cannot send one.
func TestNetperfKey(t *testing.T) {
	if _, err := Listen(Options{Listen: "127.0.0.1:0", Netperf: "127.0.0.1:0", Key: "k"}); !errors.Is(err, errNoKeys) {
		t.Errorf("%v", err)
	}
}

// On a test's port only the address that requested the test is accepted.
func TestNetperfStrangers(t *testing.T) {
	o := Options{Listen: "127.0.0.1:0", Netperf: "0.0.0.0:0"}
	s, err := Listen(o)
	if err != nil {
		t.Fatal(err)
	}
	serveUntilEnd(t, s)
	from := func(network string, port int) net.Conn {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 99)}}
		if network == "udp" {
			d.LocalAddr = &net.UDPAddr{IP: net.IPv4(127, 0, 0, 99)}
		}
		c, err := d.Dial(network, (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}).String())
		if err != nil {
			t.Skipf("SKIPPED: a second address of the loopback: %v", err)
		}
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Now().Add(300 * time.Millisecond))
		return c
	}
	control := func() *netperfClient {
		c, err := net.Dial("tcp", (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: int(s.Netperf().Port())}).String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		return &netperfClient{t, c.(*net.TCPConn)}
	}
	c := control()
	port := c.ask(netperf.Request{Test: netperf.TCPMaerts, Duration: time.Second, TOS: -1}).Port
	if n, err := from("tcp", port).Read(make([]byte, 1)); n != 0 || err == nil {
		t.Error("a stranger is sent the data of a test")
	}
	c = control()
	port = c.ask(netperf.Request{Test: netperf.UDPRR, Duration: time.Second, RequestSize: 1, ResponseSize: 1, TOS: -1}).Port
	d := from("udp", port)
	_, _ = d.Write([]byte{1})
	if n, err := d.Read(make([]byte, 9)); n != 0 || err == nil {
		t.Error("a stranger's datagram is answered")
	}
	_ = d.SetDeadline(time.Now().Add(10 * time.Second))
	_, _ = d.Write(nil) // and the test goes on
	own, err := net.Dial("udp", (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}).String())
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	_ = own.SetDeadline(time.Now().Add(10 * time.Second))
	_, _ = own.Write([]byte{1})
	if n, err := own.Read(make([]byte, 9)); n != 1 || err != nil {
		t.Errorf("the client's datagram: %d bytes, %v", n, err)
	}
	if n := refused(s, protocolNetperf, "stranger"); n < 3 {
		t.Errorf("%d strangers are counted", n)
	}
}

// Slow, truncated and hostile control connections affect no other, and are
// counted.
func TestNetperfHostile(t *testing.T) {
	log := &notes{}
	s := netperfServed(t, Options{Limits: Limits{Handshake: 300 * time.Millisecond, Idle: 300 * time.Millisecond}, Log: slog.New(slog.NewTextHandler(log, nil))})
	at := s.Netperf().String()
	stream := string(netperf.Request{Test: netperf.TCPStream, Duration: time.Second, TOS: -1}.Message())
	rr := string(netperf.Request{Test: netperf.UDPRR, Duration: time.Second, RequestSize: 1, ResponseSize: 1, TOS: -1}.Message())
	long := string(netperf.Request{Test: netperf.UDPRR, Duration: time.Second, RequestSize: 1, ResponseSize: 2, TOS: -1}.Message())
	for _, c := range []struct {
		name, say    string
		drip, hangUp bool
		reason       string
	}{
		{"silent", "", false, false, "too slow"},
		{"dripping", stream[:200], true, false, "too slow"},
		{"half a request", stream[:300], false, true, "truncated"},
		{"rubbish", strings.Repeat("x", netperf.MessageSize), false, false, "malformed"},
		{"HTTP", "GET / HTTP/1.1\r\n" + strings.Repeat("x", netperf.MessageSize), false, false, "malformed"},
		{"an older test", "\x00\x00\x00\x0d" + stream[4:], false, false, "not supported"},
		{"longer responses", long, false, false, "not supported"},
		{"no data connection", stream, false, false, "too slow"},
		{"gone before its data", stream, false, true, "truncated"},
		{"gone during its datagrams", rr, false, true, "truncated"},
		{"talks during a test", stream + stream, false, false, "malformed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := refused(s, protocolNetperf, c.reason)
			noise(t, at, c.say, c.drip, c.hangUp)
			if !await.True(20*time.Second, func() bool { return refused(s, protocolNetperf, c.reason) != before }) {
				t.Fatalf("not counted as %q: %v\n%s", c.reason, s.refusals.counts, log)
			}
		})
	}
}

// A client that disconnects during a test ends it, with every kind of test.
func TestNetperfCutOff(t *testing.T) {
	s := netperfServed(t, Options{})
	for _, test := range []netperf.Test{netperf.TCPStream, netperf.TCPMaerts, netperf.TCPRR, netperf.UDPRR} {
		for _, amount := range []int64{0, 1 << 30} {
			r := netperf.Request{Test: test, Duration: time.Hour, RequestSize: 1, ResponseSize: 1, TOS: -1}
			if amount > 0 {
				r.Duration, r.Amount = 0, amount
			}
			c := dialNetperf(t, s)
			data := c.begin(r)
			_, _ = data.Write([]byte{0})
			if test != netperf.TCPStream {
				_, _ = data.Read(make([]byte, 1000))
			}
			c.Close() // the data connection stays open
			if !await.True(10*time.Second, func() bool { return sessionsNow(s) == 0 }) {
				t.Fatalf("%v goes on without its client", test)
			}
			data.Close()
		}
	}
}

func sessionsNow(s *Server) int {
	s.accounts.mu.Lock()
	defer s.accounts.mu.Unlock()
	return s.accounts.sessions
}

// The limits of an address's bytes and sessions, and of a test's duration,
// apply to netperf's clients too.
func TestNetperfLimits(t *testing.T) {
	s := netperfServed(t, Options{Limits: Limits{AddressBytes: 2 * unit.MB, PerAddress: 1, Load: time.Second}})
	request := netperf.Request{Test: netperf.TCPRR, Duration: time.Hour, RequestSize: 1000, ResponseSize: 100_000, TOS: -1}
	c := dialNetperf(t, s)
	data := c.begin(request)
	if got := dialNetperf(t, s).ask(request); got.Errno != netperf.ErrnoBusy {
		t.Errorf("a second session: %+v", got)
	}
	moved := 0
	for ; moved < 100_000_000; moved += 101_000 {
		if _, err := data.Write(make([]byte, 1000)); err != nil {
			break
		}
		if _, err := io.CopyN(io.Discard, data, 100_000); err != nil {
			break
		}
	}
	if moved < 1_500_000 || moved > 3_000_000 {
		t.Errorf("%d bytes within 2 MB", moved)
	}
	if n, err := io.Copy(io.Discard, c); n != 0 || err != nil && !isCutOff(err) {
		t.Errorf("the control connection then: %d bytes, %v", n, err)
	}
	if n := refused(s, protocolNetperf, "budget during a session"); n != 1 {
		t.Errorf("%d are counted", n)
	}
	if got := dialNetperf(t, s).ask(request); got.Errno != netperf.ErrnoBusy {
		t.Errorf("without bytes left: %+v", got)
	}

	s = netperfServed(t, Options{Limits: Limits{Load: time.Second}})
	c = dialNetperf(t, s)
	data = c.begin(netperf.Request{Test: netperf.TCPMaerts, Duration: time.Hour, TOS: -1})
	began := time.Now()
	if _, err := io.Copy(io.Discard, data); err != nil || time.Since(began) > 6*time.Second {
		t.Errorf("a load of an hour lasted %v: %v", time.Since(began), err)
	}
}

// FuzzNetperf: control connections with any content end, and leave no session.
func FuzzNetperf(f *testing.F) {
	s, err := Listen(Options{Listen: "127.0.0.1:0", Netperf: "127.0.0.1:0", Limits: Limits{Handshake: 20 * time.Millisecond, Idle: 20 * time.Millisecond}})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(s.close)
	p := beside[*netperfServer](f, s)
	for _, test := range []netperf.Test{netperf.TCPStream, netperf.TCPMaerts, netperf.TCPRR, netperf.UDPRR} {
		b := netperf.Request{Test: test, Duration: time.Second, RequestSize: 1, ResponseSize: 1, TOS: -1}.Message()
		f.Add(b)
		f.Add(bytes.Repeat(b, 2))
	}
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { l.Close() })
	f.Fuzz(func(t *testing.T, b []byte) {
		client, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		c, err := l.AcceptTCP()
		if err != nil {
			t.Fatal(err)
		}
		k, err := s.client(c, protocolNetperf)
		if err != nil {
			t.Fatal(err)
		}
		p.hold(k)
		_, _ = client.Write(b)
		client.Close()
		p.control(k) // must return
		if n := sessionsNow(s); n != 0 {
			t.Fatalf("%d sessions are left", n)
		}
	})
}
