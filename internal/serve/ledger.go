package serve

import (
	"net/netip"
	"sync"
)

// A ledger counts the bytes from and to each address, so that no address, which
// may be forged, is sent more than came from it.
type ledger struct {
	mu      sync.Mutex
	balance map[netip.Addr]int
}

const (
	// maxLedger limits the memory: above it all entries are removed, and with
	// them unused credits.
	maxLedger = 1 << 16
	maxCredit = 4 << 10 // bytes of unused credit of an address
)

func newLedger() *ledger { return &ledger{balance: map[netip.Addr]int{}} }

// trade records received bytes of an address. It also records out sent bytes
// and returns true, if they are covered by what was received.
func (l *ledger) trade(a netip.Addr, in, out int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.balance) >= maxLedger {
		clear(l.balance)
	}
	b := min(l.balance[a]+in, maxCredit)
	paid := b >= out
	if paid {
		b -= out
	}
	l.balance[a] = b
	return paid
}
