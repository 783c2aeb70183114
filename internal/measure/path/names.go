package path

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"unbloat/internal/measure/netio"
)

// lookupWithin limits every DNS query: the network may be broken.
const lookupWithin = 5 * time.Second

// ErrUnknownHost is wrapped by errors of Resolve about a host that does not exist.
var ErrUnknownHost = errors.New("no such host")

// Resolve returns the address of a host; network is "ip", "ip4" or "ip6". Of
// several it prefers the first to which this machine has a route. Errors wrap
// ErrUnknownHost or are the resolver's.
func Resolve(ctx context.Context, network, host string) (netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupWithin)
	defer cancel()
	all, err := net.DefaultResolver.LookupNetIP(ctx, network, host)
	var dns *net.DNSError
	var literal *net.AddrError // an address of the other family
	switch {
	case errors.As(err, &dns) && dns.IsNotFound, errors.As(err, &literal), err == nil && len(all) == 0:
		return netip.Addr{}, fmt.Errorf("look up %s (%s): %w", host, network, ErrUnknownHost)
	}
	if err != nil {
		return netip.Addr{}, fmt.Errorf("look up %s: %w", host, err)
	}
	for _, a := range all {
		if _, err := netio.SourceFor(a.Unmap()); err == nil {
			return a.Unmap(), nil
		}
	}
	return all[0].Unmap(), nil
}

// names asks for the names of addresses in the background.
type names struct {
	ctx    context.Context // nil: names are not looked up
	cancel func()
	wg     sync.WaitGroup

	mu    sync.Mutex
	asked map[netip.Addr]bool
	found map[netip.Addr]string
}

func newNames(ctx context.Context, wanted bool) *names {
	n := &names{asked: map[netip.Addr]bool{}, found: map[netip.Addr]string{}, cancel: func() {}}
	if wanted {
		n.ctx, n.cancel = context.WithCancel(ctx)
	}
	return n
}

// want asks for a name once.
func (n *names) want(a netip.Addr) {
	if n.ctx == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.asked[a] {
		return
	}
	n.asked[a] = true
	n.wg.Go(func() {
		ctx, cancel := context.WithTimeout(n.ctx, lookupWithin)
		defer cancel()
		got, err := net.DefaultResolver.LookupAddr(ctx, a.String())
		if err != nil || len(got) == 0 {
			return // a hop without a name keeps its address
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		n.found[a] = printable(strings.TrimSuffix(got[0], "."))
	})
}

// printable drops control characters: the name comes from a stranger.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' {
			return -1
		}
		return r
	}, s)
}

// known returns the names so far.
func (n *names) known() map[netip.Addr]string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.found)
}

// finish waits a little for names still to come.
func (n *names) finish(ctx context.Context) {
	if n.ctx == nil {
		return
	}
	done := make(chan struct{})
	go func() { n.wg.Wait(); close(done) }()
	t := time.NewTimer(nameWait)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	case <-ctx.Done():
	}
	n.cancel()
	<-done
}

// close drops the queries under way.
func (n *names) close() {
	n.cancel()
	n.wg.Wait()
}
