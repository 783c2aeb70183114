// This file has what the router's page shows and changes: the daemon, the
// connections of the home, the names of its machines, and the doctor.

package page

import (
	"cmp"
	"context"
	"errors"
	"math"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"unbloat/internal/cure/platform"
	"unbloat/internal/keep/daemon"
	"unbloat/internal/keep/flows"
	"unbloat/internal/keep/follow"
	"unbloat/internal/measure/verdict"
	"unbloat/unit"
)

// SourceOptions of a Source. What is nil is not there.
type SourceOptions struct {
	Daemon *daemon.Caller // must be there
	// Each calls f for each connection between the home and elsewhere.
	Each func(ctx context.Context, f func(flows.Flow)) error
	// Sight says why Each failed.
	Sight func(error) Sight
	// Leases reads the leases of the home's machines.
	Leases func() flows.Leases
	// Count reads how many bytes an interface of this machine has received and sent.
	Count func(device string) (received, sent uint64, ok bool)
	// Examine has the doctor look at a WAN.
	Examine func(ctx context.Context, router, wan string) (*platform.DoctorReport, error)
	// Results are the measurements that were kept, newest first.
	Results func(ctx context.Context) ([]Result, error)
	// Panicked takes in a panic that was contained: the connections and names that are
	// read are of machines that anybody may have.
	Panicked func(what any, stack []byte)
	Now      func() time.Time
}

// A Source is a Router.
type Source struct {
	o     SourceOptions
	watch *watch

	mu      sync.Mutex
	counts  map[string]count
	grades  map[string]graded
	last    *Result // of the run lastRun, which has ended
	lastRun string
}

// A count is what an interface had carried.
type count struct {
	at             time.Time
	received, sent uint64
	down, up       unit.Rate // since the count before
}

// A graded is a grade and when it was made.
type graded struct {
	at    time.Time
	grade Grade
}

// NewSource returns a Source.
func NewSource(o SourceOptions) *Source {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Source{o: o, watch: newWatch(o), counts: map[string]count{}, grades: map[string]graded{}}
}

// keyOf names a WAN among all, as requests do.
func keyOf(router, wan string) string {
	if router == "" {
		return wan
	}
	return router + " " + wan
}

// named splits what keyOf joined.
func named(key string) daemon.Name {
	if i := strings.LastIndexByte(key, ' '); i >= 0 {
		return daemon.Name{Router: key[:i], WAN: key[i+1:]}
	}
	return daemon.Name{WAN: key}
}

// State implements Router.
func (s *Source) State(ctx context.Context) State {
	now := s.o.Now()
	out := State{TimeMs: now.UnixMilli(), WANs: []WAN{}, Machines: []Machine{}}
	status, _ := s.o.Daemon.Status(ctx, daemon.Name{}) // of all there is no error
	settings, _ := s.o.Daemon.Settings(ctx, daemon.Name{})
	of := map[string]daemon.Settings{}
	for _, x := range settings {
		of[keyOf(x.Router, x.WAN)] = x
	}
	actions := map[string]daemon.Action{}
	for _, w := range status.WANs {
		key := keyOf(w.Router, w.WAN)
		set := of[key]
		out.WANs = append(out.WANs, s.wan(ctx, now, key, w, set))
		for _, a := range set.First {
			actions[a] = daemon.ActionFirst
		}
		for _, a := range set.Last {
			actions[a] = daemon.ActionLast
		}
	}
	s.running(ctx, out.WANs)
	table, classes, sight := s.watch.table(now)
	out.Sight, out.Flows = sight, table.Flows
	names := s.watch.names(now)
	for i, m := range table.Machines {
		if i >= MostMachines {
			out.More++
			continue
		}
		out.Machines = append(out.Machines, machineOf(m, names, actions, classes))
	}
	if len(out.WANs) == 1 && sight == SightClear {
		carriedByHome(&out.WANs[0], table)
	}
	return out
}

// carriedByHome takes what the home does for what the line carries, where nothing
// counts the line itself.
func carriedByHome(w *WAN, t flows.Table) {
	if w.Down.Carried > 0 || w.Up.Carried > 0 {
		return
	}
	w.Down.Carried, w.Up.Carried = 0, 0
	for _, m := range t.Machines {
		w.Down.Carried += m.Down
		w.Up.Carried += m.Up
	}
	for _, x := range []*Way{&w.Down, &w.Up} {
		x.Busy = busy(x.Carried, x.Rate)
	}
}

func machineOf(m flows.Machine, names flows.Leases, actions map[string]daemon.Action, classes map[netip.Addr]string) Machine {
	address := m.Address.String()
	lease := names[m.Address]
	return Machine{Address: address, Name: lease.Name, MAC: lease.MAC, Class: classes[m.Address], Down: m.Down, Up: m.Up, Flows: m.Flows,
		Action: cmp.Or(actions[address], daemon.ActionNone)}
}

// wan is how one WAN is.
func (s *Source) wan(ctx context.Context, now time.Time, key string, w daemon.WANStatus, set daemon.Settings) WAN {
	out := WAN{WAN: key, Interface: w.WAN, Router: w.Router, Platform: w.Platform, On: set.On, Kept: w.State, Why: w.Why, By: w.By, Mends: w.Mends,
		Follow: set.Follow, Following: w.Line != nil, CanFollow: set.CanFollow, Classes: set.Classes, CanLimit: set.CanLimit, Rules: set.Rules, Limits: set.Limits, Pending: set.Change,
		Down: Way{Line: set.Down, Least: set.LeastDown, Most: set.MostDown, Rate: w.Down, DelayMs: -1, Why: set.WhyDown},
		Up:   Way{Line: set.Up, Least: set.LeastUp, Most: set.MostUp, Rate: w.Up, DelayMs: -1, Why: set.WhyUp}}
	if t, err := time.Parse(time.RFC3339, w.Since); err == nil {
		out.SinceMs = t.UnixMilli()
	}
	if t, err := time.Parse(time.RFC3339, w.OffUntil); err == nil {
		out.OffUntilMs = t.UnixMilli()
	}
	if !set.On {
		out.Down.Rate, out.Up.Rate = 0, 0
	}
	if l := w.Line; l != nil {
		out.Blind = l.Blind
		out.Down.believe(l.Down, l.Blind)
		out.Up.believe(l.Up, l.Blind)
	} else if l := w.Measured; l != nil {
		out.Blind = l.Blind
		for _, x := range []struct {
			to *Way
			is follow.Belief
		}{{&out.Down, l.Down}, {&out.Up, l.Up}} {
			rate, why := x.to.Rate, x.to.Why
			x.to.believe(x.is, l.Blind)
			x.to.Rate, x.to.Capacity, x.to.Why = rate, 0, why
		}
	} else if w.Router == "" {
		out.Down.Carried, out.Up.Carried = s.carried(now, w.WAN)
	} else {
		out.Down.Carried, out.Up.Carried = unknown, unknown
	}
	for _, x := range []*Way{&out.Down, &out.Up} {
		x.Busy = busy(x.Carried, x.Rate)
		if x.Rate == 0 {
			x.Why = nil
		}
	}
	out.Grade = s.grade(ctx, now, key)
	return out
}

// busy says whether a direction carries a good part of its rate.
func busy(carried, rate unit.Rate) bool { return rate > 0 && carried >= rate/2 }

// finite is a figure that JSON has.
func finite(v float64) float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return -1
	}
	return v
}

// believe takes in what is believed of a line that is followed.
func (w *Way) believe(b follow.Belief, blind bool) {
	w.Rate, w.Capacity, w.Carried, w.DelayMs = b.Rate, b.Capacity, b.Carried, b.Delay.Ms()
	if blind {
		w.DelayMs = -1
	}
	why := b.Why.Reason()
	w.Why = &why
}

// unknown is the rate of a line that nothing counts.
const unknown unit.Rate = -1

// carried is what an interface carries now, by its counters.
func (s *Source) carried(now time.Time, device string) (down, up unit.Rate) {
	if s.o.Count == nil {
		return unknown, unknown
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	was, known := s.counts[device]
	const often = 500 * time.Millisecond
	if known && now.Sub(was.at) < often {
		return was.down, was.up
	}
	received, sent, ok := s.o.Count(device)
	if !ok {
		delete(s.counts, device)
		return unknown, unknown
	}
	is := count{at: now, received: received, sent: sent}
	if seconds := now.Sub(was.at).Seconds(); known && seconds > 0 && received >= was.received && sent >= was.sent {
		const bits = 8
		is.down, is.up = unit.Rate(float64(received-was.received)*bits/seconds), unit.Rate(float64(sent-was.sent)*bits/seconds)
	}
	s.counts[device] = is
	return is.down, is.up
}

// Times of the grade.
const (
	gradeOf    = 10 * time.Minute // that it is of
	gradeEvery = 10 * time.Second
	gradeLeast = 30 // seconds of which something must be known
)

// grade is how a line did lately.
func (s *Source) grade(ctx context.Context, now time.Time, key string) Grade {
	s.mu.Lock()
	was, known := s.grades[key]
	s.mu.Unlock()
	if known && now.Sub(was.at) < gradeEvery {
		return was.grade
	}
	var out Grade
	h, err := s.o.Daemon.History(ctx, named(key), daemon.HistoryParams{From: now.Add(-gradeOf).UTC().Format(time.RFC3339), Step: 1})
	if err == nil {
		out = gradeFrom(h)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.grades[key] = graded{now, out}
	return out
}

// gradeFrom grades the worst delay of each second, in the worse direction.
func gradeFrom(h daemon.History) Grade {
	var worst []float64
	for i := range h.At {
		if i < len(h.Down.DelayMax) && i < len(h.Up.DelayMax) {
			if down, up := h.Down.DelayMax[i], h.Up.DelayMax[i]; down != nil || up != nil {
				worst = append(worst, max(*cmp.Or(down, up), *cmp.Or(up, down)))
			}
		}
	}
	out := Grade{Seconds: len(worst)}
	if len(worst) < gradeLeast {
		return out
	}
	slices.Sort(worst)
	const share = 0.95
	out.P95Ms = worst[int(share*float64(len(worst)-1))]
	out.Grade = verdict.Grade(unit.FromMs(out.P95Ms))
	return out
}

// Machine implements Router.
func (s *Source) Machine(ctx context.Context, address netip.Addr) (MachineFlows, error) {
	now := s.o.Now()
	all, table, sight, err := s.watch.focus(ctx, address)
	if err != nil {
		return MachineFlows{}, err
	}
	state := s.State(ctx)
	out := MachineFlows{Machine: Machine{Address: address.String(), Action: daemon.ActionNone}, Flows: []Flow{}, Sight: sight}
	for _, m := range state.Machines {
		if m.Address == out.Machine.Address {
			out.Machine = m
		}
	}
	lease := s.watch.names(now)[address]
	out.Machine.Name, out.Machine.MAC = lease.Name, lease.MAC
	for _, m := range table.Machines {
		if m.Address == address {
			out.Machine.Flows, out.More = m.Flows, max(m.Flows-min(len(all), MostFlows), 0)
		}
	}
	all = all[:min(len(all), MostFlows)]
	classes := s.watch.classes(ctx, all)
	for i, f := range all {
		x := Flow{Protocol: protocol(f.Protocol), Home: endOf(f.Home), Far: endOf(f.Far),
			Down: FlowWay{f.DownRate, f.Down, daemon.FlowClass{Why: []daemon.ClassWhy{}}}, Up: FlowWay{f.UpRate, f.Up, daemon.FlowClass{Why: []daemon.ClassWhy{}}}}
		if i < len(classes) {
			x.Down.FlowClass, x.Up.FlowClass = classes[i].Down, classes[i].Up
		}
		out.Flows = append(out.Flows, x)
	}
	return out, nil
}

// protocol names IP's protocol.
func protocol(n uint8) string {
	switch n {
	case 1, 58:
		return "icmp"
	case 6:
		return "tcp"
	case 17:
		return "udp"
	case 47:
		return "gre"
	case 50:
		return "esp"
	case 132:
		return "sctp"
	}
	return "other"
}

func endOf(a netip.AddrPort) string {
	if a.Port() == 0 {
		return a.Addr().String()
	}
	return a.String()
}

// Line implements Router.
func (s *Source) Line(ctx context.Context, wan string, day bool) (daemon.History, error) {
	span, step := time.Hour, 1
	if day {
		span, step = 24*time.Hour, 60
	}
	h, err := s.o.Daemon.History(ctx, named(wan), daemon.HistoryParams{From: s.o.Now().Add(-span).UTC().Format(time.RFC3339), Step: step})
	var refused *daemon.Error
	if errors.As(err, &refused) && refused.Code == daemon.CodePrecondition { // nothing is known of the line yet
		err = nil
	}
	return h, err
}
