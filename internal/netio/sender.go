package netio

import (
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"unbloat/internal/probe"
)

const (
	// payloadSize is what one Write hands over: a sender sleeps in it for as
	// long as the network takes, and the kernel wakes it when a third of its
	// buffer is free, not at every segment.
	payloadSize = 1 << 20
	sampleEvery = 500 * time.Millisecond
	maxSamples  = 1 << 14
)

// Payload returns incompressible bytes for senders to share.
func Payload() []byte {
	b := make([]byte, payloadSize)
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

	mu      sync.Mutex
	samples []probe.SenderSample
	errors  []FlowError
}

// NewSender starts to send payload over and over on conns, which it owns from
// then on.
func NewSender(clock *Clock, payload []byte, budget Budget, conns []*net.TCPConn) *Sender {
	s := &Sender{clock: clock, conns: conns, budget: budget, tick: newTicker()}
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
		if sum := s.written.Add(int64(n)); err == nil && s.budget.Bytes > 0 && sum > int64(s.budget.Bytes) {
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

// watch samples the sockets until the budget of time is used up, and ends the flows.
func (s *Sender) watch() {
	start := s.clock.Now()
	s.sample()
	for {
		pause := sampleEvery
		if s.budget.Time > 0 {
			pause = min(pause, start.Add(s.budget.Time).Sub(s.clock.Now()))
		}
		if pause <= 0 || !s.tick.wait(pause) {
			break
		}
		s.sample()
	}
	s.sample()
	for _, c := range s.conns {
		abort(c)
	}
}

// look sums up the sockets as they are now.
func (s *Sender) look() probe.SenderSample {
	sum := probe.SenderSample{At: s.clock.Now(), Flows: len(s.conns), Known: true}
	for _, c := range s.conns {
		if err := addTCPInfo(c, &sum); err != nil && !errors.Is(err, net.ErrClosed) {
			sum.Known = false
		}
	}
	return sum
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

// Stop ends the flows, drops what their sockets still hold, and waits.
func (s *Sender) Stop() ([]probe.SenderSample, []FlowError) {
	s.tick.close()
	s.wg.Wait()
	return s.samples, s.errors
}
