package serve_test

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"unbloat/unit"
)

// A shape is a line that a test emulates on the loopback: a round trip time,
// and in each direction one FIFO bottleneck that all connections share. window
// limits what one connection may have in the FIFO, like a congestion window, so
// n greedy flows add exactly n × window / rate of latency.
type shape struct {
	rtt                  time.Duration
	down, up             unit.Rate
	windowDown, windowUp unit.Size
	loseEvery            int  // one of about this many of a client's datagrams is lost; 0: none
	noUDP                bool // as behind a firewall that only lets TCP through
	late                 *lateness
}

// lateness counts how well a shape kept its schedule. On a busy machine it does
// not, and then the test would measure that.
type lateness struct{ parcels, late atomic.Int64 }

const (
	lateBy    = 3 * time.Millisecond
	mostLate  = 0.02 // share of late parcels up to which figures of the 95th percentile are right
	leastSeen = 1000 // parcels
)

func (l *lateness) note(due time.Time) {
	l.parcels.Add(1)
	if time.Since(due) > lateBy {
		l.late.Add(1)
	}
}

// punctual skips the test if the emulated line was too late too often.
func (l *lateness) punctual(t *testing.T) {
	t.Helper()
	n, late := l.parcels.Load(), l.late.Load()
	t.Logf("of %d parcels %d left the emulated line more than %v late", n, late, lateBy)
	if n >= leastSeen && float64(late) > mostLate*float64(n) {
		t.Skipf("SKIPPED: this machine is too busy to emulate a line: %.1f %% of what it carried was more than %v late", 100*float64(late)/float64(n), lateBy)
	}
}

// added returns the latency that n flows add.
func added(n int, window unit.Size, rate unit.Rate) time.Duration {
	return rate.Time(unit.Size(n) * window)
}

// proxy forwards TCP and UDP to the same port of target through the shape, until the test ends.
func (s shape) proxy(t *testing.T, target string) (address string) {
	t.Helper()
	// With segments of the loopback's size the browser's socket would get
	// megabytes of send buffer, which takes long to drain after an upload.
	small := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		return errors.Join(c.Control(func(fd uintptr) {
			err = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_MAXSEG, 1400)
		}), err)
	}}
	l, err := small.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	quit := make(chan struct{})
	down := &bottleneck{rate: s.down, window: s.windowDown, delay: s.rtt / 2, queue: make(chan parcel, 4096), late: s.late, quit: quit}
	up := &bottleneck{rate: s.up, window: s.windowUp, delay: s.rtt / 2, queue: make(chan parcel, 4096), late: s.late, quit: quit}
	wg.Go(down.run)
	wg.Go(up.run)
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	keep := func(c net.Conn) { mu.Lock(); open[c] = true; mu.Unlock() }
	if !s.noUDP {
		wg.Go(func() { datagrams(t, &wg, l.Addr().String(), target, s.loseEvery, up, down, quit) })
	}
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			d, err := net.Dial("tcp", target)
			if err != nil {
				c.Close()
				continue
			}
			// Unread data must not wait in the kernel, where probes would not
			// meet it.
			_ = c.(*net.TCPConn).SetReadBuffer(32 << 10)
			_ = d.(*net.TCPConn).SetReadBuffer(32 << 10)
			keep(c)
			keep(d)
			wg.Go(func() { up.carry(&wg, d, c) })
			wg.Go(func() { down.carry(&wg, c, d) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		close(quit)
		mu.Lock()
		for c := range open {
			c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return l.Addr().String()
}

// A bottleneck is one direction of the line.
type bottleneck struct {
	rate   unit.Rate
	window unit.Size
	delay  time.Duration
	queue  chan parcel
	late   *lateness // nil: not counted
	quit   chan struct{}
}

// A parcel is the data of one read. One without data is the last of its flow.
type parcel struct {
	data []byte
	in   time.Time     // when it arrived
	at   time.Time     // when it leaves the far end
	room chan struct{} // its part of its flow's window
	to   chan parcel   // the far end
}

const piece = 2 << 10 // bytes

// carry forwards what src sends to dst. When src ends dst is closed, after
// everything that is on the way; when dst fails src is closed at once.
func (b *bottleneck) carry(wg *sync.WaitGroup, dst io.WriteCloser, src io.ReadCloser) {
	room := make(chan struct{}, max(int(b.window)/piece, 1))
	to := make(chan parcel, 8192) // data on the way: more than rate × delay
	wg.Go(func() { b.deliver(dst, src, to) })
	for {
		select {
		case room <- struct{}{}:
		case <-b.quit:
			return
		}
		data := make([]byte, piece)
		n, err := src.Read(data)
		if err != nil {
			n = 0
		}
		select {
		case b.queue <- parcel{data: data[:n], in: time.Now(), room: room, to: to}:
		case <-b.quit:
			return
		}
		if err != nil {
			return
		}
	}
}

func (b *bottleneck) deliver(dst io.WriteCloser, src io.Closer, to chan parcel) {
	defer dst.Close()
	broken := false
	for {
		select {
		case p := <-to:
			time.Sleep(time.Until(p.at))
			if len(p.data) == 0 {
				return
			}
			if b.late != nil {
				b.late.note(p.at)
			}
			if _, err := dst.Write(p.data); err != nil && !broken {
				broken = true
				src.Close()
			}
		case <-b.quit:
			return
		}
	}
}

// run serves the queue at the line's rate.
func (b *bottleneck) run() {
	free := time.Now()
	for {
		select {
		case p := <-b.queue:
			if free.Before(p.in) { // the queue was empty; compensates for a late timer
				free = p.in
			}
			free = free.Add(b.rate.Time(unit.Size(len(p.data))))
			time.Sleep(time.Until(free))
			<-p.room
			p.at = free.Add(b.delay)
			select {
			case p.to <- p:
			case <-b.quit:
				return
			}
		case <-b.quit:
			return
		}
	}
}

// datagrams forwards UDP, through the same queues as TCP.
func datagrams(t *testing.T, wg *sync.WaitGroup, address, target string, loseEvery int, up, down *bottleneck, quit chan struct{}) {
	local, err := net.ListenPacket("udp", address)
	if err != nil {
		t.Logf("no UDP on the port that TCP has: %v", err)
		return
	}
	wg.Go(func() { <-quit; local.Close() })
	peers := map[string]*peer{}
	random := rand.New(rand.NewPCG(1, 2))
	for {
		data := make([]byte, piece)
		n, from, err := local.ReadFrom(data)
		if err != nil {
			return
		}
		p := peers[from.String()]
		if p == nil {
			p = &peer{local: local, addr: from, in: make(chan []byte, 1024), quit: quit, lose: 50}
			peers[from.String()] = p
			far, err := net.Dial("udp", target)
			if err != nil {
				t.Errorf("dial %s: %v", target, err)
				return
			}
			wg.Go(func() { <-quit; far.Close() })
			// Datagrams have no window, they only must fit into the queue.
			u, d := *up, *down
			u.window, d.window = 1<<20, 1<<20
			wg.Go(func() { u.carry(wg, far, p) })
			wg.Go(func() { d.carry(wg, p, far) })
		}
		if p.seen++; loseEvery > 0 && p.seen > p.lose {
			// If probes and acknowledgements alternate, a fixed interval would
			// hit only one kind.
			p.lose += loseEvery/2 + random.IntN(loseEvery+1)
			continue
		}
		select {
		case p.in <- data[:n]:
		default: // dropped, as with a full socket buffer
		}
	}
}

// A peer is a UDP client.
type peer struct {
	local net.PacketConn
	addr  net.Addr
	in    chan []byte
	seen  int // datagrams from it
	lose  int // datagrams until the next loss
	quit  chan struct{}
}

func (p *peer) Read(b []byte) (int, error) {
	select {
	case d := <-p.in:
		return copy(b, d), nil
	case <-p.quit:
		return 0, net.ErrClosed
	}
}

func (p *peer) Write(b []byte) (int, error) { return p.local.WriteTo(b, p.addr) }

func (p *peer) Close() error { return nil }
