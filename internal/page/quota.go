package page

import (
	"net/netip"
	"sync"
	"time"
)

// A quota lets each client address do something a number of times at once, and
// again so often from then on.
type quota struct {
	burst float64
	every time.Duration // gives one back

	mu sync.Mutex
	of map[netip.Addr]allowance
}

// An allowance is what an address had left at an instant.
type allowance struct {
	left float64
	at   time.Time
}

// mostAllowances bounds the memory. Beyond it those that are whole again are
// forgotten, and if none is, all are: then a crowd is asking, not one address.
const mostAllowances = 4096

func newQuota(burst int, every time.Duration) *quota {
	return &quota{burst: float64(burst), every: every, of: map[netip.Addr]allowance{}}
}

// take reports whether the address may do it once more now.
func (q *quota) take(a netip.Addr, now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	have, known := q.of[a]
	if !known {
		q.forget(now)
		have = allowance{left: q.burst, at: now}
	}
	have = q.renewed(have, now)
	ok := have.left >= 1
	if ok {
		have.left--
	}
	q.of[a] = have
	return ok
}

func (q *quota) renewed(a allowance, now time.Time) allowance {
	if gone := now.Sub(a.at); gone > 0 {
		a.left, a.at = min(a.left+float64(gone)/float64(q.every), q.burst), now
	}
	return a
}

// forget makes room for one address.
func (q *quota) forget(now time.Time) {
	if len(q.of) < mostAllowances {
		return
	}
	for k, a := range q.of {
		if q.renewed(a, now).left >= q.burst {
			delete(q.of, k)
		}
	}
	if len(q.of) >= mostAllowances {
		clear(q.of)
	}
}
