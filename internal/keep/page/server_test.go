package page

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// patience is far beyond what anything here takes.
const patience = 20 * time.Second

// served serves with a handler on the loopback until the test ends.
func served(t testing.TB, s *server) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if s.limits == (limits{}) {
		s.limits = usual()
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.serve(ctx, l, nil) }()
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
func echo(_ context.Context, r *Request) Response {
	return Response{Status: 200, Header: [][2]string{{"X-Path", r.Path}}, Body: fmt.Appendf(nil, "%s %s?%s %d %s", r.Method, r.Path, r.Query, len(r.Body), r.Header["x-a"])}
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

// What browsers send is answered: connections that stay, bodies, HEAD, and what does not
// change.
func TestServed(t *testing.T) {
	address := served(t, &server{handle: func(ctx context.Context, r *Request) Response {
		if r.Path == "/same" {
			return Response{Status: 304}
		}
		return echo(ctx, r)
	}})
	for range 3 {
		for _, c := range []struct {
			method, path, body, want string
			status                   int
		}{
			{"GET", "/a?b=c", "", "GET /a?b=c 0 v", 200},
			{"GET", "/a%2fb", "", "GET /a%2fb? 0 v", 200},
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

// What is not as it must be is refused, before anything of the page sees it.
func TestRefused(t *testing.T) {
	asked := 0
	address := served(t, &server{handle: func(ctx context.Context, r *Request) Response { asked++; return echo(ctx, r) }})
	const host = "Host: a\r\n"
	for _, c := range []struct{ text, want string }{
		{"GET / HTTP/1.1\r\n" + host + "\r\n", "200"},
		{"GET / HTTP/1.0\r\n" + host + "\r\n", "505"},
		{"GET / HTTP/2.0\r\n" + host + "\r\n", "505"},
		{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "501"},
		{"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n", "400"}, // TLS
		{"GET http://a/ HTTP/1.1\r\n" + host + "\r\n", "400"},
		{"GET /a b HTTP/1.1\r\n" + host + "\r\n", "400"},
		{"GET /\x00 HTTP/1.1\r\n" + host + "\r\n", "400"},
		{"GET / HTTP/1.1\r\n\r\n", "400"},                                 // no host
		{"GET / HTTP/1.1\r\n" + host + host + "\r\n", "400"},              // two
		{"GET / HTTP/1.1\r\n" + host + "X-A: 1\r\nx-a: 1\r\n\r\n", "400"}, // two
		{"GET / HTTP/1.1\r\n" + host + "X A: 1\r\n\r\n", "400"},           //
		{"GET / HTTP/1.1\r\n" + host + "X-A : 1\r\n\r\n", "400"},          // smuggling
		{"GET / HTTP/1.1\r\n" + host + "X-A: \x01\r\n\r\n", "400"},        //
		{"GET / HTTP/1.1\r\n" + host + ": 1\r\n\r\n", "400"},              //
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

// Whoever takes too long to send a request, its head or its body, loses the connection;
// an answer may take longer than that.
func TestLateRequests(t *testing.T) {
	l := usual()
	l.request = 50 * time.Millisecond
	address := served(t, &server{limits: l, handle: func(ctx context.Context, r *Request) Response {
		select {
		case <-time.After(3 * l.request):
		case <-ctx.Done():
			t.Error("the answer is given up")
		}
		return echo(ctx, r)
	}})
	for text, want := range map[string]string{
		"":                              "closed",
		"GET / HTTP/1.1\r\nHost: a\r\n": "closed",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab":    "HTTP/1.1 408 Request Timeout",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nabcde": "HTTP/1.1 200 OK",
	} {
		if got := raw(t, address, text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// A stream goes on until its client is gone, and a client that takes nothing of it
// loses it.
func TestStream(t *testing.T) {
	l := usual()
	l.write = 50 * time.Millisecond
	ended := make(chan error, 3)
	address := served(t, &server{limits: l, handle: func(_ context.Context, r *Request) Response {
		return Response{Status: 200, Stream: func(ctx context.Context, send func([]byte) error) {
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
	open := func(method, path string) net.Conn {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Now().Add(patience))
		_, _ = io.WriteString(c, method+" "+path+" HTTP/1.1\r\nHost: a\r\n\r\n")
		return c
	}
	wait := func(what string) {
		t.Helper()
		select {
		case <-ended:
		case <-time.After(patience):
			t.Errorf("%s: it goes on", what)
		}
	}
	c := open("GET", "/")
	if _, err := io.ReadFull(c, make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	c.Close()
	wait("gone")
	open("GET", "/much")
	wait("reads nothing")
	open("HEAD", "/")
	wait("wants no body")
}
