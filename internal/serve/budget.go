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

// An account is what one client address uses, with all protocols.
type account struct {
	sessions int // now
	conns    int // TCP connections now
	since    unit.Instant
	bytes    int64         // since the start of the window
	time     time.Duration // of sessions that ended since then

	others budget.Use // at the servers that share budgets with this one
	shared budget.Use // what those were told last
}

// accounts are the accounts of all addresses.
type accounts struct {
	mu       sync.Mutex
	limits   Limits
	sessions int // of all
	conns    int
	total    int64
	served   map[string]int64 // sessions by protocol since the start
	of       map[netip.Addr]*account
	shut     bool
	draining bool          // no new sessions
	empty    chan struct{} // closed when there are no sessions left; nil: nobody waits

	elsewhere func(netip.Addr) budget.Use // use of an address at other servers; nil: none
}

// maxAccounts limits the memory: above it accounts without sessions are
// removed.
const maxAccounts = 1 << 16

func newAccounts(l Limits) *accounts {
	return &accounts{limits: l, served: map[string]int64{}, of: map[netip.Addr]*account{}}
}

// find returns the account of an address, and starts a new window if the old
// one has ended.
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

// errDraining refuses a session while the server is about to end.
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

// connect counts a new TCP connection of an address, within the limits.
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

// enter changes the account of an address, or counts why that was refused.
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

// disconnect counts the end of n TCP connections of an address.
func (s *Server) disconnect(from netip.Addr, n int) {
	a := s.accounts
	a.mu.Lock()
	defer a.mu.Unlock()
	a.conns -= n
	a.find(from, s.clock.Now()).conns -= n
}

// leave ends a session of an address, and charges its duration.
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

// spend charges bytes to an address. It returns false if its budget is used up.
func (s *Server) spend(from netip.Addr, n unit.Size) bool {
	a := s.accounts
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.find(from, s.clock.Now())
	c.bytes += int64(n)
	a.total += int64(n)
	return !a.limits.spent(from, c.bytes+c.others.Bytes)
}

// Enter opens a session of the page for a client, within the limits of its
// address for all protocols together. The caller must call leave at the end.
func (s *Server) Enter(from netip.Addr) (leave func(), err error) {
	if err := s.admit(from, protocolWeb); err != nil {
		s.log.Debug("refused", "protocol", protocolWeb, "from", from, "reason", err)
		return nil, err
	}
	began := s.clock.Now()
	return func() { s.leave(from, s.clock.Now().Sub(began)) }, nil
}

// Spend charges bytes of the page's loads. It returns false if the address's
// budget is used up.
func (s *Server) Spend(from netip.Addr, n unit.Size) bool {
	if s.spend(from, n) {
		return true
	}
	s.log.Debug("load cut off", "protocol", protocolWeb, "from", from, "reason", errBudget)
	s.refusals.add(protocolWeb, "budget during a session")
	return false
}

// bookings returns a function for netio.Budget: it charges the bytes since its
// last call, and reports whether the budget allows more.
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

// close refuses all further sessions.
func (a *accounts) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.shut = true
}
