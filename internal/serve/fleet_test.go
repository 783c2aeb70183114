//go:build linux

package serve_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"unbloat/internal/measure/probe"
	"unbloat/internal/measure/protocol/iperf3"
	"unbloat/internal/measure/protocol/irtt"
	"unbloat/internal/measure/protocol/web"
	"unbloat/internal/measure/verdict"
	"unbloat/internal/serve"
	"unbloat/internal/show/store"
	"unbloat/testkit/await"
	"unbloat/testkit/labtest"
	"unbloat/testkit/pgtest"
	"unbloat/unit"
)

// A wire connects one server with the database. When it is cut, data is lost
// silently in both directions, as if a router was unplugged.
type wire struct {
	l  net.Listener
	to string

	mu    sync.Mutex
	cut   bool
	conns []net.Conn
}

func newWire(t *testing.T, to string) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{l: l, to: to}
	t.Cleanup(func() { l.Close(); w.reset() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go w.carry(c)
		}
	}()
	return w
}

func (w *wire) carry(c net.Conn) {
	w.mu.Lock()
	w.conns = append(w.conns, c)
	cut := w.cut
	w.mu.Unlock()
	if cut {
		return // data goes nowhere
	}
	d, err := net.Dial("tcp", w.to)
	if err != nil {
		c.Close()
		return
	}
	w.mu.Lock()
	w.conns = append(w.conns, d)
	w.mu.Unlock()
	one := func(to, from net.Conn) {
		b := make([]byte, 64<<10)
		for {
			n, err := from.Read(b)
			w.mu.Lock()
			cut := w.cut
			w.mu.Unlock()
			if cut {
				return // neither end is told
			}
			if n > 0 {
				_, _ = to.Write(b[:n]) // an error shows at the other end's reader
			}
			if err != nil {
				to.Close()
				return
			}
		}
	}
	go one(c, d)
	one(d, c)
}

func (w *wire) setCut(cut bool) {
	w.mu.Lock()
	w.cut = cut
	w.mu.Unlock()
	if !cut {
		w.reset()
	}
}

// reset closes the old connections.
func (w *wire) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.conns {
		c.Close()
	}
	w.conns = nil
}

// A member is one of the servers, and where it listens.
type member struct {
	t                         *testing.T
	args                      []string
	mu                        sync.Mutex
	cmd                       *exec.Cmd
	native, irtt, iperf3, web string
	metrics                   string
}

func (m *member) start() {
	m.t.Helper()
	cmd := exec.Command(labtest.Binary(m.t), m.args...)
	log, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		m.t.Fatal(err)
	}
	serving := regexp.MustCompile(`msg=serving address=(\S+) irtt=(\S+) iperf3=(\S+) netperf=\S+ web=(\S+) metrics=(\S+)`)
	found := make(chan []string, 1)
	go func() {
		defer close(found)
		for lines := bufio.NewScanner(log); lines.Scan(); {
			if f := serving.FindStringSubmatch(lines.Text()); f != nil {
				found <- f
			} else if !strings.Contains(lines.Text(), "msg=session") {
				m.t.Log(lines.Text())
			}
		}
	}()
	select {
	case f, ok := <-found:
		if !ok {
			m.t.Fatal("a server does not begin")
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		m.cmd, m.native, m.irtt, m.iperf3, m.web, m.metrics = cmd, f[1], f[2], f[3], f[4], f[5]
	case <-time.After(30 * time.Second):
		m.t.Fatal("a server does not say where it listens")
	}
}

// end sends the signal and waits until the server has ended.
func (m *member) end(s syscall.Signal) error {
	m.mu.Lock()
	cmd := m.cmd
	m.cmd = nil
	m.mu.Unlock()
	if cmd == nil {
		return nil
	}
	_ = cmd.Process.Signal(s)
	return cmd.Wait()
}

// at returns where the server listens.
func (m *member) at() (native, irtt, iperf3, web, metrics string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.native, m.irtt, m.iperf3, m.web, m.metrics
}

// waiting returns how many results wait for the database, or -1 if the server
// does not say.
func (m *member) waiting() int {
	_, _, _, _, metrics := m.at()
	resp, err := http.Get("http://" + metrics + "/metrics")
	if err != nil {
		return -1
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	n := -1
	for l := range strings.Lines(string(text)) {
		_, _ = fmt.Sscanf(l, "unbloat_results_waiting %d", &n)
	}
	return n
}

// A client has an address of its own.
type client struct {
	n    int
	from netip.Addr
}

func newClient(n int) client {
	return client{n, netip.AddrFrom4([4]byte{127, 77, byte(n / 250), byte(1 + n%250)})}
}

func (c client) dial(ctx context.Context, address string) (net.Conn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: c.from.AsSlice()}, Timeout: 5 * time.Second}
	conn, err := d.DialContext(ctx, "tcp", address)
	if err == nil {
		err = conn.SetDeadline(time.Now().Add(20 * time.Second))
	}
	return conn, err
}

// http returns an HTTP client that uses the client's address.
func (c client) http() *http.Client {
	return &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		DialContext:       func(ctx context.Context, _, address string) (net.Conn, error) { return c.dial(ctx, address) },
		DisableKeepAlives: true,
	}}
}

// native runs a session with a probe and a download.
func (c client) native(ctx context.Context, m *member) error {
	at, _, _, _, _ := m.at()
	conn, err := c.dial(ctx, at)
	if err != nil {
		return err
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	ask := func(conn net.Conn, in *bufio.Reader, q probe.Request) (probe.Reply, error) {
		if _, err := conn.Write(probe.AppendLine(nil, q)); err != nil {
			return probe.Reply{}, err
		}
		line, err := in.ReadBytes('\n')
		if err != nil {
			return probe.Reply{}, err
		}
		r, err := probe.ParseReply(line)
		if err == nil && r.Error != "" {
			err = errors.New(r.Error)
		}
		return r, err
	}
	session, err := ask(conn, in, probe.Request{Op: probe.OpHello, Versions: []int{probe.Version}})
	if err != nil {
		return err
	}
	stream, err := ask(conn, in, probe.Request{Op: probe.OpUDP, Dir: probe.DirEcho})
	if err != nil {
		return err
	}
	token, err := probe.ParseToken(stream.StreamToken)
	if err != nil {
		return err
	}
	p := make([]byte, probe.MinSize)
	probe.PutHeader(p, probe.Header{Kind: probe.KindEcho, Token: token})
	if err := c.echo(at, p); err != nil {
		return err
	}
	data, err := c.dial(ctx, at)
	if err != nil {
		return err
	}
	defer data.Close()
	from := bufio.NewReader(data)
	if _, err := ask(data, from, probe.Request{Op: probe.OpData, Token: session.Token, Group: 1, Dir: probe.DirDown}); err != nil {
		return err
	}
	if _, err := ask(conn, in, probe.Request{Op: probe.OpStart, Group: 1, Flows: 1}); err != nil {
		return err
	}
	if _, err = io.CopyN(io.Discard, from, 200_000); err != nil {
		return err
	}
	_, err = ask(conn, in, probe.Request{Op: probe.OpStop, Group: 1})
	return err
}

// echo sends a datagram until it gets an answer.
func (c client) echo(to string, b []byte) error {
	conn, err := net.DialUDP("udp", &net.UDPAddr{IP: c.from.AsSlice()}, net.UDPAddrFromAddrPort(netip.MustParseAddrPort(to)))
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = hear(conn, b)
	return err
}

// hear sends b until it gets an answer, and returns that.
func hear(conn *net.UDPConn, b []byte) ([]byte, error) {
	buf := make([]byte, 2000)
	var last error
	for range 10 {
		if _, err := conn.Write(b); err != nil {
			return nil, err
		}
		_ = conn.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
		n, err := conn.Read(buf)
		if err == nil {
			return buf[:n], nil
		}
		last = err
	}
	return nil, last
}

// irtt opens a connection and gets a probe answered.
func (c client) irtt(_ context.Context, m *member) error {
	_, at, _, _, _ := m.at()
	conn, err := net.DialUDP("udp", &net.UDPAddr{IP: c.from.AsSlice()}, net.UDPAddrFromAddrPort(netip.MustParseAddrPort(at)))
	if err != nil {
		return err
	}
	defer conn.Close()
	params := irtt.Params{Version: irtt.Version, Duration: time.Minute, Interval: time.Second, Stats: 3, StampAt: 3, Clock: 3, Length: 400}
	open, err := hear(conn, irtt.OpenRequest(params, nil))
	if err != nil {
		return err
	}
	token, _, flags, err := irtt.ParseOpenReply(open, nil)
	if err != nil || flags.Has(irtt.FlagClose) {
		return fmt.Errorf("irtt is refused: %v", err)
	}
	b := make([]byte, 400)
	irtt.PutRequest(b, token, 1, nil)
	_, err = hear(conn, b)
	return err
}

// iperf3 uploads some bytes, and reads the server's results.
func (c client) iperf3(ctx context.Context, m *member) error {
	_, _, at, _, _ := m.at()
	control, err := c.dial(ctx, at)
	if err != nil {
		return err
	}
	defer control.Close()
	var random [iperf3.CookieSize - 1]byte
	for i := range random {
		random[i] = byte(rand.Uint32())
	}
	cookie := iperf3.MakeCookie(random)
	await := func(want iperf3.State) error {
		var b [1]byte
		if _, err := io.ReadFull(control, b[:]); err != nil {
			return err
		}
		if iperf3.State(b[0]) != want {
			return fmt.Errorf("iperf3 says %v, not %v", iperf3.State(b[0]), want)
		}
		return nil
	}
	params, err := iperf3.Frame(iperf3.Params{TCP: true, Time: 1, Parallel: 1})
	if err != nil {
		return err
	}
	if _, err := control.Write(cookie[:]); err != nil {
		return err
	}
	if err := await(iperf3.ParamExchange); err != nil {
		return err
	}
	if _, err := control.Write(params); err != nil {
		return err
	}
	if err := await(iperf3.CreateStreams); err != nil {
		return err
	}
	data, err := c.dial(ctx, at)
	if err != nil {
		return err
	}
	defer data.Close()
	if _, err := data.Write(cookie[:]); err != nil {
		return err
	}
	for _, s := range []iperf3.State{iperf3.TestStart, iperf3.TestRunning} {
		if err := await(s); err != nil {
			return err
		}
	}
	if _, err := data.Write(make([]byte, 50_000)); err != nil {
		return err
	}
	if _, err := control.Write([]byte{byte(iperf3.TestEnd)}); err != nil {
		return err
	}
	if err := await(iperf3.ExchangeResults); err != nil {
		return err
	}
	mine, err := iperf3.Frame(iperf3.Results{Streams: []iperf3.StreamResult{{ID: 1, Bytes: 50_000}}})
	if err != nil {
		return err
	}
	if _, err := control.Write(mine); err != nil {
		return err
	}
	if _, err := iperf3.ReadFrame(control); err != nil {
		return err
	}
	return await(iperf3.DisplayResults)
}

// web downloads, uploads, and starts a download with ndt7.
func (c client) web(ctx context.Context, m *member) error {
	_, _, _, at, _ := m.at()
	h := c.http()
	resp, err := h.Get("http://" + at + "/__down?bytes=100000")
	if err != nil {
		return err
	}
	n, err := io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	if err != nil || n != 100_000 {
		return fmt.Errorf("a download of %d bytes, %s: %w", n, resp.Status, errors.Join(err, errShort))
	}
	if resp, err = h.Post("http://"+at+"/__up", "application/octet-stream", bytes.NewReader(make([]byte, 50_000))); err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	ws, _, err := websocket.Dial(ctx, "ws://"+at+web.DownloadPath, &websocket.DialOptions{Subprotocols: []string{web.Subprotocol}, HTTPClient: h})
	if err != nil {
		return err
	}
	defer ws.CloseNow()
	ws.SetReadLimit(int64(web.MaxMessage))
	_, _, err = ws.Read(ctx)
	return err
}

var errShort = errors.New("too short")

// page runs a session of the page and submits a result that no other client
// has. It returns the ticket if the server says that the result is saved.
func (c client) page(ctx context.Context, m *member, try int) (serve.Saved, error) {
	_, _, _, at, _ := m.at()
	h := c.http()
	ws, _, err := websocket.Dial(ctx, "ws://"+at+"/api/probe", &websocket.DialOptions{Subprotocols: []string{serve.Subprotocol}, HTTPClient: h})
	if err != nil {
		return serve.Saved{}, err
	}
	defer ws.CloseNow()
	_, text, err := ws.Read(ctx)
	if err != nil {
		return serve.Saved{}, err
	}
	var hello serve.Hello
	if err := json.Unmarshal(text, &hello); err != nil {
		return serve.Saved{}, fmt.Errorf("%.100s: %w", text, err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+at+"/api/results?session="+hello.Session, strings.NewReader(submission(c.n, try)))
	if err != nil {
		return serve.Saved{}, err
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := h.Do(r)
	if err != nil {
		return serve.Saved{}, err
	}
	defer resp.Body.Close()
	var saved serve.Saved
	if err := json.NewDecoder(resp.Body).Decode(&saved); err != nil {
		return saved, err
	}
	if saved.ID == "" {
		return saved, fmt.Errorf("%s: not kept: %q", resp.Status, saved.Error)
	}
	return saved, nil
}

// submission returns a result of an idle line, as the page submits it.
func submission(n, try int) string {
	p := serve.RawPhase{Name: verdict.PhaseIdle, EndUs: 3_000_000, BinUs: 100_000, Skips: []serve.Skip{}, DownByte: []int64{}, UpByte: []int64{}}
	for i := range int64(150) {
		p.Probes.DueUs = append(p.Probes.DueUs, i*20_000)
		p.Probes.SentUs = append(p.Probes.SentUs, i*20_000)
		p.Probes.ReceivedUs = append(p.Probes.ReceivedUs, i*20_000+11_000+int64(n)*10+int64(try))
		p.Probes.ServerUs = append(p.Probes.ServerUs, i*20_000+5_000)
		p.Probes.HeldUs = append(p.Probes.HeldUs, 30)
	}
	text, err := json.Marshal(serve.Submission{
		Schema: serve.SubmissionSchema, IntervalUs: 20_000, TickUs: 5, Protocol: "http/1.1", Transport: serve.OverWebSocket, Phases: []serve.RawPhase{p},
	})
	if err != nil {
		panic(err) // figures can always be marshalled
	}
	return string(text)
}

// Three servers and one database serve 500 clients of all protocols. Meanwhile
// the database is killed and restarted, one server silently loses its
// connection to it, and another server is killed and restarted. Every result
// that a server said is saved is in the database once, can be read from every
// server, and nothing stores a client's address.
func TestFleet(t *testing.T) {
	await.NotShort(t)
	const clients, lasting = 500, 20 * time.Second
	db := pgtest.Start(t)
	var members []*member
	var wires []*wire
	for range 3 {
		w := newWire(t, db.Addr())
		wires = append(wires, w)
		const any = "127.0.0.1:0"
		m := &member{t: t, args: []string{"serve", "--listen", any, "--irtt", any, "--iperf3", any, "--netperf", "", "--web", any, "--metrics", any,
			"--store", strings.Replace(db.URL(), db.Addr(), w.l.Addr().String(), 1), "--state-dir", t.TempDir(), "--quiet=false",
			"--max-page-sessions", "500", "--max-bytes-per-address", "30MB", "--keep", "90d", "--drain", "2s"}}
		m.start()
		t.Cleanup(func() { _ = m.end(syscall.SIGKILL) })
		members = append(members, m)
	}

	began := time.Now()
	at := func(d time.Duration) { time.Sleep(time.Until(began.Add(d))) }
	var all sync.WaitGroup
	all.Go(func() { // the failures, one after the other
		at(3 * time.Second)
		db.Kill()
		at(5 * time.Second)
		waited := members[2].waiting()
		_ = members[2].end(syscall.SIGKILL)
		t.Logf("a server was killed; %d results waited there", waited)
		at(7 * time.Second)
		db.Restart()
		at(8 * time.Second)
		members[2].start()
		at(10 * time.Second)
		wires[1].setCut(true)
		at(15 * time.Second)
		wires[1].setCut(false)
		_ = members[0].end(syscall.SIGKILL)
		at(17 * time.Second)
		members[0].start()
	})
	var mu sync.Mutex
	accepted := map[string]serve.Saved{}
	kinds := []string{"page", "native", "irtt", "iperf3", "web"}
	var served [5]atomic.Int64
	for i := range clients {
		all.Go(func() {
			c := newClient(i)
			at(time.Duration(i) * lasting / clients)
			var err error
			for try := range 12 { // a client that is refused tries the next server of that name
				m := members[(i+try)%len(members)]
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				switch i % len(kinds) {
				case 0:
					var saved serve.Saved
					if saved, err = c.page(ctx, m, try); err == nil {
						mu.Lock()
						accepted[saved.ID] = saved
						mu.Unlock()
					}
				case 1:
					err = c.native(ctx, m)
				case 2:
					err = c.irtt(ctx, m)
				case 3:
					err = c.iperf3(ctx, m)
				case 4:
					err = c.web(ctx, m)
				}
				cancel()
				if err == nil {
					served[i%len(kinds)].Add(1)
					return
				}
				time.Sleep(100 * time.Millisecond)
			}
			t.Errorf("client %d (%s) was never served: %v", i, kinds[i%len(kinds)], err)
		})
	}
	all.Wait()
	took := time.Since(began)
	for i, k := range kinds {
		if n := served[i].Load(); n != clients/int64(len(kinds)) {
			t.Errorf("%d clients of %s were served, not %d", n, k, clients/len(kinds))
		}
	}
	if len(accepted) != clients/len(kinds) {
		t.Errorf("%d results were accepted, not %d", len(accepted), clients/len(kinds))
	}
	for i, m := range members {
		await.Until(t, 40*time.Second, fmt.Sprintf("server %d to deliver what waits", i), func() bool { return m.waiting() == 0 })
	}
	t.Logf("%d clients served in %v, all delivered after %v", clients, took.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))

	s, err := store.Open(t.Context(), db.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	list, err := s.List(t.Context(), store.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	times := map[string]int{}
	for _, e := range list {
		times[e.ID[:32]]++
	}
	for id := range accepted {
		if times[id] != 1 {
			t.Errorf("result %s was accepted, and is there %d times", id, times[id])
		}
	}
	t.Logf("%d results accepted, %d kept: the others' answers were lost with a server", len(accepted), len(list))
	var out bytes.Buffer
	var records []store.Record
	if _, err := s.Export(t.Context(), &out, nil); err != nil {
		t.Fatal(err)
	}
	if err := store.ReadExport(&out, func(r store.Record) error { records = append(records, r); return nil }); err != nil || len(records) != len(list) {
		t.Errorf("an export of %d results: %v", len(records), err)
	}
	for _, r := range records {
		if text, _ := json.Marshal(r); bytes.Contains(text, []byte("127.77.")) {
			t.Errorf("a client's address is kept: %.500s", text)
		}
	}
	readEverywhere(t, members, accepted)
	budgetsAreShared(t, members)
}

// readEverywhere reads results from every server, and deletes one.
func readEverywhere(t *testing.T, members []*member, accepted map[string]serve.Saved) {
	t.Helper()
	status := func(method string, m *member, id, token string) int {
		_, _, _, at, _ := m.at()
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+at+"/api/results/"+id, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Delete-Token", token)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp.StatusCode
	}
	n := 0
	for id, saved := range accepted {
		for i, m := range members {
			if code := status(http.MethodGet, m, id, ""); code != http.StatusOK {
				t.Errorf("result %s from server %d: %d", id, i, code)
			}
		}
		if n++; n == 1 {
			for i, want := range []int{http.StatusForbidden, http.StatusNoContent, http.StatusNotFound} {
				if code := status(http.MethodDelete, members[i], id, []string{"wrong", saved.Token, saved.Token}[i]); code != want {
					t.Errorf("delete from server %d: %d, want %d", i, code, want)
				}
			}
		}
		if n == 20 {
			break
		}
	}
}

// budgetsAreShared uses up an address's budget of an hour at one server. Then
// the others must refuse the address.
func budgetsAreShared(t *testing.T, members []*member) {
	t.Helper()
	c := newClient(999)
	get := func(m *member, n unit.Size) int {
		_, _, _, at, _ := m.at()
		resp, err := c.http().Get(fmt.Sprintf("http://%s/__down?bytes=%d", at, int64(n)))
		if err != nil {
			return 0
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body) // it ends when the budget is used up
		return resp.StatusCode
	}
	get(members[0], 40*unit.MB)
	for i, m := range members {
		began := time.Now()
		await.Until(t, 20*time.Second, fmt.Sprintf("server %d to know what an address took of another", i), func() bool {
			return get(m, 10*unit.KB) == http.StatusTooManyRequests
		})
		t.Logf("server %d refuses the address after %v", i, time.Since(began).Round(100*time.Millisecond))
	}
}
