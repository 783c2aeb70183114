package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"unbloat/internal/cure/classify"
	"unbloat/internal/cure/lang/tc"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/unit"
)

// plans returns the plan in force on each WAN.
func (s *routerStatus) plans() []plan.Plan {
	var out []plan.Plan
	for _, p := range s.Pending {
		out = append(out, p.Plan)
	}
	for _, k := range s.Committed {
		if !slices.ContainsFunc(out, func(p plan.Plan) bool { return p.WAN == k.WAN }) {
			out = append(out, k.Plan)
		}
	}
	return out
}

// classed returns those with classes.
func (s *routerStatus) classed() []plan.Plan {
	return slices.DeleteFunc(s.plans(), func(p plan.Plan) bool { return p.Classes == nil })
}

// shares returns the classes of the shaper on a device.
func (s *routerStatus) shares(device string) []plan.Share {
	for _, p := range s.plans() {
		for _, sh := range []*plan.Shaper{p.Up, p.Down} {
			if sh != nil && sh.Device == device {
				return p.Classes.Of(sh == p.Down)
			}
		}
	}
	return nil
}

// printClasses prints what each class of a device sends, holds and drops. With
// CAKE classes are tins; with HTB each class has a queue of its own.
func (s *routerStatus) printClasses(w io.Writer, device string, c tc.Counters) {
	shares := s.shares(device)
	for _, sh := range lanes(shares) {
		if c.Kind != "cake" {
			if strings.HasSuffix(c.Parent, fmt.Sprintf(":%x", sh.Tin.HTBMinor())) {
				fmt.Fprintf(w, "    is %s\n", sh.Class)
			}
			continue
		}
		if int(sh.Tin) > len(c.Tins) {
			continue
		}
		t := c.Tins[sh.Tin-1]
		fmt.Fprintf(w, "    %-12s %s in %d packets of %d flows, waits %s (most %s), backlog %s, %d dropped\n", sh.Class, unit.Size(t.Bytes), t.Packets, t.Flows,
			inMs(t.AverageUs), inMs(t.PeakUs), unit.Size(t.BacklogBytes), t.Drops)
	}
}

// lanes returns the classes and, after voice, that of acknowledgements if it is
// separate.
func lanes(shares []plan.Share) []plan.Share {
	out := slices.Clone(shares)
	if acks := plan.AckTin(shares); len(out) > 1 && out[1].Tin != acks {
		out = slices.Insert(out, 1, plan.Share{Class: "acks", Tin: acks})
	}
	return out
}

func inMs(us int64) string {
	return fmt.Sprintf("%.1f ms", unit.Ms(time.Duration(us)*time.Microsecond))
}

// printHosts prints the rate of each machine of the home in each class, and how
// many calm and busy flows it has. What waits and is dropped is only known by
// class, since the queues do not report it by machine.
func (s *routerStatus) printHosts(w io.Writer, last *routerStatus, since time.Duration) {
	for _, t := range s.Machines {
		fmt.Fprintf(w, "%s, %s: %d connections, %s up, %s down", t.Home, t.Class, t.Flows, t.Up.Short(), t.Down.Short())
		if up, down, ok := s.machineRate(t, last, since); ok {
			fmt.Fprintf(w, ", now %s up, %s down", up.Short(), down.Short())
		}
		fmt.Fprintln(w)
	}
	if len(s.Machines) > 0 {
		fmt.Fprintln(w, "What waits and what is dropped is counted by class, not by machine: the kernel's queues know flows by a hash alone.")
	}
	for _, h := range slices.Sorted(maps.Keys(s.Flows)) {
		n := s.Flows[h]
		fmt.Fprintf(w, "%s: %d calm and %d busy flows up (%d of these steady), %d calm and %d busy down (%d steady)\n", h,
			n["up calm"], n["up busy"], n["up steady"], n["down calm"], n["down busy"], n["down steady"])
	}
}

// machineRate returns the rate of a machine's connections in a class since the
// last time. It is unknown if connections changed class or ended in between.
func (s *routerStatus) machineRate(t platform.Traffic, last *routerStatus, since time.Duration) (up, down unit.Rate, ok bool) {
	if last == nil || since <= 0 {
		return 0, 0, false
	}
	for _, x := range last.Machines {
		if x.Home == t.Home && x.Class == t.Class && x.Flows == t.Flows && t.Up >= x.Up && t.Down >= x.Down {
			return rateOf(t.Up-x.Up, since), rateOf(t.Down-x.Down, since), true
		}
	}
	return 0, 0, false
}

// rateOf is the rate at which so much goes within a time.
func rateOf(n unit.Size, over time.Duration) unit.Rate {
	return unit.Rate(float64(n) * 8 / over.Seconds())
}

// usualFlows is how many flows are listed if nobody says how many.
const usualFlows = 10

// connections takes in those of the home.
func (s *routerStatus) connections(all []platform.Connection, most int) {
	s.Machines = platform.Machines(all)
	platform.SortConnections(all, classify.Steady.Name())
	s.Connections = all[:min(most, len(all))]
	s.MoreConnections = len(all) - len(s.Connections)
}

// printConnections prints each listed flow with its class in either direction.
func (s *routerStatus) printConnections(w io.Writer, last *routerStatus, since time.Duration) {
	if len(s.Connections) == 0 {
		return
	}
	before := map[string]platform.Connection{}
	if last != nil && since > 0 {
		for _, c := range last.Connections {
			before[flowText(c)] = c
		}
	}
	fmt.Fprintln(w, "Flows and their classes, steady ones first, then those that carried most:")
	for _, c := range s.Connections {
		was, known := before[flowText(c)]
		way := func(x, was platform.Carried) string {
			text := cmp.Or(string(x.Class), "no class yet")
			if x.Why == classify.Steady.Name() {
				text += " (steady)"
			}
			text += ", " + x.Bytes.Short()
			if known && x.Bytes > was.Bytes {
				text += ", now " + rateOf(x.Bytes-was.Bytes, since).Short()
			}
			return text
		}
		fmt.Fprintf(w, "  %s: up %s; down %s\n", flowText(c), way(c.Up, was.Up), way(c.Down, was.Down))
	}
	if s.MoreConnections > 0 {
		fmt.Fprintf(w, "  and %d more: unbloat status --flows %d\n", s.MoreConnections, len(s.Connections)+s.MoreConnections)
	}
	fmt.Fprintf(w, "Why one has its class: unbloat why %q\n", flowText(s.Connections[0]))
}

// flowText is a flow as `why` takes it.
func flowText(c platform.Connection) string {
	return classify.Flow{Protocol: c.Protocol, Home: c.Home, Far: c.Far}.String()
}
