package serve

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"unbloat/testkit/await"
)

// For an attack of 12 s with 46,000 refusals the log has one line per minute
// and kind, and no kind and no count is lost.
func TestRefusalsInSums(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &notes{}
		ctx, stop := context.WithCancel(t.Context())
		r := newRefusals()
		var done sync.WaitGroup
		done.Go(func() { r.tell(ctx, slog.New(slog.NewTextHandler(log, nil))) })
		kinds := []refusedKind{{"unbloat", "malformed"}, {"irtt", "malformed"}, {"web", "no request"}}
		for i := range 46_000 {
			r.add(kinds[i%len(kinds)].protocol, kinds[i%len(kinds)].reason)
			time.Sleep(12 * time.Second / 46_000)
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if n := strings.Count(log.String(), "\n"); n != len(kinds) {
			t.Errorf("%d lines:\n%s", n, log)
		}
		r.add("web", "key")
		stop()
		done.Wait()
		for _, want := range []string{"protocol=unbloat reason=malformed count=15334 ever=15334", "protocol=irtt reason=malformed count=15333", "reason=\"no request\" count=15333", "reason=key count=1 ever=1"} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("no %q in:\n%s", want, log)
			}
		}
	})
}

// Garbage on every port does not make a line in the log for each piece, and the
// log does not contain the sender's address.
func TestGarbageIsNotLogged(t *testing.T) {
	s, log := logged(t, Limits{Handshake: time.Second})
	before := strings.Count(log.String(), "\n")
	rng := rand.New(rand.NewPCG(3, 3))
	junk := func() []byte {
		b := make([]byte, 1+rng.IntN(300))
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return b
	}
	const pieces = 400
	for _, network := range []string{"udp", "tcp"} {
		to := []string{s.Addr().String(), s.Iperf3().String(), s.Web().String()}
		if network == "udp" {
			to = []string{s.Addr().String(), s.Irtt().String()}
		}
		for range pieces {
			for _, address := range to {
				c, err := net.Dial(network, address)
				if err != nil {
					t.Fatal(err)
				}
				_, _ = c.Write(junk())
				c.Close()
			}
		}
	}
	sum := func() (n int64) {
		_, counts := s.refusals.all()
		for _, k := range counts {
			n += k
		}
		return n
	}
	if !await.True(30*time.Second, func() bool { return sum() >= 4*pieces }) {
		t.Errorf("%d refusals of %d pieces of garbage are counted", sum(), 5*pieces)
	}
	if n := strings.Count(log.String(), "\n"); n != before {
		t.Errorf("%d lines of log before a minute was over:\n%.2000s", n-before, log)
	}
	s.refusals.sum(s.log)
	kinds, _ := s.refusals.all()
	if n := strings.Count(log.String(), "\n") - before; n != len(kinds) || strings.Contains(log.String(), "127.0.0.1:") && strings.Contains(log.String(), "from=") {
		t.Errorf("%d lines for %d kinds:\n%s", n, len(kinds), log)
	}
}

// A server that drains refuses new sessions, lets a running one open new data
// connections, and ends when that ends, or after the given time.
func TestDrain(t *testing.T) {
	const any = "127.0.0.1:0"
	begin := func(t *testing.T, drain time.Duration) (s *Server, stop func(), done chan error) {
		s, err := Listen(Options{Listen: any, Metrics: any, Drain: drain})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		t.Cleanup(cancel)
		done = make(chan error, 1)
		go func() { done <- s.Serve(ctx) }()
		return s, cancel, done
	}
	ended := func(t *testing.T, done chan error) {
		t.Helper()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("the server does not end")
		}
	}
	t.Run("sessions end", func(t *testing.T) {
		s, stop, done := begin(t, time.Hour)
		p := dial(t, s)
		token := p.must(hello).Token
		stop()
		await.Until(t, 10*time.Second, "new sessions to be refused", func() bool {
			late := dial(t, s)
			defer late.Close() // before the server has seen that it is to stop, this is a session
			r, ok := late.ask(hello)
			return ok && strings.Contains(r.Error, "restarted")
		})
		if code, _ := ready(t, s); code != 503 {
			t.Errorf("ready: %d", code)
		}
		d := dial(t, s)
		d.must(fmt.Sprintf(`{"op":"data","token":%q,"group":1,"dir":"down"}`, token))
		p.must(`{"op":"start","group":1,"flows":1,"limit_ns":50000000}`)
		if r := p.must(`{"op":"stop","group":1}`); r.Load == nil {
			t.Error("no report of the load")
		}
		select {
		case err := <-done:
			t.Fatalf("it ended with a session: %v", err)
		default:
		}
		p.Close()
		ended(t, done)
	})
	t.Run("its time is up", func(t *testing.T) {
		s, stop, done := begin(t, 100*time.Millisecond)
		dial(t, s).must(hello)
		stop()
		ended(t, done)
	})
	t.Run("nobody is there", func(t *testing.T) {
		s, stop, done := begin(t, time.Hour)
		if code, text := ready(t, s); code != 200 {
			t.Errorf("ready: %d %s", code, text)
		}
		stop()
		ended(t, done)
	})
}

// ready asks the server whether it takes new sessions.
func ready(t *testing.T, s *Server) (code int, text string) {
	t.Helper()
	c, err := net.Dial("tcp", s.Metrics().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "GET /ready HTTP/1.0\r\n\r\n")
	if _, err := fmt.Fscanf(bufio.NewReader(c), "HTTP/1.0 %d %s", &code, &text); err != nil {
		t.Fatal(err)
	}
	return code, text
}
