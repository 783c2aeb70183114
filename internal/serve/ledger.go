package serve

import (
	"net/netip"
	"sync"
)

// A ledger keeps who has sent how many bytes and has got how many, so that no
// source address, which a stranger may have forged, is ever sent more than came
// from it.
type ledger struct {
	mu      sync.Mutex
	balance map[netip.Addr]int
}

const (
	// maxLedger bounds the memory: beyond it all is forgotten, to the cost of
	// who has a credit.
	maxLedger = 1 << 16
	maxCredit = 4 << 10 // bytes an address may save up
)

func newLedger() *ledger { return &ledger{balance: map[netip.Addr]int{}} }

// trade books in received bytes from an address and, if they and what it has
// saved up pay for it, out sent bytes; false if they do not.
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
