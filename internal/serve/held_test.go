package serve

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"unbloat/testkit/await"
	"unbloat/unit"
)

// A hoarder is a client of HTTP/2 that takes no byte of an answer.
type hoarder struct {
	*tls.Conn
	framer *http2.Framer
	last   uint32         // stream
	wg     sync.WaitGroup // of what reads
}

func hoard(t *testing.T, from string, to netip.AddrPort) *hoarder {
	t.Helper()
	d := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := tls.DialWithDialer(d, "tcp", to.String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	h := &hoarder{Conn: c, framer: http2.NewFramer(c, c)}
	t.Cleanup(func() { c.Close(); h.wg.Wait() })
	_, _ = io.WriteString(c, http2.ClientPreface)
	_ = h.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	h.wg.Go(func() { _, _ = io.Copy(io.Discard, c) })
	return h
}

// ask begins a request with a body, or without one, and sends so much of it.
func (h *hoarder) ask(method, path string, body unit.Size) uint32 {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for _, f := range [][2]string{{":method", method}, {":scheme", "https"}, {":authority", "x"}, {":path", path}} {
		_ = e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	h.last = h.last + 1 | 1
	_ = h.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: h.last, BlockFragment: b.Bytes(), EndHeaders: true, EndStream: body == 0})
	piece := make([]byte, 16<<10)
	for n := unit.Size(0); n < body; n += unit.Size(len(piece)) {
		_ = h.framer.WriteData(h.last, false, piece) // the server may have ended the connection
	}
	return h.last
}

// heap returns the bytes that live.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Bodies that nobody reads are not kept, whatever the path and method, though
// their senders take no byte of the answers.
func TestBodiesAreNotHoarded(t *testing.T) {
	s := startAll(t, Limits{}, "")
	before := heap()
	for _, c := range []struct{ method, path string }{
		{"POST", "/__down?bytes=4000"}, {"GET", "/__down?bytes=4000"}, {"GET", "/getIP"}, {"POST", "/garbage"}, {"OPTIONS", "/empty"},
		{"POST", "/nq/small"}, {"PUT", "/nowhere"}, {"POST", "/api/key"}, {"POST", "/"}, {"DELETE", "/assets/x"},
	} {
		hoard(t, "127.0.0.1", s.Web()).ask(c.method, c.path, streamWindow)
	}
	if !await.True(5*time.Second, func() bool { return heap()-before < 10<<20 }) {
		t.Errorf("ten connections hold %d MB", (heap()-before)>>20)
	}
	if n := refused(s, protocolWeb, "body"); n != 4 {
		t.Errorf("%d bodies were refused", n)
	}
}

// Requests over HTTP/2 are charged to their address as connections are, with
// what may wait of their bodies, until their answers are taken or they have
// stalled. Beyond its limits an address is refused, and no other.
func TestRequestsAreCharged(t *testing.T) {
	const most, one, other = 20, "127.0.0.1", "127.0.0.2"
	for _, c := range []struct {
		what         string
		method, path string
		body         unit.Size // sent; the rest never comes
		fit          int
		reason       string
	}{
		{"answers that nobody takes", "GET", "/getIP", 0, most - 1, "connections of address"},
		{"bodies that never end", "POST", "/__up", 1, 3, "bytes held of address"},
	} {
		t.Run(c.what, func(t *testing.T) {
			s := startAll(t, Limits{AddressConns: most, AddressHeld: 3 * streamWindow, Stall: time.Second}, "")
			h := hoard(t, one, s.Web())
			for range c.fit + 5 {
				h.ask(c.method, c.path, c.body)
			}
			await.Until(t, 10*time.Second, "those beyond the limit to be refused", func() bool { return refused(s, protocolWeb, c.reason) == 5 })
			d := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(other)}}
			client := &http.Client{Transport: &http.Transport{
				DialContext: d.DialContext, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true, DisableKeepAlives: true,
			}}
			r, err := client.Post("https://"+s.Web().String()+"/__up", "", bytes.NewReader(make([]byte, 1000)))
			if err != nil || r.ProtoMajor != 2 || r.StatusCode != http.StatusOK {
				t.Fatalf("another address: %v, %v", r, err)
			}
			r.Body.Close()
			await.Until(t, 10*time.Second, "the connection alone to be charged", func() bool { return connections(s) == 1 })
			h.Close()
			released(t, s)
		})
	}
}

// A connection whose client goes away in the middle of its requests leaves no memory
// behind, and one that is idle is closed, whatever it speaks.
func TestClosedConnectionsHoldNothing(t *testing.T) {
	const clients, most = 150, 8 << 10 // bytes of each
	s := startAll(t, Limits{Idle: 300 * time.Millisecond}, "")
	for _, protocol := range []string{"h2", "http/1.1"} {
		c, err := tls.Dial("tcp", s.Web().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, _ = io.WriteString(c, map[string]string{"h2": http2.ClientPreface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00", "http/1.1": "GET /empty HTTP/1.1\r\nHost: x\r\n\r\n"}[protocol])
		_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
		if _, err := io.Copy(io.Discard, c); err != nil && os.IsTimeout(err) {
			t.Errorf("%s: an idle connection is still open", protocol)
		}
	}

	s = startAll(t, Limits{}, "")
	before := heap()
	t.Run("clients", func(t *testing.T) { // forgets them at its end
		for range clients {
			h := hoard(t, "127.0.0.1", s.Web())
			for range 10 {
				h.ask("GET", "/__down?bytes=4000000", 0)
			}
			h.ask("POST", "/__up", unit.MB)
			h.Close()
		}
	})
	await.Until(t, 10*time.Second, "all to be off the books", func() bool { return connections(s) == 0 })
	if !await.True(5*time.Second, func() bool { return heap()-before < clients*most }) {
		t.Errorf("each of %d connections that have ended holds %d kB", clients, (heap()-before)/clients>>10)
	}
}
