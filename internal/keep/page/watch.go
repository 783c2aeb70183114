package page

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"unbloat/guard"
	"unbloat/internal/keep/flows"
)

// Times of a watch.
const (
	readEvery = time.Second // at most so often
	readShare = 20          // and at most this part of the time: one in readShare
	readMost  = 30 * time.Second
	readOld   = time.Minute // what nobody has read for so long is not shown
	nameEvery = 30 * time.Second
)

// A watch reads the home's connections while somebody looks, as often as that takes
// little of the router's time. Whoever asks gets what was read last, and waits for
// nothing.
type watch struct {
	o       SourceOptions
	reading sync.Mutex // one reading at a time; guards tracker
	tracker *flows.Tracker

	mu    sync.Mutex
	busy  bool
	next  time.Time // when it may be read again
	at    time.Time // of last
	last  flows.Table
	sight Sight

	named  time.Time
	leases flows.Leases
}

func newWatch(o SourceOptions) *watch {
	w := &watch{o: o, tracker: flows.NewTracker(), sight: SightClear}
	w.tracker.TinOf = tinOf
	if o.Each == nil {
		w.sight = SightNone
	}
	return w
}

// table returns what was read last, and has it read again.
func (w *watch) table(now time.Time) (flows.Table, Sight) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.o.Each != nil && !w.busy && !now.Before(w.next) {
		w.busy = true
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), readMost)
			defer cancel()
			guard.Contain(func() { _, _, _ = w.read(ctx, netip.Addr{}) }, w.o.Panicked)
			w.mu.Lock()
			w.busy = false
			w.mu.Unlock()
		}()
	}
	if now.Sub(w.at) > readOld {
		return flows.Table{}, w.sight
	}
	return w.last, w.sight
}

// read reads the connections once, and returns those of one machine.
func (w *watch) read(ctx context.Context, focus netip.Addr) ([]flows.FlowRate, flows.Table, error) {
	w.reading.Lock()
	defer w.reading.Unlock()
	began := w.o.Now()
	w.tracker.Begin(began, focus)
	err := w.o.Each(ctx, w.tracker.Add)
	table := w.tracker.End()
	took := w.o.Now().Sub(began)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next = began.Add(max(readEvery, readShare*took))
	if err != nil {
		w.sight, w.last = SightNone, flows.Table{}
		if w.o.Sight != nil {
			w.sight = w.o.Sight(err)
		}
		return nil, table, err
	}
	w.at, w.last, w.sight = began, table, SightClear
	switch {
	case table.Crowded:
		w.sight = SightCrowded
	case table.Flows > 0 && !table.Counted:
		w.sight = SightBytes
	}
	return w.tracker.Focused(), table, nil
}

// focus reads the flows of one machine now.
func (w *watch) focus(ctx context.Context, address netip.Addr) ([]flows.FlowRate, flows.Table, Sight, error) {
	if w.o.Each == nil {
		return nil, flows.Table{}, SightNone, nil
	}
	ctx, cancel := context.WithTimeout(ctx, readMost)
	defer cancel()
	all, table, _ := w.read(ctx, address) // the sight says why not
	w.mu.Lock()
	defer w.mu.Unlock()
	return all, table, w.sight, nil
}

// names returns the leases, read a short time ago.
func (w *watch) names(now time.Time) flows.Leases {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.o.Leases != nil && (w.leases == nil || now.Sub(w.named) > nameEvery) {
		w.leases, w.named = w.o.Leases(), now
	}
	return w.leases
}
