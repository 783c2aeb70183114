package page

import (
	"net"
	"sync"
	"testing"
	"time"

	"unbloat/unit"
)

// A shape is a line that a test draws over the loopback: a round trip, and each
// way one FIFO bottleneck that all connections share. window bounds what one
// connection may have in the FIFO, as its congestion window would, so that n
// greedy flows add n × window / rate of queueing, exactly.
type shape struct {
	rtt                  time.Duration
	down, up             unit.Rate
	windowDown, windowUp unit.Size
}

// added returns the latency that n flows add.
func added(n int, window unit.Size, rate unit.Rate) time.Duration {
	return rate.Time(unit.Size(n) * window)
}

// proxy forwards TCP to target through the shape, until the test ends.
func (s shape) proxy(t *testing.T, target string) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	quit := make(chan struct{})
	down := &bottleneck{rate: s.down, window: s.windowDown, delay: s.rtt / 2, queue: make(chan parcel, 4096), quit: quit}
	up := &bottleneck{rate: s.up, window: s.windowUp, delay: s.rtt / 2, queue: make(chan parcel, 4096), quit: quit}
	wg.Go(down.run)
	wg.Go(up.run)
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	keep := func(c net.Conn) { mu.Lock(); open[c] = true; mu.Unlock() }
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
			// What is not read yet must not wait in the kernel, which probes do not see.
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

// A bottleneck is one way of the line.
type bottleneck struct {
	rate   unit.Rate
	window unit.Size
	delay  time.Duration
	queue  chan parcel
	quit   chan struct{}
}

// A parcel is what one read brought; one without data is the last of its flow.
type parcel struct {
	data []byte
	at   time.Time     // when it leaves the far end
	room chan struct{} // what it occupies of its flow's window
	to   chan parcel   // the far end
}

const piece = 2 << 10 // bytes

// carry brings what src sends to dst. When src ends, so does dst, after all
// that is on its way; when dst breaks, src is closed at once.
func (b *bottleneck) carry(wg *sync.WaitGroup, dst, src net.Conn) {
	room := make(chan struct{}, max(int(b.window)/piece, 1))
	to := make(chan parcel, 8192) // what flies: more than rate × delay
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
		case b.queue <- parcel{data: data[:n], room: room, to: to}:
		case <-b.quit:
			return
		}
		if err != nil {
			return
		}
	}
}

func (b *bottleneck) deliver(dst, src net.Conn, to chan parcel) {
	defer dst.Close()
	broken := false
	for {
		select {
		case p := <-to:
			time.Sleep(time.Until(p.at))
			if len(p.data) == 0 {
				return
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
			if now := time.Now(); free.Before(now) {
				free = now
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
