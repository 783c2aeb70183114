// This file has the data about the use of addresses that servers share
// through their database.

package guard

import "time"

// A Use is what one address has used of a server since its window began.
type Use struct {
	Since time.Time     // when the window began
	Bytes int64         // in both directions together
	Busy  time.Duration // total of ended sessions
}
