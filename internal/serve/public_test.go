package serve

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"unbloat/guard"
	"unbloat/internal/measure/netio"
	"unbloat/internal/measure/probe"
	"unbloat/internal/measure/protocol/iperf3"
	"unbloat/internal/measure/protocol/irtt"
	"unbloat/testkit/await"
)

// startAll runs all servers until the test ends.
func startAll(t *testing.T, l Limits, key string) *Server {
	t.Helper()
	const any = "127.0.0.1:0"
	cert, err := OwnCertificate(t.TempDir(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	page := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "page ", r.URL.Path) })
	o := Options{Listen: any, Irtt: any, Iperf3: any, Web: any, Metrics: any, Page: page, Cert: cert, Key: key, Limits: l}
	if key != "" {
		o.Iperf3 = ""
	}
	s, err := Listen(o)
	if err != nil {
		t.Fatal(err)
	}
	serveUntilEnd(t, s)
	return s
}

// metrics fetches /metrics.
func scrape(t *testing.T, s *Server) string {
	t.Helper()
	r, err := http.Get("http://" + s.Metrics().String() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// awaitMetric waits until the metrics contain a line.
func awaitMetric(t *testing.T, s *Server, line string) {
	t.Helper()
	var text string
	if !await.True(10*time.Second, func() bool { text = scrape(t, s); return strings.Contains(text, line+"\n") }) {
		t.Errorf("no %q in:\n%s", line, text)
	}
}

// A thousand sessions at once, each with a stream of probes, all answered.
func TestThousandSessions(t *testing.T) {
	const n = 1000
	s := start(t, Limits{Sessions: n, PerAddress: n, Conns: 2 * n, AddressConns: 2 * n})
	udp, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(s.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	tokens := map[uint64]bool{}
	for i := range n {
		p := dial(t, s)
		p.must(hello)
		token, err := probe.ParseToken(p.must(`{"op":"udp","dir":"echo"}`).StreamToken)
		if err != nil || tokens[token] {
			t.Fatalf("session %d: %v, token %x", i, err, token)
		}
		tokens[token] = true
	}
	if r, ok := dial(t, s).ask(hello); !ok || !strings.Contains(r.Error, "busy") {
		t.Errorf("one more: %v %q", ok, r.Error)
	}
	b := make([]byte, 64)
	for token := range tokens {
		probe.PutHeader(b, probe.Header{Kind: probe.KindEcho, Token: token, Seq: 7})
		if _, err := udp.Write(b); err != nil {
			t.Fatal(err)
		}
		_ = udp.SetReadDeadline(time.Now().Add(20 * time.Second))
		if _, err := udp.Read(b); err != nil {
			t.Fatal(err)
		}
		if h, err := probe.ParseHeader(b); err != nil || h.Token != token {
			t.Fatalf("%+v %v", h, err)
		}
	}
}

// Without the key no session is opened, with any protocol.
func TestSharedKey(t *testing.T) {
	s := startAll(t, Limits{}, "secret")
	for _, auth := range []string{"", "00", probe.Authenticate("other", "x")} {
		p := dial(t, s)
		r := p.must(hello)
		if r.Challenge == "" || r.Token != "" {
			t.Fatalf("%+v", r)
		}
		if r, ok := p.ask(fmt.Sprintf(`{"op":"hello","versions":[1],"auth":%q}`, auth)); !ok || !strings.Contains(r.Error, "key") {
			t.Errorf("%q: %v %q", auth, ok, r.Error)
		}
	}
	p := dial(t, s)
	r := p.must(hello)
	if r = p.must(fmt.Sprintf(`{"op":"hello","versions":[1],"auth":%q}`, probe.Authenticate("secret", r.Challenge))); r.Token == "" {
		t.Errorf("%+v", r)
	}
	awaitMetric(t, s, `unbloat_refused_total{protocol="unbloat",reason="key"} 3`)
}

// irtt's answers have no more bytes than the requests, for any sender. Hostile
// datagrams get no answer and are counted.
func TestIrttNoAmplification(t *testing.T) {
	s := startAll(t, Limits{PerAddress: 3}, "")
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(s.Irtt()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	sent, got := 0, 0
	buf := make([]byte, 2000)
	opened := func(b []byte) (uint64, bool) {
		id, _, f, err := irtt.ParseOpenReply(b, nil)
		return id, err == nil && !f.Has(irtt.FlagClose)
	}
	hear := func(b []byte, wait time.Duration) []byte { // returns the answer to b; nil after wait
		if _, err := c.Write(b); err != nil {
			t.Fatal(err)
		}
		sent += len(b)
		_ = c.SetReadDeadline(time.Now().Add(wait))
		for {
			n, err := c.Read(buf)
			if err != nil {
				return nil
			}
			if got += n; got > sent {
				t.Fatalf("%d bytes out for %d bytes in", got, sent)
			}
			if _, late := opened(buf[:n]); !late || len(b) > 3 && b[3]&1 != 0 {
				return buf[:n]
			} // otherwise it is the answer to an earlier request to open
		}
	}
	say := func(b []byte) []byte { return hear(b, 50*time.Millisecond) }
	for _, b := range [][]byte{{}, []byte("GET /"), {0x14, 0xa7, 0x5b}, {0x14, 0xa7, 0x5b, 0x80}, {0x14, 0xa7, 0x5b, 1, 0xff}, make([]byte, 1400)} {
		if r := say(b); r != nil {
			t.Errorf("%x was answered", b)
		}
	}
	p := irtt.Params{Version: 1, Duration: time.Minute, Interval: time.Second, Stats: 3, StampAt: 3, Clock: 3, Length: 400}
	var tokens []uint64
	for range 40 {
		if r := say(irtt.OpenRequest(p, nil)); r != nil {
			if id, ok := opened(r); ok {
				tokens = append(tokens, id)
			}
		}
	}
	if len(tokens) < 5 {
		t.Fatalf("%d requests to open were granted", len(tokens))
	}
	if text := scrape(t, s); !strings.Contains(text, "unbloat_sessions 0\n") {
		t.Errorf("requests that may be forged took sessions:\n%s", text)
	}
	token := tokens[0]
	small := make([]byte, 60)
	irtt.PutRequest(small, token, 1, nil)
	if r := say(small); r != nil {
		t.Error("a short request was answered by a long one")
	}
	long := make([]byte, 400)
	irtt.PutRequest(long, token, 2, nil)
	if r := hear(long, 10*time.Second); len(r) != 400 {
		t.Errorf("%d bytes", len(r))
	}
	for _, other := range tokens[1:5] { // the limit is 3 sessions per address
		irtt.PutRequest(long, other, 1, nil)
		if r := hear(long, 10*time.Second); len(r) != 400 {
			t.Errorf("%d bytes", len(r))
		}
	}
	irtt.PutRequest(long, token+2, 2, nil)
	if r := say(long); r != nil {
		t.Error("an unknown token was answered")
	}
	text := scrape(t, s)
	for _, want := range []string{`reason="malformed"} `, `protocol="irtt",reason="short request"} 1`, `protocol="irtt",reason="unknown token"} 1`, `protocol="irtt",reason="sessions of address"} 2`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in:\n%s", want, text)
		}
	}
}

// When an address has used up its bytes of an hour its loads end, and are
// counted.
func TestAddressBudget(t *testing.T) {
	s := startAll(t, Limits{AddressBytes: 3 << 20}, "")
	url := "http://" + s.Web().String() + "/garbage?ckSize=2"
	for i, want := range []bool{true, false, false} {
		ok := false
		if r, err := http.Get(url); err == nil {
			n, err := io.Copy(io.Discard, r.Body)
			r.Body.Close()
			ok = err == nil && n == 2<<20 && r.StatusCode == http.StatusOK
		}
		if ok != want {
			t.Errorf("download %d: %v", i, ok)
		}
	}
	p := dial(t, s)
	if r, ok := p.ask(hello); !ok || !strings.Contains(r.Error, "limit") {
		t.Errorf("a session beyond the budget: %v %q", ok, r.Error)
	}
}

// A self-signed certificate is made once, and only its owner can read the key.
func TestOwnCertificate(t *testing.T) {
	dir := t.TempDir()
	a, err := OwnCertificate(dir, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	b, err := OwnCertificate(dir, time.Now())
	if err != nil || guard.Fingerprint(a) != guard.Fingerprint(b) {
		t.Errorf("another one: %v", err)
	}
	if i, err := os.Stat(dir + "/serve.pem"); err != nil || i.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", i.Mode(), err)
	}
	if err := os.WriteFile(dir+"/serve.pem", []byte("rubbish"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OwnCertificate(dir, time.Now()); err == nil {
		t.Error("a broken certificate is taken")
	}
}

// The seconds that an iperf3 client omits at the start are in no figure, and
// figures that we do not know of our own streams are marked as unknown.
func TestIperf3Results(t *testing.T) {
	clock := netio.NewClock()
	own, err := net.Dial("tcp", start(t, Limits{}).Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	test := iperf3Test{params: iperf3.Params{Parallel: 1, Bidirectional: true}}
	from := iperf3Moment{1e9, []int64{100, 30}}
	to := iperf3Moment{3e9, []int64{500, 230}}
	r := test.results(clock, from, to, []*net.TCPConn{own.(*net.TCPConn)}, 0.5)
	if len(r.Streams) != 2 || r.Streams[0].Bytes != 400 || r.Streams[1].Bytes != 200 || r.Streams[0].EndTime != 2 || r.CPUTotal != 50 {
		t.Errorf("%+v", r)
	}
	if known := netio.LookAt(clock, []*net.TCPConn{own.(*net.TCPConn)}).Known; known != (r.HasRetransmits == 1 && r.Streams[1].Retransmits == 0) || r.Streams[0].Retransmits != -1 {
		t.Errorf("known %v: %+v", known, r)
	}
}

// The direction of an iperf3 stream depends on the order in which the client
// opened the streams, not on whose cookie was read first.
func TestIperf3StreamsInOrder(t *testing.T) {
	s := startAll(t, Limits{}, "")
	connect := func() *net.TCPConn {
		c, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(s.Iperf3()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		return c
	}
	say := func(c *net.TCPConn, b []byte) {
		if _, err := c.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	cookie := iperf3.MakeCookie([iperf3.CookieSize - 1]byte{})
	control := connect()
	hear := func(want iperf3.State) {
		var b [1]byte
		if _, err := io.ReadFull(control, b[:]); err != nil || iperf3.State(b[0]) != want {
			t.Fatalf("%v %v, want %v", iperf3.State(b[0]), err, want)
		}
	}
	say(control, cookie[:])
	hear(iperf3.ParamExchange)
	params, err := iperf3.Frame(iperf3.Params{TCP: true, Time: 1, Parallel: 1, Bidirectional: true})
	if err != nil {
		t.Fatal(err)
	}
	say(control, params)
	hear(iperf3.CreateStreams)
	mine, yours := connect(), connect()
	say(yours, cookie[:])
	await.Until(t, 20*time.Second, "the second one's cookie to be read", func() bool { return connections(s) == 3 && !iperf3Reads(s, yours) })
	say(mine, cookie[:])
	hear(iperf3.TestStart)
	if n, err := io.ReadFull(yours, make([]byte, 1000)); err != nil {
		t.Errorf("the second stream brought %d bytes: %v", n, err)
	}
}

// iperf3Reads reports whether the server still waits for a connection's first
// bytes.
func iperf3Reads(s *Server, c net.Conn) bool {
	for _, side := range s.others {
		p, ok := side.(*iperf3Server)
		if !ok {
			continue
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		for held := range p.open {
			if held, is := held.(net.Conn); is && held.RemoteAddr().String() == c.LocalAddr().String() {
				return true
			}
		}
	}
	return false
}

// A test whose streams never come does not keep the server from ending.
func TestIperf3WaitsNoLongerThanTheServer(t *testing.T) {
	s, err := Listen(Options{Listen: "127.0.0.1:0", Iperf3: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx) }()
	c := dialFrom(t, "127.0.0.1", s.Iperf3())
	cookie := iperf3.MakeCookie([iperf3.CookieSize - 1]byte{1})
	say(t, c, cookie[:])
	state(t, c, iperf3.ParamExchange)
	frame, err := iperf3.Frame(iperf3.Params{TCP: true, Parallel: 2, Time: 1})
	if err != nil {
		t.Fatal(err)
	}
	say(t, c, frame)
	state(t, c, iperf3.CreateStreams)
	stop()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(5 * time.Second):
		t.Error("it still waits for streams")
	}
}

// Every connection of an iperf3 test is off the books when it has ended, however it did.
func TestIperf3LeavesNoConnection(t *testing.T) {
	s := startAll(t, Limits{Handshake: 300 * time.Millisecond}, "")
	params, err := iperf3.Frame(iperf3.Params{TCP: true, Time: 1, Parallel: 2})
	if err != nil {
		t.Fatal(err)
	}
	connect := func(says ...[]byte) *net.TCPConn {
		c, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(s.Iperf3()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		for _, b := range says {
			if _, err := c.Write(b); err != nil {
				t.Fatal(err)
			}
		}
		return c
	}
	for i, streams := range []int{0, 1, 2} {
		cookie := iperf3.MakeCookie([iperf3.CookieSize - 1]byte{byte(i)})
		control := connect(cookie[:], params)
		if _, err := io.ReadFull(control, make([]byte, 2)); err != nil { // it wants the parameters, then the streams
			t.Fatal(err)
		}
		for range streams {
			connect(cookie[:])
		}
		if streams == 2 {
			if _, err := io.ReadFull(control, make([]byte, 1)); err != nil { // it has begun
				t.Fatal(err)
			}
			control.Close()
		}
	}
	connect([]byte("GET / HTTP/1.1\r\n\r\nno cookie of iperf3's, and as long as one"))
	connect()
	await.Until(t, 20*time.Second, "all connections to be off the books", func() bool { return connections(s) == 0 })
}
