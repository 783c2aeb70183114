package netio

import (
	"context"
	"time"
)

// An Alarm wakes one goroutine again and again, until a context ends: for a loop that
// runs many times a second on a small router.
type Alarm interface {
	// Wait returns after d; false says that the context has ended.
	Wait(d time.Duration) bool
	Close() error
}

// NewTimerAlarm returns an Alarm of the runtime's timers.
func NewTimerAlarm(ctx context.Context) Alarm {
	// A timer's own channel would read the machine's clock each time, which is a system
	// call on some routers.
	a := &timerAlarm{ctx: ctx, due: make(chan struct{}, 1)}
	a.timer = time.AfterFunc(time.Hour, func() { a.due <- struct{}{} })
	a.timer.Stop()
	return a
}

type timerAlarm struct {
	ctx   context.Context
	due   chan struct{}
	timer *time.Timer
}

func (a *timerAlarm) Wait(d time.Duration) bool {
	a.timer.Reset(d)
	select {
	case <-a.ctx.Done():
		return false
	case <-a.due:
		return true
	}
}

func (a *timerAlarm) Close() error {
	a.timer.Stop()
	return nil
}
