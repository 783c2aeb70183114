package daemon

import (
	"context"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"

	"unbloat/internal/daemon/keep"
	"unbloat/internal/plan"
	"unbloat/internal/platform"
	"unbloat/unit"
)

// sortEvery is how often flows are read where their classes are given beside the
// packets (platform.Sorter).
const sortEvery = time.Second

// A sorting runs a Sorter.
type sorting struct {
	plan   *plan.Plan
	cancel context.CancelFunc
	done   chan struct{}
}

// sort starts or ends the giving of classes, as the WAN's state says. It belongs to
// the loop. While a change waits for its confirmation nothing is given. It is done
// on this machine only: the states of another router would have to come here each
// second.
func (w *wan) sort() {
	p := w.plan
	if w.pending != nil && w.pending.armed {
		p = nil // the transaction that undoes it may remove the table at any time
	}
	if w.keeper.State() != keep.InPlace || w.router == nil || w.router.Driver.Sorter == nil || w.config.Router != "" && !w.config.Here() {
		p = nil
	}
	if w.sorting != nil && p != nil && reflect.DeepEqual(w.sorting.plan.Classes, p.Classes) { // the rates may be others
		return
	}
	w.endSorting()
	if p == nil {
		return
	}
	h := homes{d: w.d}
	s := w.router.Driver.Sorter(*p, h.has)
	if s == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background()) // endSorting ends it
	x := &sorting{plan: p, cancel: cancel, done: make(chan struct{})}
	w.sorting = x
	go x.run(ctx, s, w.router.Here, func(text string) { w.d.trouble("%s: %s", w.config.Name(), text) })
}

// endSorting ends it, and waits until no command of it runs. Flows keep their last
// classes.
func (w *wan) endSorting() {
	if w.sorting != nil {
		w.sorting.cancel()
		<-w.sorting.done
		w.sorting = nil
	}
}

// run reads once a second. What goes wrong is told when it is new.
func (x *sorting) run(ctx context.Context, s platform.Sorter, r platform.Runner, tell func(string)) {
	defer close(x.done)
	tick := time.NewTicker(sortEvery)
	defer tick.Stop()
	start, told := time.Now(), ""
	for {
		c, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*sortEvery)
		err := s.Sort(c, r, unit.Instant(time.Since(start)))
		cancel()
		text := ""
		if err != nil {
			text = "give flows their classes: " + err.Error()
		}
		if text != told && text != "" {
			tell(text)
		}
		told = text
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// homes knows which addresses are of the home: those of networks that are not a
// WAN's, and the router's own.
type homes struct {
	d *Daemon

	mu    sync.Mutex
	at    time.Time
	nets  []netip.Prefix
	lines []netip.Addr
}

func (h *homes) has(a netip.Addr) bool {
	const fresh = 5 * time.Second
	h.mu.Lock()
	defer h.mu.Unlock()
	if time.Since(h.at) > fresh {
		h.read()
	}
	return slices.Contains(h.lines, a) || slices.ContainsFunc(h.nets, func(n netip.Prefix) bool { return n.Contains(a) })
}

// read reads this machine's interfaces. If that fails, what was read before holds.
func (h *homes) read() {
	h.at = time.Now()
	links, err := net.Interfaces()
	if err != nil {
		return
	}
	wans := map[string]bool{}
	for _, w := range h.d.all() {
		wans[w.name] = wans[w.name] || w.routerName == ""
	}
	h.nets, h.lines = nil, nil
	for _, link := range links {
		addrs, err := link.Addrs()
		if err != nil {
			continue
		}
		for _, x := range addrs {
			n, ok := x.(*net.IPNet)
			if !ok {
				continue
			}
			a, ok := netip.AddrFromSlice(n.IP)
			if !ok || a.IsLoopback() || a.IsLinkLocalUnicast() {
				continue
			}
			a = a.Unmap()
			if wans[link.Name] {
				h.lines = append(h.lines, a)
				continue
			}
			bits, _ := n.Mask.Size()
			h.nets = append(h.nets, netip.PrefixFrom(a, bits).Masked())
		}
	}
}
