package serve

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"unbloat/unit"
)

// budgetWindow is the time over which an address's bytes and seconds are counted.
const budgetWindow = time.Hour

// An account is what one client address takes, whatever protocols it speaks.
type account struct {
	sessions int // now
	since    unit.Instant
	bytes    int64         // since then
	time     time.Duration // of sessions that ended since then
}

// accounts are the accounts of all addresses.
type accounts struct {
	mu       sync.Mutex
	limits   Limits
	sessions int // of all
	total    int64
	served   map[string]int64 // sessions by protocol, ever
	of       map[netip.Addr]*account
	shut     bool
}

// maxAccounts bounds the memory: beyond it accounts without sessions are forgotten.
const maxAccounts = 1 << 16

func newAccounts(l Limits) *accounts {
	return &accounts{limits: l, served: map[string]int64{}, of: map[netip.Addr]*account{}}
}

// find returns the account of an address, its window renewed.
func (a *accounts) find(from netip.Addr, now unit.Instant) *account {
	c := a.of[from]
	if c == nil {
		if len(a.of) >= maxAccounts {
			for k, v := range a.of {
				if v.sessions == 0 {
					delete(a.of, k)
				}
			}
		}
		c = &account{since: now}
		a.of[from] = c
	}
	if now.Sub(c.since) >= budgetWindow {
		c.since, c.bytes, c.time = now, 0, 0
	}
	return c
}

// admit opens a session of an address, within the limits.
func (s *Server) admit(from netip.Addr, protocol string) error {
	a := s.accounts
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.shut {
		return net.ErrClosed
	}
	l, c := a.limits, a.find(from, s.clock.Now())
	reason, err := "", error(nil)
	switch {
	case a.sessions >= l.Sessions:
		reason, err = "sessions", fmt.Errorf("the server is busy with %d sessions; try again later", a.sessions)
	case c.sessions >= l.PerAddress:
		reason, err = "sessions of address", fmt.Errorf("the server is busy with %d sessions from %s; try again later", c.sessions, from)
	case l.AddressBytes > 0 && c.bytes >= int64(l.AddressBytes):
		reason, err = "bytes of address", fmt.Errorf("%s has moved %v within an hour, which is the limit; try again later", from, unit.Size(c.bytes))
	case l.AddressTime > 0 && c.time >= l.AddressTime:
		reason, err = "time of address", fmt.Errorf("sessions of %s have lasted %v within an hour, which is the limit; try again later", from, c.time.Round(time.Second))
	}
	if err != nil {
		s.refusals.add(protocol, reason)
		return err
	}
	a.sessions++
	c.sessions++
	a.served[protocol]++
	return nil
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
}

// spend books bytes of an address; false if it has none left.
func (s *Server) spend(from netip.Addr, n unit.Size) bool {
	a := s.accounts
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.find(from, s.clock.Now())
	c.bytes += int64(n)
	a.total += int64(n)
	return a.limits.AddressBytes <= 0 || c.bytes <= int64(a.limits.AddressBytes)
}

// left returns how many bytes an address may still move; 0: any number.
func (s *Server) left(from netip.Addr) unit.Size {
	a := s.accounts
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.limits.AddressBytes <= 0 {
		return 0
	}
	return max(a.limits.AddressBytes-unit.Size(a.find(from, s.clock.Now()).bytes), 1)
}

// shut refuses every further session.
func (a *accounts) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.shut = true
}

// refusals counts what was refused, by protocol and reason.
type refusals struct {
	mu     sync.Mutex
	counts map[[2]string]int64
}

func newRefusals() *refusals { return &refusals{counts: map[[2]string]int64{}} }

func (r *refusals) add(protocol, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[[2]string{protocol, reason}]++
}
