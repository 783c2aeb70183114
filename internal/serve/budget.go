package serve

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"unbloat/internal/budget"
	"unbloat/internal/visitor"
	"unbloat/unit"
)

// budgetWindow is the time over which an address's bytes and seconds are counted.
const budgetWindow = time.Hour

// An account is what one client address takes, whatever protocols it speaks.
type account struct {
	sessions int // now
	conns    int // TCP connections now
	since    unit.Instant
	bytes    int64         // since then
	time     time.Duration // of sessions that ended since then

	others budget.Use // of the servers that share budgets with this one
	shared budget.Use // what these were told last
}

// accounts are the accounts of all addresses.
type accounts struct {
	mu       sync.Mutex
	limits   Limits
	sessions int // of all
	conns    int
	total    int64
	served   map[string]int64 // sessions by protocol, ever
	of       map[netip.Addr]*account
	shut     bool
	draining bool          // no further sessions
	empty    chan struct{} // closed when there are no sessions any more; nil: nobody waits

	elsewhere func(netip.Addr) budget.Use // what an address takes of other servers; nil: nothing
}

// maxAccounts bounds the memory: beyond it accounts without sessions are forgotten.
const maxAccounts = 1 << 16

func newAccounts(l Limits) *accounts {
	return &accounts{limits: l, served: map[string]int64{}, of: map[netip.Addr]*account{}}
}

// find returns the account of an address, its window renewed.
func (a *accounts) find(from netip.Addr, now unit.Instant) *account {
	from = visitor.Of(from)
	c := a.of[from]
	if c == nil {
		if len(a.of) >= maxAccounts {
			for k, v := range a.of {
				if v.sessions == 0 && v.conns == 0 {
					delete(a.of, k)
				}
			}
		}
		c = &account{since: now}
		if a.elsewhere != nil {
			c.others = a.elsewhere(from)
		}
		a.of[from] = c
	}
	if now.Sub(c.since) >= budgetWindow {
		c.since, c.bytes, c.time, c.shared = now, 0, 0, budget.Use{}
	}
	return c
}

// errDraining refuses a session of a server that is about to end.
var errDraining = errors.New("this server is about to be restarted; try again in a minute")

// admit opens a session of an address, within the limits.
func (s *Server) admit(from netip.Addr, protocol string) error {
	return s.enter(from, protocol, func(a *accounts, c *account) (string, error) {
		l := a.limits
		bytes, lasted := c.bytes+c.others.Bytes, c.time+c.others.Busy
		switch {
		case a.draining:
			return "draining", errDraining
		case a.sessions >= l.Sessions:
			return "sessions", fmt.Errorf("the server is busy with %d sessions; try again later", a.sessions)
		case c.sessions >= l.PerAddress:
			return "sessions of address", fmt.Errorf("the server is busy with %d sessions from %s; try again later", c.sessions, from)
		case l.spent(from, bytes+1):
			return "bytes of address", fmt.Errorf("%s has moved %v within an hour, which is the limit; try again later", from, unit.Size(bytes))
		case l.AddressTime > 0 && lasted >= l.AddressTime:
			return "time of address", fmt.Errorf("sessions of %s have lasted %v within an hour, which is the limit; try again later", from, lasted.Round(time.Second))
		}
		a.sessions++
		c.sessions++
		a.served[protocol]++
		return "", nil
	})
}

// connect takes a TCP connection of an address in, within the limits.
func (s *Server) connect(from netip.Addr, protocol string) error {
	return s.enter(from, protocol, func(a *accounts, c *account) (string, error) {
		l := a.limits
		switch {
		case a.conns >= l.Conns:
			return "connections", fmt.Errorf("the server has %d connections, which is the limit", a.conns)
		case c.conns >= l.AddressConns:
			return "connections of address", fmt.Errorf("%s has %d connections, which is the limit", from, c.conns)
		}
		a.conns++
		c.conns++
		return "", nil
	})
}

// enter books something of an address, or counts why it was refused.
func (s *Server) enter(from netip.Addr, protocol string, book func(*accounts, *account) (reason string, err error)) error {
	a := s.accounts
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.shut {
		return net.ErrClosed
	}
	reason, err := book(a, a.find(from, s.clock.Now()))
	if err != nil {
		s.refusals.add(protocol, reason)
	}
	return err
}

// disconnect books the end of n TCP connections of an address.
func (s *Server) disconnect(from netip.Addr, n int) {
	a := s.accounts
	a.mu.Lock()
	defer a.mu.Unlock()
	a.conns -= n
	a.find(from, s.clock.Now()).conns -= n
}

// leave ends a session of an address, which lasted so long.
func (s *Server) leave(from netip.Addr, lasted time.Duration) {
	a := s.accounts
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sessions--
	c := a.find(from, s.clock.Now())
	c.sessions--
	c.time += max(lasted, 0)
	if a.sessions == 0 && a.empty != nil {
		close(a.empty)
		a.empty = nil
	}
}

// spend books bytes of an address; false if it has none left.
func (s *Server) spend(from netip.Addr, n unit.Size) bool {
	a := s.accounts
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.find(from, s.clock.Now())
	c.bytes += int64(n)
	a.total += int64(n)
	return !a.limits.spent(from, c.bytes+c.others.Bytes)
}

// Enter opens a session of the page for a client, within what its address may
// take of all protocols together; leave must follow.
func (s *Server) Enter(from netip.Addr) (leave func(), err error) {
	if err := s.admit(from, protocolWeb); err != nil {
		s.log.Debug("refused", "protocol", protocolWeb, "from", from, "reason", err)
		return nil, err
	}
	began := s.clock.Now()
	return func() { s.leave(from, s.clock.Now().Sub(began)) }, nil
}

// Spend books bytes of the page's loads; false if the address has none left.
func (s *Server) Spend(from netip.Addr, n unit.Size) bool {
	if s.spend(from, n) {
		return true
	}
	s.log.Debug("load cut off", "protocol", protocolWeb, "from", from, "reason", errBudget)
	s.refusals.add(protocolWeb, "budget during a session")
	return false
}

// bookings returns what a netio.Budget asks: it books what was moved since it
// was asked before, and says whether the budget allows more.
func bookings(spend func(unit.Size) bool) func(moved int64) bool {
	var mu sync.Mutex
	booked := int64(0)
	return func(moved int64) bool {
		mu.Lock()
		n := max(moved-booked, 0)
		booked += n
		mu.Unlock()
		return spend(unit.Size(n))
	}
}

// shut refuses every further session.
func (a *accounts) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.shut = true
}
