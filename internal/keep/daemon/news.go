package daemon

import (
	"sync"
	"time"
)

// A change is something that happened to a router.
type change struct {
	replaced bool   // the interface came, went or is another one
	by       string // the program that did it; "": not known
}

// ownEcho is how long after our own changes the kernel may still tell of them.
const ownEcho = 500 * time.Millisecond

// news joins the changes of a WAN's router that its loop has not taken yet.
type news struct {
	there chan struct{} // there are some; it has room for one

	mu     sync.Mutex
	joined change
	acting bool      // changes may be our own
	acted  time.Time // until then
}

func newNews() *news { return &news{there: make(chan struct{}, 1)} }

// tell adds a change.
func (n *news) tell(c change) {
	n.mu.Lock()
	n.joined.replaced = n.joined.replaced || c.replaced
	if c.by != "" && !n.acting && time.Since(n.acted) > ownEcho { // we do not blame ourselves
		n.joined.by = c.by
	}
	n.mu.Unlock()
	select {
	case n.there <- struct{}{}:
	default: // the loop knows that there are some
	}
}

// take returns what was told since the last time.
func (n *news) take() change {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := n.joined
	n.joined = change{}
	return c
}

// act says that we change the router ourselves, until done is called.
func (n *news) act() (done func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.acting = true
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.acting, n.acted = false, time.Now()
	}
}
