//go:build !linux

package netio

// A Sleeper wakes one goroutine at exact instants.
type Sleeper = TimerSleeper

// NewSleeper returns a sleeper; Close frees it.
func NewSleeper(c *Clock) (*Sleeper, error) { return NewTimerSleeper(c), nil }
