package serve

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"unbloat/guard"
	"unbloat/unit"
)

// budgetWindow is the time over which an address's bytes and seconds are counted.
const budgetWindow = time.Hour

// An account is what one client address uses, with all protocols.
type account struct {
	sessions int       // now
	conns    int       // connections now
	held     unit.Size // of bodies that may wait in memory now
	since    unit.Instant
	bytes    int64         // since the start of the window
	time     time.Duration // of sessions that ended since then

	others guard.Use // at the servers that share budgets with this one
	shared guard.Use // what those were told last
}

// accounts are the accounts of all addresses.
type accounts struct {
	mu       sync.Mutex
	limits   Limits
	sessions int // of all
	conns    int
	held     unit.Size
	total    int64
	served   map[string]int64 // sessions by protocol since the start
	of       map[netip.Addr]*account
	shut     bool
	draining bool          // no new sessions
	empty    chan struct{} // closed when there are no sessions left; nil: nobody waits

	elsewhere func(netip.Addr) guard.Use // use of an address at other servers; nil: none
}

// maxAccounts limits the memory: above it accounts without sessions are
// removed.
const maxAccounts = 1 << 16

func newAccounts(l Limits) *accounts {
	return &accounts{limits: l, served: map[string]int64{}, of: map[netip.Addr]*account{}}
}

// roll starts a new window if the old one has ended.
func (c *account) roll(now unit.Instant) {
	if now.Sub(c.since) >= budgetWindow {
		c.since, c.bytes, c.time, c.shared = now, 0, 0, guard.Use{}
	}
}

// find returns the account of an address, in the window of now.
func (a *accounts) find(from netip.Addr, now unit.Instant) *account {
	from = guard.Charged(from)
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
	c.roll(now)
	return c
}

// errDraining refuses a session while the server is about to end.
var errDraining = errors.New("this server is about to be restarted; try again in a minute")

// admit opens a session of an address, within the limits. leave ends it, and
// charges its duration.
func (s *Server) admit(from netip.Addr, protocol string) (leave func(), err error) {
	return s.enter(from, protocol, func(a *accounts, c *account) (func(), string, error) {
		l := a.limits
		bytes, lasted := c.bytes+c.others.Bytes, c.time+c.others.Busy
		switch {
		case a.draining:
			return nil, "draining", errDraining
		case a.sessions >= l.Sessions:
			return nil, "sessions", fmt.Errorf("the server is busy with %d sessions; try again later", a.sessions)
		case c.sessions >= l.PerAddress:
			return nil, "sessions of address", fmt.Errorf("the server is busy with %d sessions from %s; try again later", c.sessions, from)
		case l.spent(from, bytes+1):
			return nil, "bytes of address", fmt.Errorf("%s has moved %v within an hour, which is the limit; try again later", from, unit.Size(bytes))
		case l.AddressTime > 0 && lasted >= l.AddressTime:
			return nil, "time of address", fmt.Errorf("sessions of %s have lasted %v within an hour, which is the limit; try again later", from, lasted.Round(time.Second))
		}
		began := s.clock.Now()
		a.sessions++
		c.sessions++
		a.served[protocol]++
		return func() {
			now := s.clock.Now()
			a.sessions--
			c.sessions--
			c.roll(now)
			c.time += now.Sub(began)
			if a.sessions == 0 && a.empty != nil {
				close(a.empty)
				a.empty = nil
			}
		}, "", nil
	})
}

// connect opens a connection of an address, or a request that takes as much,
// within the limits; so many bytes of it may wait in memory. free ends it.
func (s *Server) connect(from netip.Addr, protocol string, held unit.Size) (free func(), err error) {
	return s.enter(from, protocol, func(a *accounts, c *account) (func(), string, error) {
		l := a.limits
		switch {
		case a.conns >= l.Conns:
			return nil, "connections", fmt.Errorf("the server has %d connections, which is the limit", a.conns)
		case c.conns >= l.AddressConns:
			return nil, "connections of address", fmt.Errorf("%s has %d connections, which is the limit", from, c.conns)
		case a.held+held > l.Held:
			return nil, "bytes held", fmt.Errorf("bodies of %v may wait to be read, which is the limit", a.held)
		case c.held+held > l.AddressHeld:
			return nil, "bytes held of address", fmt.Errorf("bodies of %v from %s may wait to be read, which is the limit", c.held, from)
		}
		a.conns, a.held = a.conns+1, a.held+held
		c.conns, c.held = c.conns+1, c.held+held
		return func() {
			a.conns, a.held = a.conns-1, a.held-held
			c.conns, c.held = c.conns-1, c.held-held
		}, "", nil
	})
}

// enter charges something to the account of an address, or counts why that was
// refused. back takes it off the same account: what free gives back is what was
// charged, once.
func (s *Server) enter(from netip.Addr, protocol string, charge func(*accounts, *account) (back func(), reason string, err error)) (free func(), err error) {
	a := s.accounts
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.shut {
		return nil, net.ErrClosed
	}
	back, reason, err := charge(a, a.find(from, s.clock.Now()))
	if err != nil {
		s.refusals.add(protocol, reason)
		return nil, err
	}
	return sync.OnceFunc(func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		back()
	}), nil
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
	leave, err = s.admit(from, protocolWeb)
	if err != nil {
		s.log.Debug("refused", "protocol", protocolWeb, "from", from, "reason", err)
	}
	return leave, err
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
