package netio

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"pgregory.net/rapid"

	"unbloat/testkit/await"
	"unbloat/unit"
)

// Law: the bins together hold everything that arrived after their start, at any
// times.
func TestBinsKeepEveryByte(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := Bins{Start: 1000, Width: time.Duration(rapid.Int64Range(1, 500).Draw(t, "width"))}
		at := unit.Instant(rapid.Int64Range(1000, 2000).Draw(t, "from"))
		var total int64
		for range rapid.IntRange(0, 30).Draw(t, "reads") {
			next := at.Add(time.Duration(rapid.Int64Range(-5, 2000).Draw(t, "gap")))
			n := rapid.Int64Range(0, 1e9).Draw(t, "bytes")
			b.Add(max(at, b.Start), max(next, b.Start), n)
			total += n
			at = max(next, b.Start)
		}
		var sum int64
		for _, n := range b.Bytes {
			if n < 0 {
				t.Fatalf("a bin of %d", n)
			}
			sum += n
		}
		if sum != total || b.Total != total {
			t.Fatalf("bins hold %d, total %d, want %d", sum, b.Total, total)
		}
	})
}

func TestBinsSplitInProportion(t *testing.T) {
	b := Bins{Start: 100, Width: 10}
	b.Add(105, 125, 2000)
	b.Add(90, 110, 200) // half of the time is before the start
	if len(b.Bytes) != 3 || b.Bytes[0] != 600 || b.Bytes[1] != 1000 || b.Bytes[2] != 500 || b.Total != 2200 {
		t.Errorf("%+v", b)
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1 2 3 4 5 6 7 8 9 10\nintr 1\n"))
	f.Add([]byte("cpu0 1 2 3\n"))
	f.Add([]byte("cpu0 x 2 3 4 5"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, c := range must(parseStat(b)) {
			if c.busy > c.total {
				t.Skip("counters that overflow") // eight counters may overflow
			}
		}
	})
}

func must(c []cpuTime, _ error) []cpuTime { return c }

func TestBusiest(t *testing.T) {
	m := &CPUMeter{}
	got, err := m.Busiest()
	if errors.Is(err, ErrNotSupported) {
		t.Skip("SKIPPED: no processor load on this system")
	}
	if err == nil {
		t.Errorf("a meter without a beginning says %v", got)
	}
	if got, err = m.Busiest(); err != nil || got < 0 || got > 1 {
		t.Errorf("busiest %v, %v", got, err)
	}
}

// A changed clock is believed after two readings that agree, and time stamps
// follow it.
func TestStamper(t *testing.T) {
	base := time.Now()
	c := &Clock{base: base}
	s := stamper{clock: c}
	s.look()
	s.look()
	now := c.Now()
	if s.steps != 0 || s.instant(int64(now)-5, now) != now-5 {
		t.Errorf("no step: %d steps, stamp moved by %v", s.steps, now.Sub(s.instant(int64(now)-5, now)))
	}
	s.step, s.suspect = -time.Minute, -time.Minute // set back earlier, and now forward again
	s.look()
	if s.steps != 0 {
		t.Error("one look is taken for a step")
	}
	s.look()
	if s.steps != 1 {
		t.Errorf("%d steps", s.steps)
	}
	for _, kernel := range []int64{0, int64(now) + 1, int64(now) - int64(time.Minute)} {
		if got := s.instant(kernel, now); !near(got.Sub(now), 0) {
			t.Errorf("a stamp of %d is taken as %d", kernel, got)
		}
	}
}

func TestSleeper(t *testing.T) {
	c := NewClock()
	s, err := NewSleeper(c)
	if err != nil {
		t.Fatal(err)
	}
	sleeps(t, c, s)
}

func TestTimerSleeper(t *testing.T) {
	c := NewClock()
	sleeps(t, c, NewTimerSleeper(c))
}

func sleeps(t *testing.T, c *Clock, s interface {
	Until(unit.Instant) bool
	Close()
}) {
	for _, d := range []time.Duration{-time.Second, 0, time.Microsecond, 5 * time.Millisecond} {
		at := c.Now().Add(d)
		if !s.Until(at) || c.Now().Before(at) {
			t.Errorf("slept until %v before %v", at.Sub(c.Now()), d)
		}
	}
	if n := testing.AllocsPerRun(20, func() { s.Until(c.Now()) }); n > 0 {
		t.Errorf("%.0f allocations for each sleep", n)
	}
	woken := make(chan bool)
	go func() { woken <- s.Until(c.Now().Add(time.Hour)) }()
	s.Close()
	if <-woken {
		t.Error("a closed sleeper slept on")
	}
	for range 20 {
		if s.Until(c.Now()) {
			t.Error("a closed sleeper sleeps")
		}
	}
	s.Close()
}

// A datagram there and back has kernel time stamps between our own.
func TestDatagrams(t *testing.T) {
	for _, listen := range []string{"127.0.0.1:0", "[::1]:0", ":0"} {
		t.Run(listen, func(t *testing.T) {
			c := NewClock()
			s, err := ListenPackets(c, listen)
			if err != nil && listen == "[::1]:0" {
				t.Skip("SKIPPED: no IPv6 here")
			} else if err != nil {
				t.Fatal(err)
			}
			done := make(chan error)
			go func() {
				done <- s.Serve(func(_ *Peer, _ unit.Instant, b []byte) []byte { return b })
			}()
			to := s.Addr()
			if to.Addr().IsUnspecified() {
				to = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.2"), to.Port())
			}
			d, err := DialDatagram(c, to, 0)
			if err != nil {
				t.Fatal(err)
			}
			sent := c.Now()
			if err := d.Send([]byte("hello")); err != nil {
				t.Fatal(err)
			}
			got := ""
			await.True(10*time.Second, func() bool {
				if err := d.Drain(func(at unit.Instant, b []byte) {
					got = string(b)
					if at.Before(sent) || c.Now().Before(at) {
						t.Errorf("arrived %v after sending, read %v after it", at.Sub(sent), c.Now().Sub(at))
					}
				}); err != nil {
					t.Fatal(err)
				}
				return got != ""
			})
			if got != "hello" {
				t.Errorf("answer %q", got) // it must come from 127.0.0.2, or the connected socket drops it
			}
			if err := errors.Join(d.Close(), s.Close(), <-done); err != nil {
				t.Error(err)
			}
		})
	}
}

// pair returns the two ends of a TCP connection.
func pair(t *testing.T) (a, b *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err = DialTCP(context.Background(), l.Addr().String(), 10*time.Second, TCPOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return a, c.(*net.TCPConn)
}

func pairs(t *testing.T, n int) (a, b []*net.TCPConn) {
	for range n {
		x, y := pair(t)
		a, b = append(a, x), append(b, y)
	}
	return a, b
}

// What is sent arrives, and is counted once.
func TestSenderToReceiver(t *testing.T) {
	c := NewClock()
	a, b := pairs(t, 3)
	r := NewReceiver(c, 10*time.Millisecond, Budget{}, b)
	s := NewSender(c, Payload(), Budget{Time: 200 * time.Millisecond}, a)
	await.Until(t, 20*time.Second, "the flows to end", r.Ended)
	samples, broke := s.Stop()
	bins, ended := r.Stop()
	if len(samples) < 2 || len(broke) != 0 || len(ended) != 3 || len(bins) != 3 {
		t.Fatalf("%d samples, sender %v, receiver %v", len(samples), broke, ended)
	}
	last := samples[len(samples)-1]
	if last.Known && (last.Flows != 3 || last.Busy <= 0 || last.Acked <= 0) {
		t.Errorf("sender %+v", last)
	}
	var total int64
	for _, f := range bins {
		if f.Total == 0 {
			t.Error("a flow brought nothing")
		}
		total += f.Total
	}
	if total != r.Total() || last.Known && total+int64(last.Flows) < last.Acked {
		t.Errorf("received %d, total %d, acknowledged %d (each SYN counts as one)", total, r.Total(), last.Acked)
	}
}

// A closed connection, a broken one, and our own stop are distinguished.
func TestReceiverErrors(t *testing.T) {
	c := NewClock()
	a, b := pairs(t, 2)
	r := NewReceiver(c, time.Second, Budget{}, b)
	_, _ = a[0].Write(make([]byte, 1000))
	a[0].Close()
	abort(a[1])
	await.Until(t, 20*time.Second, "the flows to end", r.Ended)
	bins, errs := r.Stop()
	if n := bins[0].Total; n < 1000 || n > 1001 || len(errs) != 2 { // the kernel counts the FIN as a byte
		t.Fatalf("%d bytes, errors %v", bins[0].Total, errs)
	}
	for _, e := range errs {
		if eof := errors.Is(e.Err, io.EOF); eof != (e.Flow == 0) {
			t.Errorf("%v", e)
		}
	}
	_, b = pairs(t, 1)
	if _, errs := NewReceiver(c, time.Second, Budget{}, b).Stop(); len(errs) != 0 {
		t.Errorf("our own stopping: %v", errs)
	}
}

// broken returns how many flows have failed so far.
func (s *Sender) broken() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.errors)
}

// Budgets end flows at both ends.
func TestBudget(t *testing.T) {
	c := NewClock()
	a, b := pairs(t, 1)
	r := NewReceiver(c, time.Second, Budget{Bytes: 100}, b)
	s := NewSender(c, Payload(), Budget{}, a)
	await.Until(t, 20*time.Second, "the flows to end", r.Ended)
	await.Until(t, 20*time.Second, "the sender to hear of it", func() bool { return s.broken() > 0 })
	_, broke := s.Stop()
	_, ended := r.Stop()
	if len(ended) != 1 || !errors.Is(ended[0].Err, ErrBudget) || len(broke) != 1 {
		t.Errorf("receiver's budget: receiver %v, sender %v", ended, broke)
	}
	a, b = pairs(t, 1)
	r = NewReceiver(c, time.Second, Budget{}, b)
	s = NewSender(c, Payload(), Budget{Bytes: 100}, a)
	await.Until(t, 20*time.Second, "the flows to end", r.Ended)
	_, broke = s.Stop()
	r.Stop()
	if len(broke) != 1 || !errors.Is(broke[0].Err, ErrBudget) {
		t.Errorf("sender's budget: %v", broke)
	}
}

func TestUnknownCongestionControl(t *testing.T) {
	_, err := DialTCP(context.Background(), "127.0.0.1:9", time.Second, TCPOptions{CC: "nonesuch"})
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("error %v", err)
	}
	t.Log(err)
}
