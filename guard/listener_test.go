package guard

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"unbloat/testkit/await"
)

// What a connection may be doing.
const (
	busy     = "busy"     // the program works for it
	silent   = "silent"   // it is waited for
	slow     = "slow"     // it has not taken the last piece yet
	stuck    = "stuck"    // it has taken nothing for long
	watched  = "watched"  // an answer goes on, and it takes what it is sent
	toldLate = "toldLate" // an answer goes on, and it takes nothing of it
)

// closing is a net.Conn that says whether it was closed.
type closing struct {
	net.Conn
	closed bool
}

func (c *closing) Close() error { c.closed = true; return nil }

// guest is a connection that does something, since so long.
func guest(l *Listener, from, does string, since time.Duration) *conn {
	c := &conn{Conn: &closing{}, l: l, from: netip.MustParseAddr(from)}
	at := time.Now().Add(-since)
	switch does {
	case silent:
		c.reading, c.deadline = at, true
	case slow:
		c.writing = time.Now()
	case stuck:
		c.writing = time.Now().Add(-patience - since)
	case watched:
		c.reading = at
	case toldLate:
		c.reading, c.writing = at, time.Now().Add(-patience-since)
	}
	return c
}

func (c *conn) isClosed() bool { return c.Conn.(*closing).closed }

// Who has to go when there is no place left: with six of them, from four on.
func TestWhoMakesRoom(t *testing.T) {
	limits := Limits{Most: 6, Crowded: 4, Share: 5}
	for name, c := range map[string]struct {
		there []string // "address does seconds", in the order in which they came
		from  string
		goes  int // which of them; -1: none; -2: the new one finds no place
	}{
		"there are places":             {[]string{"10.0.0.1 silent 9", "10.0.0.1 stuck 9", "10.0.0.1 silent 9"}, "10.0.0.2", -1},
		"crowded: who is silent":       {[]string{"10.0.0.1 busy 0", "10.0.0.1 silent 1", "10.0.0.1 silent 3", "10.0.0.1 busy 0"}, "10.0.0.2", 2},
		"crowded: who takes nothing":   {[]string{"10.0.0.1 busy 0", "10.0.0.1 slow 0", "10.0.0.1 stuck 0", "10.0.0.1 busy 0"}, "10.0.0.2", 2},
		"crowded: nobody":              {[]string{"10.0.0.1 busy 0", "10.0.0.1 slow 0", "10.0.0.1 watched 99", "10.0.0.1 busy 0"}, "10.0.0.2", -1},
		"a stream that nobody takes":   {[]string{"10.0.0.1 busy 0", "10.0.0.1 watched 99", "10.0.0.1 toldLate 1", "10.0.0.1 busy 0"}, "10.0.0.2", 2},
		"not who has less":             {[]string{"10.0.0.2 silent 99", "10.0.0.1 busy 0", "10.0.0.1 busy 0", "10.0.0.1 busy 0"}, "10.0.0.1", -1},
		"who has most":                 {[]string{"10.0.0.2 silent 99", "10.0.0.1 silent 1", "10.0.0.1 busy 0", "10.0.0.1 busy 0", "10.0.0.3 silent 50"}, "10.0.0.4", 1},
		"full: who has more":           {[]string{"10.0.0.1 slow 0", "10.0.0.1 busy 0", "10.0.0.2 slow 0", "10.0.0.2 slow 0", "10.0.0.2 busy 0", "10.0.0.3 slow 0"}, "10.0.0.4", 2},
		"full: who has as much":        {[]string{"10.0.0.1 slow 0", "10.0.0.2 busy 0", "10.0.0.3 stuck 1", "10.0.0.4 stuck 2", "10.0.0.5 slow 0", "10.0.0.6 slow 0"}, "10.0.0.7", 3},
		"full: all have as much":       {[]string{"10.0.0.1 slow 0", "10.0.0.2 busy 0", "10.0.0.3 slow 0", "10.0.0.4 slow 0", "10.0.0.5 slow 0", "10.0.0.6 slow 0"}, "10.0.0.7", -2},
		"full: all are busy":           {[]string{"10.0.0.1 busy 0", "10.0.0.1 busy 0", "10.0.0.1 busy 0", "10.0.0.1 busy 0", "10.0.0.1 busy 0", "10.0.0.6 busy 0"}, "10.0.0.7", -2},
		"its share: its own":           {[]string{"10.0.0.1 busy 0", "10.0.0.1 busy 0", "10.0.0.1 silent 1", "10.0.0.1 busy 0", "10.0.0.1 busy 0"}, "10.0.0.1", 2},
		"its share: not what it takes": {[]string{"10.0.0.1 slow 0", "10.0.0.1 busy 0", "10.0.0.1 slow 0", "10.0.0.1 busy 0", "10.0.0.1 busy 0"}, "10.0.0.1", -2},
		"a /64: its other address":     {[]string{"fd00::1 slow 0", "fd00::1 busy 0", "fd00::1 busy 0", "fd00::1 busy 0", "fd00::2 silent 9"}, "fd00::3", 0},
		"all of a Unix socket":         {[]string{":: busy 0", ":: silent 9", ":: silent 1", ":: busy 0", ":: silent 1"}, "::", 1},
	} {
		t.Run(name, func(t *testing.T) {
			l := &Listener{Limits: limits}
			var all, as []*conn
			for _, x := range c.there {
				var from, does string
				var seconds int
				if _, err := fmt.Sscan(x, &from, &does, &seconds); err != nil {
					t.Fatal(err)
				}
				all, as = append(all, guest(l, from, busy, 0)), append(as, guest(l, from, does, time.Duration(seconds)*time.Second))
				if !l.enter(all[len(all)-1]) {
					t.Fatalf("%s finds no place", x)
				}
			}
			for i, g := range all {
				g.reading, g.writing, g.deadline = as[i].reading, as[i].writing, as[i].deadline
			}
			goes := -1
			if !l.enter(guest(l, c.from, busy, 0)) {
				goes = -2
			}
			for i, g := range all {
				if g.isClosed() {
					goes = i
				}
			}
			if goes != c.goes {
				t.Errorf("%d goes, want %d", goes, c.goes)
			}
		})
	}
}

// Whatever comes, no more than there are places are there, nobody has more than his
// share, whoever is worked for stays, and whoever has no place yet gets one if somebody
// has two that are not worked for.
func TestPlacesLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := &Listener{Limits: Limits{Most: 12, Crowded: 9, Share: 5}}
		var there []*conn
		for range rapid.IntRange(1, 60).Draw(t, "connections") {
			from := fmt.Sprintf("10.0.0.%d", rapid.IntRange(1, 8).Draw(t, "address"))
			if rapid.IntRange(0, 3).Draw(t, "IPv6") == 0 {
				from = fmt.Sprintf("fd00::%d", rapid.IntRange(1, 8).Draw(t, "address of one network"))
			}
			does := rapid.SampledFrom([]string{busy, silent, slow, stuck, watched, toldLate}).Draw(t, "does")
			g := guest(l, from, does, time.Duration(rapid.IntRange(0, 9).Draw(t, "seconds"))*time.Second)
			of := map[netip.Prefix]int{}
			loose := false
			for _, o := range there {
				of[Group(o.from)]++
			}
			for _, o := range there {
				since, _ := o.waits()
				loose = loose || of[Group(o.from)] > 1 && !since.IsZero()
			}
			entered := l.enter(g)
			if !entered && of[Group(g.from)] == 0 && loose {
				t.Fatalf("%s finds no place", from)
			}
			there = slices.DeleteFunc(there, func(o *conn) bool {
				since, _ := o.waits()
				if o.isClosed() && since.IsZero() {
					t.Fatalf("%s was worked for", o.from)
				}
				return o.isClosed()
			})
			if entered {
				there = append(there, g)
			}
			if len(there) > 1 && rapid.IntRange(0, 5).Draw(t, "one leaves") == 0 {
				there[0].Close()
				there = there[1:]
			}
			groups := map[netip.Prefix]int{}
			for _, o := range there {
				groups[Group(o.from)]++
			}
			if len(there) != len(l.open) || len(there) > l.Limits.Most || len(groups) != len(l.groups) {
				t.Fatalf("%d are there, %d are known: %v", len(there), len(l.open), l.groups)
			}
			for k, n := range groups {
				if n > l.Limits.Share || l.groups[k] != n {
					t.Fatalf("%s has %d, and is said to have %d", k, n, l.groups[k])
				}
			}
		}
	})
}

// served serves with a handler by net/http behind a Listener.
func served(t *testing.T, l *Listener, h http.HandlerFunc) string {
	t.Helper()
	var err error
	if l.Listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute, IdleTimeout: time.Minute, WriteTimeout: time.Minute}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	t.Cleanup(func() {
		_ = s.Close()
		<-ended
	})
	return l.Listener.Addr().String()
}

// from dials from an address, with little room for what it does not read.
func from(t *testing.T, ip, to string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}, Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096) })
	}}
	c, err := d.Dial("tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return c
}

const get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"

// Four addresses that take all they can get, and read nothing of it, keep nobody out: each
// of 75 others is served at once.
func TestFourThatDoNotRead(t *testing.T) {
	big := make([]byte, 256<<10)
	l := &Listener{Limits: Limits{Most: 128, Crowded: 96, Share: 32}}
	address := served(t, l, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(big) })
	for i := range 4 * 32 {
		_, _ = io.WriteString(from(t, fmt.Sprintf("127.0.0.%d", 2+i%4), address), strings.Repeat(get, 9))
	}
	await.Until(t, 20*time.Second, "they all read nothing", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		n := 0
		for c := range l.open {
			if _, takesNothing := c.waits(); takesNothing {
				n++
			}
		}
		return n >= 96
	})
	for i := range 75 {
		begin := time.Now()
		c := from(t, "127.0.0.9", address)
		_, _ = io.WriteString(c, get)
		if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || !strings.Contains(line, "200") || time.Since(begin) > time.Second {
			t.Errorf("number %d: %q, %v after %v", i, line, err, time.Since(begin))
		}
		c.Close()
	}
}

// A thousand clients that send nothing, or a byte now and then, or take no answer, hold up
// nobody, though all come from one address: others are answered, and no more are open than
// may be.
func TestSlowClients(t *testing.T) {
	l := &Listener{Limits: Limits{Most: 128, Crowded: 96, Share: 128}}
	address := served(t, l, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	var conns []net.Conn
	for i := range 1000 {
		c := from(t, "127.0.0.1", address)
		conns = append(conns, c)
		switch i % 4 {
		case 1:
			_, _ = io.WriteString(c, "GET / HT")
		case 2:
			_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\nCookie: ")
		case 3:
			_, _ = io.WriteString(c, get+"GET / H")
		}
		if i%100 == 99 {
			last := from(t, "127.0.0.1", address)
			_, _ = io.WriteString(last, get)
			if got, err := bufio.NewReader(last).ReadString('\n'); !strings.Contains(got, "200") {
				t.Errorf("after %d slow clients another gets %q, %v", i+1, got, err)
			}
			last.Close()
		}
	}
	open := 0
	for _, c := range conns {
		_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
		_, err := io.Copy(io.Discard, c)
		var late net.Error
		if errors.As(err, &late) && late.Timeout() {
			open++
		}
	}
	if open > l.Limits.Most {
		t.Errorf("%d connections are open, at most %d may be", open, l.Limits.Most)
	}
}

// One address has no more connections than its share, whoever finds no place is told, and
// others are served; whoever is not admitted gets nothing.
func TestShare(t *testing.T) {
	block := make(chan struct{})
	l := &Listener{Limits: Limits{Most: 128, Crowded: 96, Share: 3}, Refusal: []byte("full\n"),
		Admit: func(from, at netip.Addr) bool { return from != netip.MustParseAddr("127.0.0.4") && at.IsLoopback() }}
	address := served(t, l, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			<-block
		}
	})
	defer close(block)
	said := func(ip, path string) string {
		c := from(t, ip, address)
		_, _ = io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: a\r\n\r\n")
		line, _ := bufio.NewReader(c).ReadString('\n')
		return strings.TrimSpace(line)
	}
	for range 3 {
		_, _ = io.WriteString(from(t, "127.0.0.2", address), "GET /wait HTTP/1.1\r\nHost: a\r\n\r\n")
	}
	await.Until(t, 20*time.Second, "they are worked for", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		for c := range l.open {
			if since, _ := c.waits(); !since.IsZero() {
				return false
			}
		}
		return len(l.open) == 3
	})
	for _, x := range []struct{ ip, path, want string }{
		{"127.0.0.2", "/", "full"}, {"127.0.0.2", "/wait", "full"}, {"127.0.0.3", "/", "HTTP/1.1 200 OK"}, {"127.0.0.4", "/", ""},
	} {
		if got := said(x.ip, x.path); got != x.want {
			t.Errorf("%s: %q, want %q", x.ip, got, x.want)
		}
	}
}

// An error that passes, such as that too many files are open, does not end the service.
func TestErrorsThatPass(t *testing.T) {
	there, _ := net.Pipe()
	l := &Listener{Limits: Limits{Most: 1, Crowded: 1, Share: 1}, Listener: &failing{conns: []any{syscall.EMFILE, syscall.ECONNABORTED, there, net.ErrClosed}}}
	if c, err := l.Accept(); err != nil || c == nil {
		t.Errorf("%v, %v", c, err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("%v", err)
	}
}

// failing is a listener with connections, and errors in between.
type failing struct {
	net.Listener
	conns []any
}

func (f *failing) Accept() (net.Conn, error) {
	next := f.conns[0]
	f.conns = f.conns[1:]
	if err, ok := next.(error); ok {
		return nil, &net.OpError{Op: "accept", Err: err}
	}
	return next.(net.Conn), nil
}
