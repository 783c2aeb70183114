package http1_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"unbloat/internal/ui/http1"
)

// patience is far beyond what anything here takes.
const patience = 20 * time.Second

// serve serves with a handler on the loopback until the test ends.
func serve(t testing.TB, s *http1.Server) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if s.Limits == (http1.Limits{}) {
		s.Limits = http1.DefaultLimits()
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(patience):
			t.Error("it does not end")
		}
	})
	return l.Addr().String()
}

// echo answers with what it was asked.
func echo(_ context.Context, r *http1.Request) http1.Response {
	return http1.Response{Status: 200, Header: [][2]string{{"X-Path", r.Path}}, Body: fmt.Appendf(nil, "%s %s?%s %d %s", r.Method, r.Path, r.Query, len(r.Body), r.Header["x-a"])}
}

// raw sends bytes and returns the first line of the answer, or what became of it.
func raw(t *testing.T, address, text string) string {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c, text); err != nil {
		return "closed"
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return "closed"
	}
	return strings.TrimSpace(line)
}

// A client of another make, net/http's, is served: connections that stay, bodies,
// HEAD, and what does not change.
func TestNetHTTPClient(t *testing.T) {
	address := serve(t, &http1.Server{Handle: func(ctx context.Context, r *http1.Request) http1.Response {
		if r.Path == "/same" {
			return http1.Response{Status: 304}
		}
		return echo(ctx, r)
	}})
	for range 3 {
		for _, c := range []struct {
			method, path, body, want string
			status                   int
		}{
			{"GET", "/a?b=c", "", "GET /a?b=c 0 v", 200},
			{"POST", "/x", strings.Repeat("y", 60000), "POST /x? 60000 v", 200},
			{"HEAD", "/a", "", "", 200},
			{"GET", "/same", "", "", 304},
			{"PUT", "/a", "", "", 501},
			{"POST", "/x", strings.Repeat("y", 70000), "", 413},
		} {
			q, err := http.NewRequestWithContext(t.Context(), c.method, "http://"+address+c.path, strings.NewReader(c.body))
			if err != nil {
				t.Fatal(err)
			}
			q.Header.Set("X-A", "v")
			r, err := http.DefaultClient.Do(q)
			if err != nil {
				t.Fatalf("%s %s: %v", c.method, c.path, err)
			}
			b, err := io.ReadAll(r.Body)
			r.Body.Close()
			if err != nil || r.StatusCode != c.status || string(b) != c.want {
				t.Errorf("%s %s: %d %q %v", c.method, c.path, r.StatusCode, b, err)
			}
		}
	}
}

// What is not as it must be is refused, and the connection closed.
func TestRefused(t *testing.T) {
	asked := 0
	address := serve(t, &http1.Server{Handle: func(ctx context.Context, r *http1.Request) http1.Response { asked++; return echo(ctx, r) }})
	const host = "Host: a\r\n"
	for _, c := range []struct{ text, want string }{
		{"GET / HTTP/1.1\r\n" + host + "\r\n", "200"},
		{"GET / HTTP/1.0\r\n" + host + "\r\n", "505"},
		{"GET / HTTP/2.0\r\n" + host + "\r\n", "505"},
		{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "400"},
		{"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n", "400"}, // TLS
		{"GET http://a/ HTTP/1.1\r\n" + host + "\r\n", "400"},
		{"GET /a b HTTP/1.1\r\n" + host + "\r\n", "505"},
		{"GET /\x00 HTTP/1.1\r\n" + host + "\r\n", "400"},
		{"GET /ä HTTP/1.1\r\n" + host + "\r\n", "400"},
		{"GET / HTTP/1.1\r\n\r\n", "400"},                             // no host
		{"GET / HTTP/1.1\r\n" + host + host + "\r\n", "400"},          // two
		{"GET / HTTP/1.1\n" + "Host: a\n\n", "400"},                   // lines without CR
		{"GET / HTTP/1.1\r\n" + host + "X-A: 1\r\n 2\r\n\r\n", "400"}, // folded
		{"GET / HTTP/1.1\r\n" + host + "X A: 1\r\n\r\n", "400"},       //
		{"GET / HTTP/1.1\r\n" + host + "X-A : 1\r\n\r\n", "400"},      // smuggling
		{"GET / HTTP/1.1\r\n" + host + "X-A: \x01\r\n\r\n", "400"},    //
		{"GET / HTTP/1.1\r\n" + host + ": 1\r\n\r\n", "400"},          //
		{"POST / HTTP/1.1\r\n" + host + "Content-Length: -1\r\n\r\n", "400"},
		{"POST / HTTP/1.1\r\n" + host + "Content-Length: +1\r\n\r\n", "400"},
		{"POST / HTTP/1.1\r\n" + host + "Content-Length: 1, 1\r\n\r\n", "400"},
		{"POST / HTTP/1.1\r\n" + host + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n", "400"},
		{"POST / HTTP/1.1\r\n" + host + "Content-Length: 10000000\r\n\r\n", "413"},
		{"POST / HTTP/1.1\r\n" + host + "Content-Length: 99999999999999999999\r\n\r\n", "400"},
		{"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "501"},
		{"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n", "501"},
		{"DELETE / HTTP/1.1\r\n" + host + "\r\n", "501"},
		{"GET /" + strings.Repeat("a", 9000) + " HTTP/1.1\r\n" + host + "\r\n", "431"},
		{"GET / HTTP/1.1\r\n" + host + many(30) + "\r\n", "431"},
		{strings.Repeat("\r\n", 10) + "\r\n", "400"},
	} {
		if got := raw(t, address, c.text); !strings.Contains(got, " "+c.want+" ") {
			t.Errorf("%.80q: %q, want %s", c.text, got, c.want)
		}
	}
	if asked != 1 {
		t.Errorf("the handler saw %d of them", asked)
	}
}

// many are header fields of 400 bytes each.
func many(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "X-%d: %s\r\n", i, strings.Repeat("b", 400))
	}
	return b.String()
}

// A body of 10 MB is refused before it is read, whether its length is told or not.
func TestLargeBody(t *testing.T) {
	address := serve(t, &http1.Server{Handle: echo})
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(c, "POST /api/line HTTP/1.1\r\nHost: a\r\nContent-Length: 10000000\r\n\r\n")
	sent := 0
	block := bytes.Repeat([]byte("x"), 64<<10)
	for sent < 10_000_000 {
		n, err := c.Write(block)
		sent += n
		if err != nil {
			break
		}
	}
	if sent >= 10_000_000 {
		t.Logf("the kernel took all %d bytes", sent) // its buffers may
	}
}

// A stream goes on until its client is gone, and a client that takes nothing of it
// loses it.
func TestStream(t *testing.T) {
	limits := http1.DefaultLimits()
	limits.Write = 50 * time.Millisecond
	ended := make(chan error, 3)
	address := serve(t, &http1.Server{Limits: limits, Handle: func(_ context.Context, r *http1.Request) http1.Response {
		return http1.Response{Status: 200, Stream: func(ctx context.Context, send func([]byte) error) {
			size := 10
			if r.Path == "/much" {
				size = 1 << 20
			}
			for ctx.Err() == nil {
				if err := send(bytes.Repeat([]byte("x"), size)); err != nil {
					ended <- err
					return
				}
				select {
				case <-time.After(time.Millisecond):
				case <-ctx.Done():
				}
			}
			ended <- nil
		}}
	}})
	open := func(path string) net.Conn {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Now().Add(patience))
		_, _ = io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: a\r\n\r\n")
		return c
	}
	c := open("/")
	if _, err := io.ReadFull(c, make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	c.Close()
	wait := func() {
		t.Helper()
		select {
		case <-ended:
		case <-time.After(patience):
			t.Error("it goes on")
		}
	}
	wait()
	open("/much") // and reads nothing
	wait()
}

// A handler that panics breaks its own request alone.
func TestPanic(t *testing.T) {
	var mu sync.Mutex
	var said []any
	address := serve(t, &http1.Server{Panicked: func(p any) { mu.Lock(); defer mu.Unlock(); said = append(said, p) }, Handle: func(ctx context.Context, r *http1.Request) http1.Response {
		if r.Path == "/panic" {
			panic("oh")
		}
		return echo(ctx, r)
	}})
	if got := raw(t, address, "GET /panic HTTP/1.1\r\nHost: a\r\n\r\n"); !strings.Contains(got, "500") {
		t.Errorf("%q", got)
	}
	if got := raw(t, address, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"); !strings.Contains(got, "200") {
		t.Errorf("then %q", got)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(said) != 1 {
		t.Errorf("%v", said)
	}
}

// Whatever comes in, it is refused or answered, and never more than once a request.
func FuzzRequests(f *testing.F) {
	f.Add("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	f.Add("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcGET")
	limits := http1.DefaultLimits()
	limits.Request, limits.Idle = 20*time.Millisecond, 20*time.Millisecond
	address := serve(f, &http1.Server{Limits: limits, Handle: func(ctx context.Context, r *http1.Request) http1.Response {
		if r.Path == "" || r.Path[0] != '/' || r.Header["host"] == "" || len(r.Body) > limits.Body {
			panic(fmt.Sprintf("%+v", r))
		}
		return echo(ctx, r)
	}, Panicked: func(p any) { f.Error(p) }})
	f.Fuzz(func(t *testing.T, text string) {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Skip(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(patience))
		_, _ = io.WriteString(c, text)
		if t, ok := c.(*net.TCPConn); ok {
			_ = t.CloseWrite()
		}
		out, _ := io.ReadAll(c)
		if len(out) > 0 && !bytes.HasPrefix(out, []byte("HTTP/1.1 ")) {
			t.Errorf("%q is answered with %q", text, out)
		}
	})
}
