package serve

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"unbloat/internal/measure/netio"
	"unbloat/internal/measure/probe"
	"unbloat/testkit/await"
	"unbloat/unit"
)

// start runs a server until the test ends, and then checks that it ends cleanly
// and leaves no goroutine.
func start(t *testing.T, l Limits) *Server {
	t.Helper()
	before := runtime.NumGoroutine()
	s, err := Listen(Options{Listen: "127.0.0.1:0", Limits: l})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // runs after the server has ended
		if !await.True(10*time.Second, func() bool { return runtime.NumGoroutine() <= before }) {
			buf := make([]byte, 1<<16)
			t.Errorf("%d goroutines before, %d after:\n%s", before, runtime.NumGoroutine(), buf[:runtime.Stack(buf, true)])
		}
	})
	serveUntilEnd(t, s)
	return s
}

// serveUntilEnd runs a server until the test ends.
func serveUntilEnd(t *testing.T, s *Server) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	t.Cleanup(func() {
		stop()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("serve: %v", err)
			}
		case <-time.After(20 * time.Second):
			t.Error("the server does not end")
		}
	})
}

// A peer is a client without the client library.
type peer struct {
	t *testing.T
	*net.TCPConn
	in *bufio.Reader
}

func dial(t *testing.T, s *Server) *peer {
	t.Helper()
	c, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(s.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	return &peer{t, c, bufio.NewReader(c)}
}

// ask sends a line and returns the reply, or false if the server closed the
// connection.
func (p *peer) ask(line string) (probe.Reply, bool) {
	p.t.Helper()
	_, _ = io.WriteString(p, line+"\n") // an error shows when reading
	b, err := p.in.ReadBytes('\n')
	if err != nil {
		return probe.Reply{}, false
	}
	r, err := probe.ParseReply(b)
	if err != nil {
		p.t.Fatal(err)
	}
	return r, true
}

func (p *peer) must(line string) probe.Reply {
	p.t.Helper()
	r, ok := p.ask(line)
	if !ok || r.Error != "" {
		p.t.Fatalf("%s: answered %v, error %q", line, ok, r.Error)
	}
	return r
}

// over checks that the server has closed the connection.
func (p *peer) over() {
	p.t.Helper()
	if _, err := io.Copy(io.Discard, p.in); err != nil && strings.Contains(err.Error(), "timeout") {
		p.t.Error("the server still holds the connection")
	}
}

const hello = `{"op":"hello","versions":[1]}`

func TestSessionByHand(t *testing.T) {
	s := start(t, Limits{})
	p := dial(t, s)
	r := p.must(hello)
	if r.Version != 1 || len(r.Token) != 32 || r.Now == 0 {
		t.Errorf("%+v", r)
	}
	if r2 := dial(t, s).must(hello); r2.Token == r.Token {
		t.Error("two sessions share a token")
	}
	st := p.must(`{"op":"udp","dir":"echo"}`)
	if st.Stream == 0 || st.StreamToken == "" {
		t.Errorf("%+v", st)
	}
	if rep := p.must(fmt.Sprintf(`{"op":"end","stream":%d}`, st.Stream)); rep.UDP == nil || rep.UDP.Received != 0 {
		t.Errorf("%+v", rep)
	}
}

func TestRefusals(t *testing.T) {
	s := start(t, Limits{})
	token := dialSession(t, s)
	for _, c := range []struct{ name, line, why string }{
		{"noise", "GET / HTTP/1.1", "malformed"},
		{"binary", "\x16\x03\x01\x02\x00", "malformed"},
		{"no operation", "{}", "malformed"},
		{"start on a new connection", `{"op":"start","group":1}`, "begins with"},
		{"unknown token", `{"op":"data","token":"00000000000000000000000000000000","dir":"up"}`, "no session"},
		{"no token", `{"op":"data","dir":"up"}`, "no session"},
		{"no direction", `{"op":"data","token":"` + token + `"}`, "direction"},
		{"unknown congestion control", `{"op":"data","token":"` + token + `","dir":"down","cc":"nonesuch"}`, "nonesuch"},
		{"another version", `{"op":"hello","versions":[2,3]}`, "version 1"},
		{"oversized", strings.Repeat("x", 5000), "more than"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := dial(t, s)
			// An oversized line may be answered by a reset, because the server
			// does not read it to the end.
			if r, ok := p.ask(c.line); ok && !strings.Contains(r.Error, c.why) || !ok && c.name != "oversized" {
				t.Errorf("answered %v, error %q, want %q", ok, r.Error, c.why)
			}
			p.over()
		})
	}
	dial(t, s).must(hello) // the server still works
}

func dialSession(t *testing.T, s *Server) string { return dial(t, s).must(hello).Token }

// Requests in the wrong order end only their own session.
func TestDisorder(t *testing.T) {
	s := start(t, Limits{})
	p := dial(t, s)
	p.must(hello)
	for _, line := range []string{
		hello, `{"op":"start","group":7}`, `{"op":"stop","group":7}`, `{"op":"report","stream":9}`,
		`{"op":"end","stream":9}`, `{"op":"udp"}`, `{"op":"udp","dir":"down"}`, `{"op":"udp","dir":"down","interval_ns":1}`,
	} {
		if r, ok := p.ask(line); !ok || r.Error == "" {
			t.Errorf("%s: answered %v, error %q", line, ok, r.Error)
		}
	}
	if r, ok := p.ask("rubbish"); !ok || r.Error == "" {
		t.Errorf("rubbish: answered %v, error %q", ok, r.Error)
	}
	p.over() // a client that does not speak the protocol is disconnected
}

// A group is started once, with all its connections, in one direction.
func TestGroups(t *testing.T) {
	s := start(t, Limits{Flows: 3})
	p := dial(t, s)
	token := p.must(hello).Token
	data := func(group int, dir string) (probe.Reply, bool) {
		return dial(t, s).ask(fmt.Sprintf(`{"op":"data","token":%q,"group":%d,"dir":%q}`, token, group, dir))
	}
	for i, c := range []struct {
		group int
		dir   string
		ok    bool
	}{{1, "down", true}, {1, "up", false}, {1, "down", true}, {2, "up", true}, {2, "up", false}} { // the last exceeds the limit
		if r, ok := data(c.group, c.dir); !ok || (r.Error == "") != c.ok {
			t.Errorf("%d: answered %v, error %q", i, ok, r.Error)
		}
	}
	if r, _ := p.ask(`{"op":"start","group":1,"flows":1}`); r.Error == "" {
		t.Error("started with a connection too many")
	}
	p.must(`{"op":"start","group":1,"flows":2,"limit_ns":50000000}`)
	if r, _ := p.ask(`{"op":"start","group":1,"flows":2}`); r.Error == "" {
		t.Error("started twice")
	}
	if r, ok := data(1, "down"); !ok || r.Error == "" {
		t.Error("joined a group that has started")
	}
	if r := p.must(`{"op":"stop","group":1}`); r.Load == nil || len(r.Load.Sender) == 0 {
		t.Errorf("%+v", r.Load)
	}
	if r := p.must(`{"op":"stop","group":2}`); r.Load == nil { // never started
		t.Errorf("%+v", r.Load)
	}
	if r, ok := data(3, "up"); !ok || r.Error != "" {
		t.Errorf("a freed place: answered %v, error %q", ok, r.Error)
	}
}

// When the control connection ends, so does the whole session.
func TestControlDies(t *testing.T) {
	s := start(t, Limits{})
	p := dial(t, s)
	token := p.must(hello).Token
	waiting, running := dial(t, s), dial(t, s)
	waiting.must(fmt.Sprintf(`{"op":"data","token":%q,"group":1,"dir":"down"}`, token))
	running.must(fmt.Sprintf(`{"op":"data","token":%q,"group":2,"dir":"down"}`, token))
	p.must(`{"op":"start","group":2,"flows":1}`)
	p.Close()
	waiting.over()
	running.over()
	if r, ok := dial(t, s).ask(fmt.Sprintf(`{"op":"data","token":%q,"dir":"up"}`, token)); !ok || r.Error == "" {
		t.Errorf("the token outlives its session: %+v", r)
	}
}

func TestLimits(t *testing.T) {
	s := start(t, Limits{Sessions: 2, Conns: 4, Handshake: 400 * time.Millisecond, Idle: 1500 * time.Millisecond, Streams: 1})
	a, b := dial(t, s), dial(t, s)
	a.must(hello)
	b.must(hello)
	if r, ok := dial(t, s).ask(hello); !ok || !strings.Contains(r.Error, "busy") {
		t.Errorf("a third session: answered %v, error %q", ok, r.Error)
	}
	dial(t, s).over() // sends nothing
	half := dial(t, s)
	_, _ = io.WriteString(half, `{"op":`)
	half.over() // sends half a line
	a.over()    // is idle
	b.over()
	c := dial(t, s)
	c.must(hello)
	c.must(`{"op":"udp","dir":"echo"}`)
	if r, ok := c.ask(`{"op":"udp","dir":"echo"}`); !ok || !strings.Contains(r.Error, "limit") {
		t.Errorf("a second stream: answered %v, error %q", ok, r.Error)
	}
}

// A session whose load runs is not idle, though it asks for nothing and probes nothing;
// once the load's time is over it is.
func TestLoadIsNotIdle(t *testing.T) {
	await.NotShort(t)
	const idle = 300 * time.Millisecond
	for _, dir := range []string{probe.DirUp, probe.DirDown} {
		s := start(t, Limits{Idle: idle})
		p, data := dial(t, s), dial(t, s)
		data.must(fmt.Sprintf(`{"op":"data","token":%q,"group":1,"dir":%q}`, p.must(hello).Token, dir))
		p.must(fmt.Sprintf(`{"op":"start","group":1,"flows":1,"limit_ns":%d}`, time.Minute))
		_ = p.SetReadDeadline(time.Now().Add(4 * idle))
		if _, err := p.in.ReadByte(); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("%s: while the load runs its session ends: %v", dir, err)
		}
		_ = p.SetReadDeadline(time.Now().Add(30 * time.Second))
		if r := p.must(`{"op":"stop","group":1}`); r.Load == nil {
			t.Errorf("%s: no report of the load", dir)
		}
		p.over()

		s = start(t, Limits{Idle: idle})
		p, data = dial(t, s), dial(t, s)
		data.must(fmt.Sprintf(`{"op":"data","token":%q,"group":1,"dir":%q}`, p.must(hello).Token, dir))
		p.must(fmt.Sprintf(`{"op":"start","group":1,"flows":1,"limit_ns":%d}`, time.Millisecond))
		p.over()
	}
}

func TestByteBudget(t *testing.T) {
	s := start(t, Limits{Bytes: 1000})
	p := dial(t, s)
	token := p.must(hello).Token
	first, second := dial(t, s), dial(t, s)
	first.must(fmt.Sprintf(`{"op":"data","token":%q,"group":1,"dir":"down"}`, token))
	second.must(fmt.Sprintf(`{"op":"data","token":%q,"group":2,"dir":"down"}`, token))
	p.must(`{"op":"start","group":1,"flows":1}`)
	if n, _ := io.Copy(io.Discard, first.in); n > int64(len(netio.Payload())) { // one write
		t.Errorf("a load of %d bytes; the budget is 1000", n)
	}
	p.must(`{"op":"stop","group":1}`)
	if r, ok := p.ask(`{"op":"start","group":2,"flows":1}`); !ok || !strings.Contains(r.Error, "limit") {
		t.Errorf("a load beyond the budget: answered %v, error %q", ok, r.Error)
	}
}

// Datagrams are only answered if they have a valid token, and never with more
// bytes.
func TestNoAmplification(t *testing.T) {
	s := start(t, Limits{})
	p := dial(t, s)
	p.must(hello)
	st := p.must(`{"op":"udp","dir":"echo"}`)
	down := p.must(`{"op":"udp","dir":"down","interval_ns":1000000,"size":1400,"limit_ns":1000000000}`)
	token, err := probe.ParseToken(st.StreamToken)
	if err != nil {
		t.Fatal(err)
	}
	downToken, err := probe.ParseToken(down.StreamToken)
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.DialUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 3)}, net.UDPAddrFromAddrPort(s.Addr()))
	if err != nil {
		t.Skip("SKIPPED: no second loopback address here: ", err)
	}
	defer c.Close()
	send := func(n int, h probe.Header) {
		b := make([]byte, max(n, int(probe.MinSize)))
		probe.PutHeader(b, h)
		if _, err := c.Write(b[:n]); err != nil {
			t.Fatal(err)
		}
	}
	// None of these is answered,
	send(1400, probe.Header{Kind: probe.KindEcho, Token: token + 1})
	send(1400, probe.Header{Kind: probe.KindCount, Token: token})
	send(1400, probe.Header{Kind: probe.KindReply, Token: token})
	send(1400, probe.Header{Kind: probe.KindStream, Token: token})
	send(1400, probe.Header{Kind: probe.KindListen, Token: token})
	send(20, probe.Header{Kind: probe.KindEcho, Token: token})
	send(100, probe.Header{Kind: probe.KindListen, Token: downToken}) // from another address than the client's
	send(0, probe.Header{})
	// but this one is, so the first answer must be to it.
	send(100, probe.Header{Kind: probe.KindEcho, Token: token, Seq: 77})
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	buf := make([]byte, 2000)
	n, err := c.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	h, err := probe.ParseHeader(buf[:n])
	if err != nil || n != 100 || h.Kind != probe.KindReply || h.Seq != 77 || h.Count != 2 {
		t.Errorf("%d bytes, %+v, %v", n, h, err)
	}
	_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if n, err := c.Read(buf); err == nil {
		t.Errorf("an answer of %d bytes too many", n)
	}
	rep := p.must(fmt.Sprintf(`{"op":"report","stream":%d}`, st.Stream))
	if rep.UDP.Received != 2 || rep.UDP.Bytes != unit.Size(1500) {
		t.Errorf("%+v", rep.UDP)
	}
	if rep := p.must(fmt.Sprintf(`{"op":"end","stream":%d}`, down.Stream)); rep.UDP.Sent != 0 {
		t.Errorf("%d datagrams sent to a stranger", rep.UDP.Sent)
	}
}

func TestListenErrors(t *testing.T) {
	s := start(t, Limits{})
	for _, address := range []string{s.Addr().String(), "nonsense", ":99999"} {
		if s, err := Listen(Options{Listen: address}); err == nil {
			t.Errorf("listens on %s", address)
			s.close()
		} else {
			t.Log(err)
		}
	}
}
