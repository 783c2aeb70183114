// Package flows says what the machines of a home send and receive now, from
// connection tracking or pf's states, and what they are called, from DHCP leases. It
// is pure: it is given the time and the text. However many flows there are, it
// remembers no more than MostFlows of them.
package flows

import (
	"cmp"
	"encoding/binary"
	"hash/maphash"
	"net/netip"
	"slices"
	"sort"
	"time"

	"unbloat/unit"
)

// A Flow is a connection between a machine of the home and one elsewhere.
type Flow struct {
	Protocol  uint8          // IP's number
	Home, Far netip.AddrPort // before NAT; without ports where the protocol has none
	Up, Down  unit.Size      // of IP packets since it began
	Packets   uint64         // both ways
	Answered  bool
	Mark      uint32 // of the connection; 0 where there are none

	// Only States fills these.
	UpPackets, DownPackets uint64
	Begun                  bool           // by the home
	Shown                  netip.AddrPort // the home's end as the WAN shows it; the zero one: as it is
}

// Bounds of what is remembered.
const (
	MostFlows    = 1 << 17
	MostMachines = 1024
	keepFlows    = 100 // of the machine that is looked at, or of all
)

// A Machine is what one of the home does.
type Machine struct {
	Address  netip.Addr
	Down, Up unit.Rate // now
	Flows    int
}

// A Table is what the home does at a time.
type Table struct {
	Machines []Machine // those with the highest rates first
	Flows    int       // of all
	Crowded  bool      // there were more flows or machines than are remembered
	Counted  bool      // what flows carry is counted
}

// A FlowRate is a flow and what it carries now.
type FlowRate struct {
	Flow
	DownRate, UpRate unit.Rate
}

// A Tracker finds rates from one reading to the next. It is for one goroutine.
type Tracker struct {
	seed  maphash.Seed
	known map[uint64]seen
	turn  uint32
	last  time.Time // of the reading before; zero: none
	now   time.Time

	table    Table
	machines map[netip.Addr]*tally
	focus    netip.Addr // whose flows are kept; the zero address: all machines'
	flows    []FlowRate
}

// seen is what a flow had carried: enough of it to find what has come since.
type seen struct {
	up, down uint32
	turn     uint32
}

// A tally adds up a machine.
type tally struct {
	flows    int
	up, down float64
}

// NewTracker returns a tracker that knows nothing yet.
func NewTracker() *Tracker {
	return &Tracker{seed: maphash.MakeSeed(), known: map[uint64]seen{}}
}

// Begin begins a reading. The busiest flows of one machine are kept besides, or of all for
// the zero address.
func (t *Tracker) Begin(now time.Time, focus netip.Addr) {
	t.turn++
	t.now = now
	t.machines = map[netip.Addr]*tally{}
	t.table = Table{}
	t.focus, t.flows = focus, t.flows[:0]
}

// Add takes in a flow. pf has two states for each: the second adds nothing.
func (t *Tracker) Add(f Flow) {
	var name [37]byte
	home, far := f.Home.Addr().As16(), f.Far.Addr().As16()
	copy(name[:], home[:])
	copy(name[16:], far[:])
	binary.BigEndian.PutUint16(name[32:], f.Home.Port())
	binary.BigEndian.PutUint16(name[34:], f.Far.Port())
	name[36] = f.Protocol
	key := maphash.Bytes(t.seed, name[:])
	was, is := t.known[key]
	if is && was.turn == t.turn {
		return
	}
	var up, down float64
	// One that was not there before has carried all of it since; unless it was one too
	// many to be remembered.
	if seconds := t.now.Sub(t.last).Seconds(); !t.last.IsZero() && seconds > 0 && (is || len(t.known) < MostFlows) {
		const bits = 8
		up = float64(uint32(f.Up)-was.up) * bits / seconds // modulo 2^32, as it is kept
		down = float64(uint32(f.Down)-was.down) * bits / seconds
	}
	if f.Up+f.Down > 0 {
		t.table.Counted = true
	}
	t.table.Flows++
	if is || len(t.known) < MostFlows {
		t.known[key] = seen{uint32(f.Up), uint32(f.Down), t.turn}
	} else {
		t.table.Crowded = true
	}
	m := t.machines[f.Home.Addr()]
	if m == nil {
		if len(t.machines) >= MostMachines {
			t.table.Crowded = true
			return
		}
		m = &tally{}
		t.machines[f.Home.Addr()] = m
	}
	m.flows++
	m.up += up
	m.down += down
	if !t.focus.IsValid() || f.Home.Addr() == t.focus {
		t.keep(FlowRate{f, unit.Rate(down), unit.Rate(up)})
	}
}

// keep keeps the flows that are looked at, those that carry most.
func (t *Tracker) keep(f FlowRate) {
	t.flows = append(t.flows, f)
	if len(t.flows) >= 4*keepFlows {
		t.flows = busiest(t.flows)
	}
}

// busiest returns the flows that carry most, now or in all.
func busiest(all []FlowRate) []FlowRate {
	sort.Slice(all, func(i, j int) bool {
		a, b := all[i], all[j]
		return cmp.Or(cmp.Compare(b.DownRate+b.UpRate, a.DownRate+a.UpRate), cmp.Compare(b.Down+b.Up, a.Down+a.Up),
			a.Home.Compare(b.Home), a.Far.Compare(b.Far)) < 0
	})
	return all[:min(len(all), keepFlows)]
}

// End ends a reading, and returns what the home does. Flows that are not there any
// more are forgotten.
func (t *Tracker) End() Table {
	for key, s := range t.known {
		if s.turn != t.turn {
			delete(t.known, key)
		}
	}
	t.last = t.now
	out := t.table
	out.Machines = make([]Machine, 0, len(t.machines))
	for a, m := range t.machines {
		out.Machines = append(out.Machines, Machine{Address: a, Down: unit.Rate(m.down), Up: unit.Rate(m.up), Flows: m.flows})
	}
	t.machines = nil
	sort.Slice(out.Machines, func(i, j int) bool {
		a, b := out.Machines[i], out.Machines[j]
		return cmp.Or(cmp.Compare(b.Down+b.Up, a.Down+a.Up), cmp.Compare(b.Flows, a.Flows), a.Address.Compare(b.Address)) < 0
	})
	return out
}

// Focused returns the flows that Begin has asked for, those that carry most first.
func (t *Tracker) Focused() []FlowRate { return slices.Clone(busiest(t.flows)) }

// HomeEnds returns which end of a connection is the home's. from and to are the ends
// of its first packet, answers and answersTo those of what came back; up and down are
// then the bytes that it sent and that came back, or the other way round if somebody
// outside began it.
func HomeEnds(home func(netip.Addr) bool, from, to, answers netip.AddrPort) (h, far netip.AddrPort, begun, ok bool) {
	switch {
	case home(from.Addr()) && !home(answers.Addr()):
		return from, to, true, true
	case home(answers.Addr()) && !home(from.Addr()):
		return answers, from, false, true
	}
	return h, far, false, false
}
