package netio

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"unbloat/unit"
)

// How often a receiver looks after its flows. Rarely is cheap; a flow that
// brings much at each look is looked after more often, so that it never waits
// for its window.
const (
	lazyTick   = 20 * time.Millisecond
	eagerTick  = 4 * time.Millisecond
	eagerBytes = 96 << 10
	lowWater   = 256 << 10
)

// A FlowError is a flow that broke, and when.
type FlowError struct {
	At   unit.Instant
	Flow int
	Err  error
}

func (e FlowError) Error() string { return fmt.Sprintf("flow %d: %v", e.Flow, e.Err) }

// A Receiver takes in and throws away what arrives on a group of TCP
// connections, and counts it in bins. On Linux one goroutine serves all flows
// at its own pace and the kernel wakes nobody in between.
type Receiver struct {
	clock  *Clock
	budget Budget
	began  unit.Instant
	flows  []*recvFlow
	tick   *ticker
	wg     sync.WaitGroup
	hotWg  sync.WaitGroup // of hot flows
	total  atomic.Int64

	mu     sync.Mutex // of every Bins and of errors
	errors []FlowError
}

type recvFlow struct {
	conn  *net.TCPConn
	raw   syscall.RawConn
	came  arrivals     // where the system reports them; else
	bins  Bins         // by the time of reading
	last  unit.Instant // when it last brought something
	ended bool
	hot   bool // a goroutine of its own reads it
}

// A Budget bounds what a group of flows may take: when it is used up, the
// flows end. Zero values bound nothing.
type Budget struct {
	Time  time.Duration
	Bytes unit.Size // exceeded by what is under way
	// Allowed gets now and then how many bytes have been moved so far, by
	// several goroutines; false ends the flows. It may be nil.
	Allowed func(moved int64) bool
}

// allowed asks the account behind the budget, if there is one.
func (b *Budget) allowed(moved int64) bool { return b.Allowed == nil || b.Allowed(moved) }

// ErrBudget ends flows whose Budget of bytes is used up.
var ErrBudget = errors.New("the byte budget is used up")

// NewReceiver starts to receive on conns, which it owns from then on.
func NewReceiver(clock *Clock, bin time.Duration, budget Budget, conns []*net.TCPConn) *Receiver {
	r := &Receiver{clock: clock, budget: budget, began: clock.Now(), tick: newTicker()}
	now := clock.Now()
	for _, c := range conns {
		f := &recvFlow{conn: c, bins: Bins{Start: now, Width: bin}, last: now}
		f.raw, _ = c.SyscallConn() // fails only on a nil connection
		_ = c.SetDeadline(time.Time{})
		f.came.every = bin
		f.mark(now)
		r.flows = append(r.flows, f)
	}
	if canDiscard {
		r.wg.Go(r.discardAll)
		return r
	}
	for i := range r.flows {
		r.wg.Go(func() { r.readOne(i) })
	}
	return r
}

// discardAll looks after all flows until it is stopped.
func (r *Receiver) discardAll() {
	for _, f := range r.flows {
		setLowWater(f.conn, lowWater)
	}
	pause := lazyTick
	for r.tick.wait(pause) {
		pause = lazyTick
		if r.sweep(false) > eagerBytes {
			pause = eagerTick
		}
		if r.over(r.clock.Now()) {
			r.end()
			r.hotWg.Wait()
			return
		}
	}
	r.cool()
	r.sweep(true)
	for _, f := range r.flows {
		f.mark(r.clock.Now())
	}
}

// hotRate is what a flow must bring to be read without pauses: between two
// looks its window would run full.
const hotRate = 2 * unit.GbitPerSecond

// readHot reads one flow as fast as it comes, until cool or its end.
func (r *Receiver) readHot(i int) {
	f := r.flows[i]
	for {
		n, ended, err := awaitDiscard(f.raw)
		r.mu.Lock()
		now := r.clock.Now()
		r.count(f, now, n)
		if !now.Before(f.came.next) {
			f.mark(now)
		}
		if err == nil && ended {
			err = io.EOF
		}
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			r.fail(i, now, err)
		}
		r.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// cool ends the goroutines of the hot flows.
func (r *Receiver) cool() {
	for _, f := range r.flows {
		_ = f.conn.SetReadDeadline(time.Unix(1, 0))
	}
	r.hotWg.Wait()
	for _, f := range r.flows {
		f.hot = false
		_ = f.conn.SetReadDeadline(time.Time{})
	}
}

// mark notes what has arrived by now.
func (f *recvFlow) mark(now unit.Instant) {
	if m, mss, err := readArrivals(f.raw); err == nil {
		m.at = now
		f.came.add(m, mss)
	}
}

// over reports whether the budget is used up.
func (r *Receiver) over(now unit.Instant) bool {
	return r.budget.Time > 0 && now.Sub(r.began) > r.budget.Time ||
		r.budget.Bytes > 0 && r.total.Load() > int64(r.budget.Bytes) || !r.budget.allowed(r.total.Load())
}

// end ends all flows because the budget is used up.
func (r *Receiver) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	for i, f := range r.flows {
		abort(f.conn)
		if !f.ended {
			r.fail(i, now, ErrBudget)
		}
	}
}

// sweep empties every flow once and returns the most that one of them brought.
// At the last sweep no flow is given a goroutine of its own any more.
func (r *Receiver) sweep(last bool) (most int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	for i, f := range r.flows {
		if f.ended || f.hot {
			continue
		}
		n, ended, err := discard(f.raw)
		if !last && float64(n)*8 > float64(hotRate)*now.Sub(f.last).Seconds() && n > lowWater {
			f.hot = true
			r.hotWg.Go(func() { r.readHot(i) })
		}
		r.count(f, now, n)
		if !now.Before(f.came.next) {
			f.mark(now)
		}
		most = max(most, n)
		if err == nil && ended {
			err = io.EOF
		}
		r.fail(i, now, err)
	}
	return most
}

// readOne reads one flow where the system cannot discard.
func (r *Receiver) readOne(i int) {
	f := r.flows[i]
	buf := make([]byte, 256<<10)
	for {
		n, err := f.conn.Read(buf)
		now := r.clock.Now()
		r.mu.Lock()
		r.count(f, now, n)
		if err == nil && r.over(now) {
			err = ErrBudget
		}
		r.fail(i, now, err)
		r.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// count books what a flow brought, evenly over the time since it last brought something.
func (r *Receiver) count(f *recvFlow, now unit.Instant, n int) {
	if n <= 0 {
		return
	}
	f.bins.Add(f.last, now, int64(n))
	f.last = now
	r.total.Add(int64(n))
}

func (r *Receiver) fail(i int, now unit.Instant, err error) {
	if err == nil {
		return
	}
	r.flows[i].ended = true
	if !isClosed(err) {
		r.errors = append(r.errors, FlowError{now, i, err})
	}
}

// Total returns how many bytes have arrived.
func (r *Receiver) Total() int64 { return r.total.Load() }

// Totals returns how many bytes each flow has brought.
func (r *Receiver) Totals() []int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]int64, len(r.flows))
	for i, f := range r.flows {
		out[i] = f.bins.Total
	}
	return out
}

// Ended reports whether every flow has ended.
func (r *Receiver) Ended() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.flows {
		if !f.ended {
			return false
		}
	}
	return true
}

// Stop closes the connections, waits for the goroutines, and returns the bins
// of every flow and the errors that ended flows, io.EOF for an orderly end.
func (r *Receiver) Stop() ([]Bins, []FlowError) {
	r.tick.close()
	if canDiscard {
		r.wg.Wait() // its last sweep wants open connections
	}
	for _, f := range r.flows {
		abort(f.conn)
	}
	r.wg.Wait()
	out := make([]Bins, len(r.flows))
	for i, f := range r.flows {
		out[i] = f.bins
		if len(f.came.marks) > 1 {
			out[i] = f.came.bins(f.bins.Start, f.bins.Width)
		}
	}
	return out, r.errors
}

// abort closes a connection at once and drops what its socket still holds.
func abort(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}
