package visitor

import "time"

// A Use is what one address took of a server since its window began.
type Use struct {
	Since time.Time     // when the window began
	Bytes int64         // moved, both ways together
	Busy  time.Duration // of sessions that ended
}
