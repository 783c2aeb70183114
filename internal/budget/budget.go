// Package budget holds what servers and the database that they share tell each
// other about what an address takes.
package budget

import "time"

// A Use is what one address took of a server since its window began.
type Use struct {
	Since time.Time     // when the window began
	Bytes int64         // moved, both ways together
	Busy  time.Duration // of sessions that ended
}
