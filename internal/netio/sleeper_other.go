//go:build !linux

package netio

import (
	"sync"
	"time"

	"unbloat/unit"
)

// A Sleeper wakes one goroutine at exact instants.
type Sleeper struct {
	clock *Clock
	timer *time.Timer
	done  chan struct{}
	once  sync.Once
}

// NewSleeper returns a sleeper; Close frees it.
func NewSleeper(c *Clock) (*Sleeper, error) {
	return &Sleeper{clock: c, timer: time.NewTimer(time.Hour), done: make(chan struct{})}, nil
}

// Until sleeps until the given instant. It returns false once the sleeper is closed.
func (s *Sleeper) Until(at unit.Instant) bool {
	s.timer.Reset(at.Sub(s.clock.Now()))
	select {
	case <-s.done:
		return false
	case <-s.timer.C:
		return true
	}
}

// Close wakes the sleeper for good. It may be called from any goroutine.
func (s *Sleeper) Close() { s.once.Do(func() { s.timer.Stop(); close(s.done) }) }
