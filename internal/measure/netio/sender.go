package netio

import (
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"unbloat/internal/measure/probe"
	"unbloat/unit"
)

const (
	// payloadSize is what one Write hands over: a sender sleeps in it for as
	// long as the network takes, and the kernel wakes it when a third of its
	// buffer is free, not at every segment. Not more, because a kernel that
	// copies a megabyte at once sends no probe meanwhile on a slow processor.
	payloadSize = 1 << 17
	sampleEvery = 500 * time.Millisecond
	// askEvery is after how many bytes the budget is asked, besides every sample.
	askEvery   = 16 << 20
	maxSamples = 1 << 14
)

// Payload returns incompressible bytes for senders to share.
func Payload() []byte { return Incompressible(payloadSize) }

// Incompressible returns n bytes that cannot be compressed.
func Incompressible(n unit.Size) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{7}).Read(b) // never fails
	return b
}

// A Sender sends as much as the network takes on a group of TCP connections.
type Sender struct {
	clock   *Clock
	conns   []*net.TCPConn
	budget  Budget
	tick    *ticker
	wg      sync.WaitGroup
	written atomic.Int64 // in whole payloads
	each    []atomic.Int64
	ended   atomic.Bool

	mu      sync.Mutex
	samples []probe.SenderSample
	errors  []FlowError
}

// NewSender starts to send payload over and over on conns, which it owns from
// then on.
func NewSender(clock *Clock, payload []byte, budget Budget, conns []*net.TCPConn) *Sender {
	s := &Sender{clock: clock, conns: conns, budget: budget, tick: newTicker(), each: make([]atomic.Int64, len(conns))}
	for i, c := range conns {
		_ = c.SetDeadline(time.Time{})
		s.wg.Go(func() { s.send(i, payload) })
	}
	s.wg.Go(s.watch)
	return s
}

func (s *Sender) send(i int, payload []byte) {
	for {
		n, err := s.conns[i].Write(payload)
		s.each[i].Add(int64(n))
		sum := s.written.Add(int64(n))
		if err == nil && s.budget.Bytes > 0 && sum > int64(s.budget.Bytes) {
			err = ErrBudget
			abort(s.conns[i])
		}
		if before := sum - int64(n); err == nil && sum/askEvery != before/askEvery && !s.budget.allowed(sum) {
			err = ErrBudget
			abort(s.conns[i])
		}
		if err != nil {
			s.mu.Lock()
			if !isClosed(err) {
				s.errors = append(s.errors, FlowError{s.clock.Now(), i, err})
			}
			s.mu.Unlock()
			return
		}
	}
}

// Overrun is how long a sender whose time is up goes on at most, until what it
// had sent by then has arrived in order: the receiver cannot count what waits
// behind a hole, and a line with a long queue may owe it seconds of data.
const Overrun = 4 * time.Second

// watch samples the sockets until the budget of time is used up, and ends the flows.
func (s *Sender) watch() {
	defer func() {
		s.sample()
		for _, c := range s.conns {
			abort(c)
		}
		s.ended.Store(true)
	}()
	start := s.clock.Now()
	s.sample()
	for {
		pause := sampleEvery
		if s.budget.Time > 0 {
			pause = min(pause, start.Add(s.budget.Time).Sub(s.clock.Now()))
		}
		if pause <= 0 {
			break
		}
		if !s.tick.wait(pause) {
			return
		}
		s.sample()
		if !s.budget.allowed(s.written.Load()) {
			return
		}
	}
	s.finish(s.clock.Now().Add(Overrun))
}

// finish waits until every hole that is there now has been filled.
func (s *Sender) finish(deadline unit.Instant) {
	due := make([]uint64, len(s.conns)) // bytes that are to be acknowledged
	for i, c := range s.conns {
		if f, err := readFlow(c); err == nil && f.sacked > 0 {
			due[i] = f.acked + uint64(f.inFlight)*uint64(f.mss)
		}
	}
	open := func(i int) bool {
		f, err := readFlow(s.conns[i])
		return err == nil && f.acked < due[i]
	}
	for i := range s.conns {
		for open(i) && s.clock.Now().Before(deadline) {
			if !s.tick.wait(lazyTick) {
				return
			}
		}
	}
}

// look sums up the sockets as they are now.
func (s *Sender) look() probe.SenderSample { return LookAt(s.clock, s.conns) }

// LookAt sums up sending sockets as they are now.
func LookAt(clock *Clock, conns []*net.TCPConn) probe.SenderSample {
	sum := probe.SenderSample{At: clock.Now(), Flows: len(conns), Known: true}
	for _, c := range conns {
		f, err := readFlow(c)
		if err != nil && !errors.Is(err, net.ErrClosed) {
			sum.Known = false
		}
		sum.Busy += f.busy
		sum.RwndLimited += f.rwndLimited
		sum.BufLimited += f.bufLimited
		sum.Retransmits += int64(f.retransmits)
		sum.Acked += int64(f.acked)
		sum.Sacked += int64(f.sacked) * int64(f.mss)
		sum.Unsent += int64(f.unsent)
	}
	return sum
}

// flowState is what the system knows of one sending socket (tcp_info of Linux).
type flowState struct {
	busy, rwndLimited, bufLimited              time.Duration
	retransmits, unsent, sacked, inFlight, mss uint32 // segments, bytes, segments, segments, bytes
	acked                                      uint64 // bytes
}

func (s *Sender) sample() {
	sum := s.look()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.samples) < maxSamples {
		s.samples = append(s.samples, sum)
	}
}

// Acked returns how many bytes have been acknowledged; 0 where the system does not tell.
func (s *Sender) Acked() int64 { return s.look().Acked }

// Moved returns how many bytes the connections have taken, whole payloads only
// while a flow lasts.
func (s *Sender) Moved() int64 { return s.written.Load() }

// Written returns how many bytes each connection has taken, as Moved does.
func (s *Sender) Written() []int64 {
	out := make([]int64, len(s.each))
	for i := range s.each {
		out[i] = s.each[i].Load()
	}
	return out
}

// Pause ends the sending and leaves the connections open, so that what their
// sockets hold still goes out. Stop must follow.
func (s *Sender) Pause() {
	for _, c := range s.conns {
		_ = c.SetWriteDeadline(time.Unix(1, 0))
	}
	s.sample()
}

// Ended reports whether the flows have ended, by budget or by Stop.
func (s *Sender) Ended() bool { return s.ended.Load() }

// Stop ends the flows, drops what their sockets still hold, and waits.
func (s *Sender) Stop() ([]probe.SenderSample, []FlowError) {
	s.tick.close()
	s.wg.Wait()
	return s.samples, s.errors
}
