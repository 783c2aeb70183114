package serve

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"unbloat/guard"
	"unbloat/internal/measure/probe"
	"unbloat/internal/measure/protocol/iperf3"
	"unbloat/internal/measure/protocol/irtt"
	"unbloat/testkit/await"
	"unbloat/unit"
)

// notes is a log that tests can read.
type notes struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (n *notes) Write(b []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.b.Write(b)
}

func (n *notes) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.b.String()
}

// logged runs all servers, and returns their log.
func logged(t *testing.T, l Limits) (*Server, *notes) {
	t.Helper()
	const any = "127.0.0.1:0"
	cert, err := OwnCertificate(t.TempDir(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	log := &notes{}
	s, err := Listen(Options{Listen: any, Irtt: any, Iperf3: any, Web: any, Metrics: any, Cert: cert, Limits: l, Log: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return s, log
}

// Slow, half-open, truncated, oversized and hostile connections affect no
// other, and the reason of each is in the log and in the metrics.
func TestHostileConnections(t *testing.T) {
	await.NotShort(t)
	s, log := logged(t, Limits{Handshake: 300 * time.Millisecond, Idle: 300 * time.Millisecond})
	cookie := iperf3.MakeCookie([iperf3.CookieSize - 1]byte{1, 2, 3})
	other := func(n byte) []byte {
		c := iperf3.MakeCookie([iperf3.CookieSize - 1]byte{n})
		return c[:]
	}
	native, iperf, web := s.Addr().String(), s.Iperf3().String(), s.Web().String()
	params := `{"tcp":true,"parallel":2,"time":1}`
	for _, c := range []struct {
		name, to string
		say      string
		drip     bool // one byte at a time, endlessly
		hangUp   bool // after sending
		protocol string
		reason   string // in the metrics
	}{
		{"native, silent", native, "", false, false, "unbloat", "handshake too slow"},
		{"native, dripping", native, `{"op":"hello","versions":[1],"agent":"` + strings.Repeat("x", 200), true, false, "unbloat", "handshake too slow"},
		{"native, truncated", native, `{"op":`, false, true, "unbloat", "truncated"},
		{"native, oversized", native, strings.Repeat("x", 5000), false, false, "unbloat", "malformed"},
		{"native, no token", native, `{"op":"data","token":"00","dir":"up"}` + "\n", false, false, "unbloat", "unknown token"},
		{"native, a session that does nothing", native, hello + "\n", false, false, "unbloat", "idle"},
		{"native, rubbish in a session", native, hello + "\nrubbish\n", false, false, "unbloat", "malformed"},
		{"iperf3, silent", iperf, "", false, false, "iperf3", "too slow"},
		{"iperf3, half a cookie", iperf, string(cookie[:20]), false, false, "iperf3", "too slow"},
		{"iperf3, dripping", iperf, strings.Repeat("a", 36), true, false, "iperf3", "too slow"},
		{"iperf3, truncated", iperf, string(cookie[:20]), false, true, "iperf3", "truncated"},
		{"iperf3, no cookie", iperf, strings.Repeat("\x00", 37), false, false, "iperf3", "malformed"},
		{"iperf3, oversized parameters", iperf, string(other(2)) + "\xff\xff\xff\xff", false, false, "iperf3", "malformed"},
		{"iperf3, no JSON", iperf, string(other(3)) + "\x00\x00\x00\x01{", false, false, "iperf3", "malformed"},
		{"iperf3, parameters cut off", iperf, string(other(4)) + "\x00\x00\x00\x09{", false, true, "iperf3", "truncated"},
		{"iperf3, no streams", iperf, string(other(5)) + "\x00\x00\x00" + string(rune(len(params))) + params, false, false, "iperf3", "too slow"},
		{"web, silent", web, "", false, false, "web", "silent"},
		{"web, half a request", web, "GET / HT", false, false, "web", "no request"},
		{"web, dripping", web, "GET /garbage HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 200), true, false, "web", "no request"},
		{"web, truncated", web, "GET / HTTP/1.1\r\nHo", false, true, "web", "no request"},
		{"web, half a handshake", web, "\x16\x03\x01", false, false, "web", "no request"},
		{"web, endless head", web, "GET / HTTP/1.1\r\nX: " + strings.Repeat("x", 60000), false, false, "web", "no request"},
		{"web, a body cut off", web, "POST /__up HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nabc", false, true, "web", "truncated"},
		{"web, no number of bytes", web, "GET /__down?bytes=-5 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", false, false, "web", "malformed"},
		{"web, no WebSocket", web, "GET /ndt/v7/download HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", false, false, "web", "malformed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := refused(s, c.protocol, c.reason)
			noise(t, c.to, c.say, c.drip, c.hangUp)
			if !await.True(20*time.Second, func() bool { return refused(s, c.protocol, c.reason) > before }) {
				t.Fatalf("not counted as %q:\n%s\n%s", c.reason, scrape(t, s), log)
			}
		})
	}
	dial(t, s).must(hello) // the server still works
	s.refusals.sum(s.log)
	for _, want := range []string{"handshake too slow", "malformed", "truncated", "silent", "no request"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no %q in the log:\n%s", want, log)
		}
	}
}

// refused returns the metric of one protocol and reason.
func refused(s *Server, protocol, reason string) int64 {
	s.refusals.mu.Lock()
	defer s.refusals.mu.Unlock()
	return s.refusals.counts[refusedKind{protocol, reason}]
}

// noise sends text to a server and waits until the server closes the
// connection.
func noise(t *testing.T, to, say string, drip, hangUp bool) {
	t.Helper()
	conn, err := net.Dial("tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if !drip {
		_, _ = io.WriteString(conn, say) // the server may have closed it already
	} else {
		go func() {
			for i := range len(say) {
				if _, err := io.WriteString(conn, say[i:i+1]); err != nil {
					return // the server or the test has closed it
				}
				time.Sleep(20 * time.Millisecond)
			}
		}()
	}
	if hangUp {
		return
	}
	_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.Copy(io.Discard, conn); err != nil && os.IsTimeout(err) {
		t.Error("still open")
	}
}

// One address cannot take all connections, even if it sends little on them:
// another one still gets in.
func TestConnectionsOfAnAddress(t *testing.T) {
	const most = 20
	s, _ := logged(t, Limits{AddressConns: most})
	var held []net.Conn
	for i, to := range []string{s.Addr().String(), s.Iperf3().String(), s.Web().String()} {
		for range most / 2 {
			c, err := net.Dial("tcp", to)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			held = append(held, c)
		}
		if !await.True(20*time.Second, func() bool { return connections(s) >= min(i+1, 2)*most/2 }) {
			t.Fatalf("%d connections are counted", connections(s))
		}
	}
	awaitMetric(t, s, fmt.Sprintf(`unbloat_refused_total{protocol="web",reason="connections of address"} %d`, most/2))
	if _, err := http.Get("http://" + s.Web().String() + "/empty"); err == nil {
		t.Error("one more is let in")
	}
	from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 3)}}
	if c, err := from.Dial("tcp", s.Addr().String()); err != nil {
		t.Log("SKIPPED: no second loopback address here: ", err)
	} else {
		defer c.Close()
		p := &peer{t, c.(*net.TCPConn), bufio.NewReader(c)}
		p.must(hello)
	}
	for _, c := range held {
		c.Close()
	}
	await.Until(t, 10*time.Second, "all connections but the second address's to be off the books", func() bool {
		return connections(s) <= 1
	})
	await.Until(t, 10*time.Second, "a freed place to be given", func() bool {
		r, err := http.Get("http://" + s.Web().String() + "/empty")
		if err == nil {
			r.Body.Close()
		}
		return err == nil
	})
}

// connections returns the number of connections in the accounts.
func connections(s *Server) int {
	s.accounts.mu.Lock()
	defer s.accounts.mu.Unlock()
	return s.accounts.conns
}

// An IPv6 site is one customer, whichever of its addresses it uses.
func TestCustomer(t *testing.T) {
	for _, c := range []struct{ a, b string }{
		{"2001:db8:1:2::1", "2001:db8:1:2:ffff::9"}, {"fe80::1%eth0", "fe80::2%eth1"}, {"192.0.2.1", "::ffff:192.0.2.1"},
	} {
		if a, b := guard.Charged(netip.MustParseAddr(c.a)), guard.Charged(netip.MustParseAddr(c.b)); a != b {
			t.Errorf("%s is %s, %s is %s", c.a, a, c.b, b)
		}
	}
	if guard.Charged(netip.MustParseAddr("2001:db8:1:2::1")) == guard.Charged(netip.MustParseAddr("2001:db8:1:3::1")) || guard.Charged(netip.MustParseAddr("192.0.2.1")) == guard.Charged(netip.MustParseAddr("192.0.2.2")) {
		t.Error("two sites are one")
	}
}

// The default limit of bytes per hour protects a line, so it does not apply to
// the loopback. A limit that was set explicitly applies to all.
func TestOwnMachineMovesMore(t *testing.T) {
	for _, c := range []struct {
		limit unit.Size
		from  string
		spent bool
	}{
		{0, "127.0.0.1", false}, {0, "::1", false}, {0, "::ffff:127.0.0.2", false}, {0, "192.0.2.1", true}, {0, "2001:db8::1", true},
		{1000, "127.0.0.1", true}, {1000, "::1", true}, {1000, "192.0.2.1", true},
	} {
		t.Run(fmt.Sprintf("%v of %s", c.limit, c.from), func(t *testing.T) {
			s := start(t, Limits{AddressBytes: c.limit})
			from := netip.MustParseAddr(c.from)
			if may := s.spend(from, 200*unit.GB); may == c.spent {
				t.Errorf("may go on: %v", may)
			}
			if _, err := s.admit(from, protocolNative); (err != nil) != c.spent {
				t.Errorf("another session: %v", err)
			}
		})
	}
}

// Datagrams count: a downstream stream ends when the budget is used up, and so
// do echoes.
func TestDatagramBudget(t *testing.T) {
	s := start(t, Limits{AddressBytes: 300_000})
	p := dial(t, s)
	p.must(hello)
	st := p.must(`{"op":"udp","dir":"down","interval_ns":100000,"size":1400,"limit_ns":60000000000}`)
	token, err := probe.ParseToken(st.StreamToken)
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(s.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	b := make([]byte, 1400)
	probe.PutHeader(b, probe.Header{Kind: probe.KindListen, Token: token})
	if _, err := c.Write(b); err != nil {
		t.Fatal(err)
	}
	await.Until(t, 20*time.Second, "the stream to end", func() bool { return refused(s, protocolNative, "budget during a session") > 0 })
	if rep := p.must(fmt.Sprintf(`{"op":"end","stream":%d}`, st.Stream)); rep.UDP.Sent < 200 || rep.UDP.Sent > 300 {
		t.Errorf("%d datagrams of 1400 bytes within 300 kB", rep.UDP.Sent)
	}
	if r, ok := dial(t, s).ask(hello); !ok || !strings.Contains(r.Error, "limit") {
		t.Errorf("another session: %v %q", ok, r.Error)
	}
}

// A load is charged while it runs: flows of several sessions share an address's
// budget.
func TestBudgetIsShared(t *testing.T) {
	const most = 64 << 20
	s := start(t, Limits{AddressBytes: most})
	var all sync.WaitGroup
	var mu sync.Mutex
	total := int64(0)
	var sessions, flows []*peer
	for range 4 {
		p := dial(t, s)
		d := dial(t, s)
		d.must(fmt.Sprintf(`{"op":"data","token":%q,"group":1,"dir":"down"}`, p.must(hello).Token))
		sessions, flows = append(sessions, p), append(flows, d)
	}
	for i, d := range flows {
		// The first may have used up the budget before the last begins.
		if r, ok := sessions[i].ask(`{"op":"start","group":1,"flows":1}`); !ok || r.Error != "" && !strings.Contains(r.Error, "limit") {
			t.Errorf("flow %d: answered %v, error %q", i, ok, r.Error)
			continue
		} else if r.Error != "" {
			continue
		}
		all.Go(func() {
			_ = d.SetReadDeadline(time.Now().Add(30 * time.Second))
			buf := make([]byte, 1<<20)
			for {
				n, err := d.in.Read(buf)
				mu.Lock()
				total += int64(n)
				mu.Unlock()
				if err != nil {
					if os.IsTimeout(err) {
						t.Error("the load does not end")
					}
					return
				}
			}
		})
	}
	all.Wait()
	if total < most/2 || total > 3*most { // each flow is charged every 16 MiB
		t.Errorf("%d bytes moved with a budget of %d", total, most)
	}
}

// Forged addresses cannot fill the sessions: requests to open replace each
// other.
func TestIrttForgedOpens(t *testing.T) {
	s, _ := logged(t, Limits{})
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(s.Irtt()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	p := irtt.Params{Version: 1, Duration: time.Minute, Interval: time.Second, Stats: 3, StampAt: 3, Clock: 3, Length: 100}
	buf := make([]byte, 2000)
	granted := 0
	for end := time.Now().Add(30 * time.Second); granted < irttPending+10; {
		if time.Now().After(end) {
			t.Fatalf("%d requests were granted", granted)
		}
		for range 2 { // the second request pays for the answer
			if _, err := c.Write(irtt.OpenRequest(p, nil)); err != nil {
				t.Fatal(err)
			}
		}
		_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		if _, err := c.Read(buf); err == nil {
			granted++
		}
	}
	awaitMetric(t, s, "unbloat_sessions 0")
	if n := refused(s, protocolIrtt, "no probe"); n < 10 {
		t.Errorf("%d were pushed out", n)
	}
}

// A TLS handshake that never ends in a request is closed, and counted.
func TestSlowTLS(t *testing.T) {
	s, _ := logged(t, Limits{Handshake: 300 * time.Millisecond})
	c, err := tls.Dial("tcp", s.Web().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.Copy(io.Discard, c); err != nil && os.IsTimeout(err) {
		t.Error("still open")
	}
	awaitMetric(t, s, `unbloat_refused_total{protocol="web",reason="no request"} 1`)
}
