//go:build !omit_daemon

package bsd

import (
	"context"
	"fmt"
	"maps"
	"net/netip"

	"unbloat/internal/classify"
	"unbloat/internal/flows"
	"unbloat/internal/lang/dummynet"
	"unbloat/internal/plan"
	"unbloat/internal/platform"
	"unbloat/unit"
)

// A sorter fills ipfw's table of flows by what pf's states have carried.
type sorter struct {
	counted *classify.Counted
	home    func(netip.Addr) bool
	in      map[string]int // the table's entries, as they were read or written last
	looks   int            // how often the table is believed to be as in says
	begun   bool
	using   Sorting
}

// believeFor is after how many readings the table itself is read again: a firewall
// that is loaded again empties it.
const believeFor = 10

// NewSorter returns what fills the table of a plan's classes for FreeBSD; nil if the
// plan has none by behaviour.
func NewSorter(p plan.Plan, home func(netip.Addr) bool) platform.Sorter {
	return Sorting{Queue: dummynet.ClassQueue}.New(p, home)
}

// New returns what fills the table of a plan's classes; nil if the plan has none by
// behaviour.
func (u Sorting) New(p plan.Plan, home func(netip.Addr) bool) platform.Sorter {
	if !p.ByBehaviour() {
		return nil
	}
	return &sorter{counted: classify.NewCounted(p.Policy()), home: home, using: u}
}

// Sort implements platform.Sorter.
func (s *sorter) Sort(ctx context.Context, r platform.Runner, now unit.Instant) error {
	out, err := platform.Output(ctx, r, "pfctl", "-ss", "-v")
	if err != nil {
		return fmt.Errorf("read pf's states, which say what flows carry: %w; is pf enabled (pfctl -e)?", err)
	}
	shown := map[classify.FlowID]netip.AddrPort{}
	var all []classify.CountedFlow
	flows.States(string(out), s.home, func(f flows.Flow) {
		id := classify.FlowID{Protocol: f.Protocol, Home: f.Home, Far: f.Far}
		if was, known := shown[id]; known { // a state for each interface: one of them has NAT's address
			if !was.IsValid() {
				shown[id] = f.Shown
			}
			return
		}
		shown[id] = f.Shown
		x := classify.CountedFlow{Protocol: f.Protocol, Home: f.Home, Far: f.Far, Opened: classify.Down,
			Up: classify.Count{Packets: f.UpPackets, Bytes: f.Up}, Down: classify.Count{Packets: f.DownPackets, Bytes: f.Down}}
		if f.Begun {
			x.Opened = classify.Up
		}
		all = append(all, x)
	})
	s.counted.Read(now, all)
	if !s.begun { // nothing is known yet, and what is in the table may be right
		s.begun = true
		return nil
	}
	want := map[string]int{}
	s.counted.Each(func(f classify.FlowID, d classify.Direction, c classify.Class) bool {
		dummynet.SortedFlow{Protocol: f.Protocol, Home: f.Home, Far: f.Far, Shown: shown[f], Direction: d, Queue: s.using.Queue(d, c)}.Entries(want)
		return true
	})
	return s.fill(ctx, r, want)
}

// fill gives the table these entries.
func (s *sorter) fill(ctx context.Context, r platform.Runner, want map[string]int) error {
	if s.using.Missing != nil {
		out, err := platform.Output(ctx, r, "ipfw", "list")
		if err != nil {
			return fmt.Errorf("read ipfw's rules: %w", err)
		}
		missing, err := s.using.Missing(string(out))
		if err != nil {
			return err
		}
		for _, argv := range missing {
			s.looks = 0
			if _, err := platform.Output(ctx, r, argv...); err != nil {
				return fmt.Errorf("have ipfw look flows up: %w", err)
			}
		}
	}
	if s.looks == 0 {
		list := dummynet.ListEntries()
		out, err := platform.Output(ctx, r, list...)
		if err != nil {
			return fmt.Errorf("read the table of flows: %w; apply the plan again", err)
		}
		s.in, s.looks = dummynet.ParseEntries(string(out)), believeFor
	}
	s.looks--
	for _, argv := range dummynet.EntryCommands(s.in, want) {
		if _, err := platform.Output(ctx, r, argv...); err != nil {
			s.looks = 0
			return fmt.Errorf("put flows into their classes: %w", err)
		}
	}
	s.in = maps.Clone(want)
	return nil
}
