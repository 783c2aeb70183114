package netio

import (
	"sync"
	"time"

	"unbloat/unit"
)

// A TimerSleeper wakes one goroutine by one of Go's timers. It is what a Sleeper is
// where there is no timerfd, and sleeps in the time of a test that has its own.
type TimerSleeper struct {
	clock *Clock
	timer *time.Timer
	done  chan struct{}
	once  sync.Once
}

// NewTimerSleeper returns a sleeper; Close frees it.
func NewTimerSleeper(c *Clock) *TimerSleeper {
	return &TimerSleeper{clock: c, timer: time.NewTimer(time.Hour), done: make(chan struct{})}
}

// Until sleeps until the given instant. It returns false once the sleeper is closed.
func (s *TimerSleeper) Until(at unit.Instant) bool {
	s.timer.Reset(at.Sub(s.clock.Now()))
	select {
	case <-s.done:
	case <-s.timer.C:
	}
	select {
	case <-s.done:
		return false
	default:
		return true
	}
}

// Close wakes the sleeper for good. It may be called from any goroutine.
func (s *TimerSleeper) Close() { s.once.Do(func() { s.timer.Stop(); close(s.done) }) }
