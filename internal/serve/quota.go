package serve

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// A quota lets each client address do something a number of times at once, and
// again so often from then on.
type quota struct {
	burst int
	every time.Duration // gives one back

	mu sync.Mutex
	of map[netip.Addr]*rate.Limiter
}

// mostAllowances bounds the memory. Beyond it those that are whole again are
// forgotten, and if none is, all are: then a crowd is asking, not one address.
const mostAllowances = 4096

func newQuota(burst int, every time.Duration) *quota {
	return &quota{burst: burst, every: every, of: map[netip.Addr]*rate.Limiter{}}
}

// take reports whether the address may do it once more now.
func (q *quota) take(a netip.Addr, now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	allowance := q.of[a]
	if allowance == nil {
		q.forget(now)
		allowance = rate.NewLimiter(rate.Every(q.every), q.burst)
		q.of[a] = allowance
	}
	return allowance.AllowN(now, 1)
}

// forget makes room for one address.
func (q *quota) forget(now time.Time) {
	if len(q.of) < mostAllowances {
		return
	}
	for k, a := range q.of {
		if a.TokensAt(now) >= float64(q.burst) {
			delete(q.of, k)
		}
	}
	if len(q.of) >= mostAllowances {
		clear(q.of)
	}
}
