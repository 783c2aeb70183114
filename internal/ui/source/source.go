// Package source is what the router's page shows and changes: the daemon, the
// connections of the home, the names of its machines, and the doctor.
package source

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

	"unbloat/internal/daemon"
	"unbloat/internal/doctor"
	"unbloat/internal/flows"
	"unbloat/internal/reason"
	"unbloat/internal/ui"
	"unbloat/internal/verdict"
	"unbloat/unit"
)

// Options of a Source. What is nil is not there.
type Options struct {
	Ask daemon.Caller
	// Each calls f for each connection between the home and elsewhere.
	Each func(ctx context.Context, f func(flows.Flow)) error
	// Sight says why Each failed.
	Sight func(error) ui.Sight
	// Leases reads the leases of the home's machines.
	Leases func() flows.Leases
	// Count reads how many bytes an interface of this machine has received and sent.
	Count func(device string) (received, sent uint64, ok bool)
	// Examine has the doctor look at a WAN.
	Examine func(ctx context.Context, router, wan string) (*doctor.Report, error)
	// Results are the measurements that were kept, newest first.
	Results func(ctx context.Context) ([]ui.Result, error)
	// Panicked takes in a panic that was contained: the connections and names that are
	// read are of machines that anybody may have.
	Panicked func(what any, stack []byte)
	Now      func() time.Time
}

// A Source is a ui.Router.
type Source struct {
	o     Options
	watch *watch

	mu      sync.Mutex
	counts  map[string]count
	grades  map[string]graded
	last    *ui.Result // of the run lastRun, which has ended
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
	grade ui.Grade
}

// New returns a Source.
func New(o Options) *Source {
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
func named(key string) (router, wan string) {
	if i := strings.LastIndexByte(key, ' '); i >= 0 {
		return key[:i], key[i+1:]
	}
	return "", key
}

// asked makes an error of the daemon one of the page.
func asked(err error) error {
	var e *daemon.Error
	if !errors.As(err, &e) {
		return err
	}
	code := ui.Code(e.Code)
	switch e.Code {
	case daemon.CodeMethod, daemon.CodeLeftOut:
		code = ui.CodeNotHere
	case daemon.CodeInternal:
		code = ui.CodeFailed
	}
	return &ui.Error{Code: code, Text: e.Text}
}

// ask asks the daemon about a WAN.
func (s *Source) ask(ctx context.Context, method, key string, params, result any) error {
	router, wan := named(key)
	return asked(s.o.Ask(ctx, method, router, wan, params, result))
}

// State implements ui.Router.
func (s *Source) State(ctx context.Context) ui.State {
	now := s.o.Now()
	out := ui.State{TimeMs: now.UnixMilli(), WANs: []ui.WAN{}, Machines: []ui.Machine{}}
	var status daemon.Status
	var settings []daemon.Settings
	if s.o.Ask(ctx, daemon.MethodStatus, "", "", nil, &status) != nil || s.o.Ask(ctx, daemon.MethodSettings, "", "", nil, &settings) != nil {
		return out // it ends just now
	}
	of := map[string]daemon.Settings{}
	for _, x := range settings {
		of[keyOf(x.Router, x.WAN)] = x
	}
	actions := map[string]ui.Action{}
	tins := map[uint8]string{}
	for _, w := range status.WANs {
		key := keyOf(w.Router, w.WAN)
		set := of[key]
		out.WANs = append(out.WANs, s.wan(ctx, now, key, w, set))
		for _, a := range set.First {
			actions[a] = ui.ActionFirst
		}
		for _, a := range set.Last {
			actions[a] = ui.ActionIdle
		}
		for tin, class := range set.Tins {
			tins[uint8(tin)] = class
		}
	}
	s.running(ctx, out.WANs)
	table, sight := s.watch.table(now)
	out.Sight, out.Flows = sight, table.Flows
	names := s.watch.names(now)
	for i, m := range table.Machines {
		if i >= ui.MostMachines {
			out.More++
			continue
		}
		out.Machines = append(out.Machines, machineOf(m, names, actions, tins))
	}
	if len(out.WANs) == 1 && sight == ui.SightClear {
		carriedByHome(&out.WANs[0], table)
	}
	return out
}

// carriedByHome takes what the home does for what the line carries, where nothing
// counts the line itself.
func carriedByHome(w *ui.WAN, t flows.Table) {
	if w.Down.Carried > 0 || w.Up.Carried > 0 {
		return
	}
	w.Down.Carried, w.Up.Carried = 0, 0
	for _, m := range t.Machines {
		w.Down.Carried += m.Down
		w.Up.Carried += m.Up
	}
	for _, x := range []*ui.Way{&w.Down, &w.Up} {
		x.Busy = busy(x.Carried, x.Rate)
	}
}

func machineOf(m flows.Machine, names flows.Leases, actions map[string]ui.Action, tins map[uint8]string) ui.Machine {
	address := m.Address.String()
	lease := names[m.Address]
	return ui.Machine{Address: address, Name: lease.Name, MAC: lease.MAC, Class: tins[m.Tin], Down: m.Down, Up: m.Up, Flows: m.Flows,
		Action: cmp.Or(actions[address], ui.ActionNone)}
}

// wan is how one WAN is.
func (s *Source) wan(ctx context.Context, now time.Time, key string, w daemon.WANStatus, set daemon.Settings) ui.WAN {
	out := ui.WAN{WAN: key, Interface: w.WAN, Router: w.Router, Platform: w.Platform, On: set.On, Kept: ui.Kept(w.State), Why: w.Why, By: w.By, Mends: w.Mends,
		Follow: set.Follow, Following: w.Line != nil, CanFollow: set.CanFollow, Classes: set.Classes,
		Down: ui.Way{Line: set.Down, Least: set.LeastDown, Most: set.MostDown, Rate: w.Down, DelayMs: -1, Why: set.WhyDown},
		Up:   ui.Way{Line: set.Up, Least: set.LeastUp, Most: set.MostUp, Rate: w.Up, DelayMs: -1, Why: set.WhyUp}}
	if t, err := time.Parse(time.RFC3339, w.Since); err == nil {
		out.SinceMs = t.UnixMilli()
	}
	if !set.On {
		out.Down.Rate, out.Up.Rate = 0, 0
	}
	if l := w.Line; l != nil {
		out.Blind = l.Blind
		for _, x := range []struct {
			to *ui.Way
			is daemon.WayStatus
		}{{&out.Down, l.Down}, {&out.Up, l.Up}} {
			x.to.Rate, x.to.Capacity, x.to.Carried, x.to.DelayMs = x.is.Rate, x.is.Capacity, x.is.Carried, finite(x.is.DelayMs)
			if l.Blind {
				x.to.DelayMs = -1
			}
			if !x.is.Why.IsZero() {
				x.to.Why = new(reason.Reason)
				*x.to.Why = x.is.Why
			}
		}
	} else if w.Router == "" {
		out.Down.Carried, out.Up.Carried = s.carried(now, w.WAN)
	} else {
		out.Down.Carried, out.Up.Carried = unknown, unknown
	}
	for _, x := range []*ui.Way{&out.Down, &out.Up} {
		x.Busy = busy(x.Carried, x.Rate)
		if x.Rate == 0 {
			x.Why = nil
		}
	}
	if c := set.Change; c != nil {
		change := s.change(key, *c)
		out.Pending = &change
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

// change is one that waits.
func (s *Source) change(key string, c daemon.Change) ui.Change {
	out := ui.Change{ID: c.ID, WAN: key, Kind: ui.ChangeKind(c.Kind), LeftMs: int64(c.Left * 1000), Seconds: int(math.Round(c.Seconds))}
	out.DeadlineMs = s.o.Now().UnixMilli() + out.LeftMs
	return out
}

// Times of the grade.
const (
	gradeOf    = 10 * time.Minute // that it is of
	gradeEvery = 10 * time.Second
	gradeLeast = 30 // seconds of which something must be known
)

// grade is how a line did lately.
func (s *Source) grade(ctx context.Context, now time.Time, key string) ui.Grade {
	s.mu.Lock()
	was, known := s.grades[key]
	s.mu.Unlock()
	if known && now.Sub(was.at) < gradeEvery {
		return was.grade
	}
	var h daemon.History
	var out ui.Grade
	err := s.ask(ctx, daemon.MethodHistory, key, daemon.HistoryParams{From: now.Add(-gradeOf).UTC().Format(time.RFC3339), Step: 1}, &h)
	if err == nil {
		out = gradeFrom(h)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.grades[key] = graded{now, out}
	return out
}

// gradeFrom grades the worst delay of each second, in the worse direction.
func gradeFrom(h daemon.History) ui.Grade {
	var worst []float64
	for i := range h.At {
		if i < len(h.Down.DelayMax) && i < len(h.Up.DelayMax) {
			if delay := max(delayOf(h.Down.DelayMax[i]), delayOf(h.Up.DelayMax[i])); delay >= 0 {
				worst = append(worst, delay)
			}
		}
	}
	out := ui.Grade{Seconds: len(worst)}
	if len(worst) < gradeLeast {
		return out
	}
	slices.Sort(worst)
	const share = 0.95
	out.P95Ms = worst[int(share*float64(len(worst)-1))]
	out.Grade = verdict.Grade(unit.FromMs(out.P95Ms))
	return out
}

// Machine implements ui.Router.
func (s *Source) Machine(ctx context.Context, address netip.Addr) (ui.MachineFlows, error) {
	now := s.o.Now()
	all, table, sight, err := s.watch.focus(ctx, address)
	if err != nil {
		return ui.MachineFlows{}, err
	}
	state := s.State(ctx)
	out := ui.MachineFlows{Machine: ui.Machine{Address: address.String(), Action: ui.ActionNone}, Flows: []ui.Flow{}, Sight: sight}
	for _, m := range state.Machines {
		if m.Address == out.Machine.Address {
			out.Machine = m
		}
	}
	lease := s.watch.names(now)[address]
	out.Machine.Name, out.Machine.MAC = lease.Name, lease.MAC
	for _, m := range table.Machines {
		if m.Address == address {
			out.Machine.Flows, out.More = m.Flows, max(m.Flows-min(len(all), ui.MostFlows), 0)
		}
	}
	all = all[:min(len(all), ui.MostFlows)]
	classes := s.classes(ctx, state.WANs, all)
	for i, f := range all {
		x := ui.Flow{Protocol: protocol(f.Protocol), Home: endOf(f.Home), Far: endOf(f.Far),
			Down: ui.FlowWay{Rate: f.DownRate, Bytes: f.Down, Why: []ui.ClassWhy{}}, Up: ui.FlowWay{Rate: f.UpRate, Bytes: f.Up, Why: []ui.ClassWhy{}}}
		if i < len(classes) {
			classed(&x.Down, classes[i].Down)
			classed(&x.Up, classes[i].Up)
		}
		out.Flows = append(out.Flows, x)
	}
	return out, nil
}

func classed(to *ui.FlowWay, c daemon.FlowClass) {
	to.Class = c.Class
	for _, w := range c.Why {
		to.Why = append(to.Why, ui.ClassWhy{Code: w.Code, Rule: w.Rule})
	}
}

// classes asks the daemon for the classes of flows; nil: it does not know.
func (s *Source) classes(ctx context.Context, wans []ui.WAN, all []flows.FlowRate) []daemon.FlowClasses {
	i := slices.IndexFunc(wans, func(w ui.WAN) bool { return w.Router == "" && w.Classes })
	if i < 0 || len(all) == 0 {
		return nil
	}
	var p daemon.ClassesParams
	for _, f := range all {
		p.Flows = append(p.Flows, daemon.FlowParams{Protocol: protocol(f.Protocol), Home: endOf(f.Home), Far: endOf(f.Far), Bytes: f.Up + f.Down,
			Packets: f.Packets, Answered: f.Answered, Mark: f.Mark})
	}
	var out []daemon.FlowClasses
	if s.ask(ctx, daemon.MethodClasses, wans[i].WAN, p, &out) != nil {
		return nil
	}
	return out
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

// Line implements ui.Router.
func (s *Source) Line(ctx context.Context, wan string, day bool) (ui.Line, error) {
	span, step := time.Hour, 1
	if day {
		span, step = 24*time.Hour, 60
	}
	out := ui.Line{WAN: wan, StepSeconds: step, AtMs: []int64{}}
	var h daemon.History
	err := s.ask(ctx, daemon.MethodHistory, wan, daemon.HistoryParams{From: s.o.Now().Add(-span).UTC().Format(time.RFC3339), Step: step}, &h)
	var refused *ui.Error
	if errors.As(err, &refused) && refused.Code == ui.CodeNeeds { // nothing is known of the line yet
		out.Down, out.Up = seriesOf(daemon.HistoryWay{}, 0), seriesOf(daemon.HistoryWay{}, 0)
		return out, nil
	}
	if err != nil {
		return out, err
	}
	if h.Step > 0 {
		out.StepSeconds = h.Step
	}
	out.AtMs = append(out.AtMs, h.At...)
	out.WAN = keyOf(h.Router, h.WAN)
	out.Down, out.Up = seriesOf(h.Down, len(h.At)), seriesOf(h.Up, len(h.At))
	return out, nil
}

// delayOf is a delay of the page's: -1 if it is not known.
func delayOf(v *float64) float64 {
	if v == nil {
		return -1
	}
	return *v
}

// seriesOf has as many figures in each list as there are steps.
func seriesOf(w daemon.HistoryWay, n int) ui.SeriesWay {
	ints := func(of []int64) []int64 { return append(make([]int64, 0, n), of[:min(len(of), n)]...) }
	floats := func(of []*float64) []float64 {
		out := make([]float64, 0, n)
		for _, v := range of[:min(len(of), n)] {
			out = append(out, delayOf(v))
		}
		return out
	}
	return ui.SeriesWay{Rate: ints(w.Rate), Capacity: ints(w.Capacity), Carried: ints(w.Carried), Delay: floats(w.Delay), DelayMax: floats(w.DelayMax)}
}
