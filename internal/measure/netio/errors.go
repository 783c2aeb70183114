package netio

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

// isClosed reports whether an error comes from our own closing.
func isClosed(err error) bool {
	return errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded)
}

// ticker is a timer that a stop channel interrupts. Go's timers are exact
// enough for bookkeeping; probes use a Sleeper.
type ticker struct {
	timer *time.Timer
	stop  chan struct{}
	once  sync.Once
}

func newTicker() *ticker {
	return &ticker{timer: time.NewTimer(time.Hour), stop: make(chan struct{})}
}

// wait sleeps for d and returns false if it was stopped.
func (t *ticker) wait(d time.Duration) bool {
	t.timer.Reset(d)
	select {
	case <-t.stop:
		return false
	case <-t.timer.C:
		return true
	}
}

func (t *ticker) close() { t.once.Do(func() { t.timer.Stop(); close(t.stop) }) }
