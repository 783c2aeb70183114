package page

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"unbloat/guard"
	"unbloat/internal/keep/daemon"
	"unbloat/internal/keep/flows"
	"unbloat/unit"
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
	class map[netip.Addr]string // of each machine's traffic at the reading before

	named  time.Time
	leases flows.Leases
}

func newWatch(o SourceOptions) *watch {
	w := &watch{o: o, tracker: flows.NewTracker(), sight: SightClear}
	if o.Each == nil {
		w.sight = SightNone
	}
	return w
}

// table returns what was read last, with the machines' classes, and has it read again.
func (w *watch) table(now time.Time) (flows.Table, map[netip.Addr]string, Sight) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.o.Each != nil && !w.busy && !now.Before(w.next) {
		w.busy = true
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), readMost)
			defer cancel()
			began, class := w.o.Now(), map[netip.Addr]string(nil)
			guard.Contain(func() {
				if all, _, err := w.read(ctx, netip.Addr{}); err == nil {
					class = machineClasses(all, w.classes(ctx, all))
				}
			}, w.o.Panicked)
			took := w.o.Now().Sub(began)
			w.mu.Lock()
			w.class, w.busy = class, false
			w.next = began.Add(max(readEvery, readShare*took))
			w.mu.Unlock()
		}()
	}
	if now.Sub(w.at) > readOld {
		return flows.Table{}, nil, w.sight
	}
	return w.last, w.class, w.sight
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

// classes asks the daemon for the classes of flows; nil: it does not know.
func (w *watch) classes(ctx context.Context, all []flows.FlowRate) []daemon.FlowClasses {
	settings, _ := w.o.Daemon.Settings(ctx, daemon.Name{}) // none: it does not know
	i := slices.IndexFunc(settings, func(s daemon.Settings) bool { return s.Router == "" && s.Classes })
	if i < 0 || len(all) == 0 {
		return nil
	}
	var p daemon.ClassesParams
	for _, f := range all {
		p.Flows = append(p.Flows, daemon.FlowParams{Protocol: protocol(f.Protocol), Home: endOf(f.Home), Far: endOf(f.Far), Bytes: f.Up + f.Down,
			Packets: f.Packets, Answered: f.Answered, Mark: f.Mark})
	}
	out, err := w.o.Daemon.Classes(ctx, daemon.Name{WAN: settings[i].WAN}, p)
	if err != nil || len(out) != len(all) {
		return nil
	}
	return out
}

// machineClasses returns for each machine the class that most of its traffic has now, each
// direction by its own: the acknowledgements of an upload do not make a machine quick.
func machineClasses(all []flows.FlowRate, classes []daemon.FlowClasses) map[netip.Addr]string {
	most, out := map[netip.Addr]map[string]unit.Rate{}, map[netip.Addr]string{}
	for i, c := range classes {
		a := all[i].Home.Addr()
		if most[a] == nil {
			most[a] = map[string]unit.Rate{}
		}
		most[a][c.Down.Class] += all[i].DownRate
		most[a][c.Up.Class] += all[i].UpRate
	}
	for a, of := range most {
		delete(of, "") // not known
		for _, class := range slices.Sorted(maps.Keys(of)) {
			if of[class] > of[out[a]] {
				out[a] = class
			}
		}
	}
	return out
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
