package serve

import (
	"context"
	"net/netip"
	"time"

	"unbloat/guard"
)

// Budgets connects the servers behind one name, so that an address has one
// budget for all of them.
type Budgets interface {
	// Exchange reports what addresses have used of this server since their
	// windows began, and returns what any address has used of the others.
	Exchange(ctx context.Context, own map[netip.Addr]guard.Use) (func(netip.Addr) guard.Use, error)
}

const (
	// BudgetWindow is the time over which the use of an address is counted.
	BudgetWindow = budgetWindow

	// shareEvery is the interval of exchanges. An address that uses several
	// servers at once can exceed its budget by what it moves in between.
	shareEvery = 5 * time.Second
	// sharePatience is the time limit of one exchange.
	sharePatience = 10 * time.Second
)

// share exchanges budgets at intervals. While the others cannot be reached,
// their last answer counts.
func (s *Server) share() {
	t := time.NewTicker(shareEvery)
	defer t.Stop()
	away := false
	for {
		err := s.exchange()
		switch {
		case s.ctx.Err() != nil:
			return
		case err != nil && !away:
			s.log.Warn("budgets are this server's own for now", "reason", err)
		case err == nil && away:
			s.log.Info("budgets are shared again")
		}
		away = err != nil
		if err == nil {
			s.sharedAt.Store(time.Now().Unix())
		}
		select {
		case <-t.C:
		case <-s.ctx.Done():
			_ = s.exchange() // so that the others get the last figures; an error does not matter
			return
		}
	}
}

// exchange is one exchange with the others.
func (s *Server) exchange() error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), sharePatience)
	defer cancel()
	if s.ctx.Err() == nil {
		defer context.AfterFunc(s.ctx, cancel)()
	}
	a := s.accounts
	now, wall := s.clock.Now(), time.Now()
	own := map[netip.Addr]guard.Use{}
	a.mu.Lock()
	for from, c := range a.of {
		u := guard.Use{Bytes: c.bytes, Busy: c.time}
		if u != c.shared && now.Sub(c.since) < budgetWindow {
			u.Since = wall.Add(-now.Sub(c.since))
			own[from] = u
		}
	}
	a.mu.Unlock()
	elsewhere, err := s.shared.Exchange(ctx, own)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.elsewhere = elsewhere
	for from, c := range a.of {
		c.others = elsewhere(from)
		if u, told := own[from]; told {
			c.shared = guard.Use{Bytes: u.Bytes, Busy: u.Busy}
		}
	}
	return nil
}
