package bpf

import (
	"fmt"
	"slices"

	"unbloat/internal/classify"
)

// A Setting is what the program is loaded with, beside the table.
type Setting struct {
	Major    uint16         // of CAKE's handle: 0xb10a is b10a:
	Ticks    classify.Ticks // of the kernel
	Places   classify.Places
	Seed     uint32 // of the hashes
	Numbered bool   // a filter on the LAN's interface numbers the machines
}

// These are the program's structures: the same fields in the same order.
type (
	rate = classify.OwnRate

	sideOf struct {
		Host, Names, Heavy, Peers, Starts rate
		Steady, SteadyHost, Waiting       rate
		First                             uint64
		Priority                          [8]uint32 // by lane
		LaneOfDSCP                        [64]uint8
		LaneOfTin                         [16]uint8
	}

	constants struct {
		Up, Down                                                                         sideOf
		Packets, Bytes, Slow, Acks, SlowAcks, Speech                                     rate
		MostFirst, Heavy, Lasting                                                        uint64
		BusyFor, CrowdFor, SwarmFor                                                      uint64
		MixedFor, SteadyFor, SpeaksFor, FullFor, TrialFor, LostFor, StruckFor, GreedyFor uint64
		UnansweredFor, DatagramsFor, StreamFor, MachineFor, PortFor                      uint64
		Small, LightMask, FlowMask, MachineMask, PortMask, Seed, Major                   uint32
		Thins, Numbered, Test, Named, Varies, _, _, _, _, _, _, _                        uint8
	}
)

// lanes are the program's lanes; the first has number 1.
func lanes() []string {
	return []string{string(classify.Voice), string(classify.Interactive), string(classify.Normal), string(classify.Bulk), classify.AcksLane}
}

// constantsOf returns the program's constants for a table. The error says what of
// the table the program does not know.
func constantsOf(t *classify.Table, s Setting) (c constants, err error) {
	p := t.Policy()
	switch {
	case !p.Apart || !p.EveryPacket || p.DownByMark:
		return c, fmt.Errorf("load the classes as a BPF program: the table is not one of its own state")
	case len(p.Rules) > 0:
		return c, fmt.Errorf("load the classes as a BPF program: it knows no rules that name traffic")
	}
	of := func(set string, i int) rate {
		r := t.Rates(set)
		if i >= len(r) {
			return rate{}
		}
		return s.Ticks.Rate(r[i])
	}
	l := p.Limits
	for _, x := range []struct {
		d     classify.Direction
		to    *sideOf
		lanes []classify.Lane
		trust bool
	}{{classify.Up, &c.Up, p.Up, p.Trust.TrustHome}, {classify.Down, &c.Down, p.Down, p.Trust.TrustFar}} {
		if x.lanes == nil {
			continue
		}
		name := func(what string) string { return what + "4_" + string(x.d) }
		*x.to = sideOf{Host: of(name("hosts"), 0), Names: of(name("names"), 0), Heavy: of(name("heavy"), 0), Peers: of(name("partners"), 0), Starts: of(name("starts"), 0),
			Steady: of(name("steady_flows"), 0), SteadyHost: of(name("steady_hosts"), 0), Waiting: of(name("waiting"), 0), First: uint64(l.FirstOf(x.d))}
		c.Packets, c.Bytes = of(name("calm"), 0), of(name("calm"), 1)
		for set, to := range map[string]*uint64{"busy": &c.BusyFor, "crowd": &c.CrowdFor, "swarm": &c.SwarmFor,
			"mixed": &c.MixedFor, "steady": &c.SteadyFor, "speaker": &c.SpeaksFor, "full": &c.FullFor, "trial": &c.TrialFor,
			"lost": &c.LostFor, "struck": &c.StruckFor, "greedy": &c.GreedyFor} {
			*to = max(*to, s.Ticks.Of(t.Stay(name(set))))
		}
		if x.to.Steady.Cost > 0 {
			c.Speech = of(name("small"), 0)
		}
		for i, lane := range lanes() {
			if j := slices.IndexFunc(x.lanes, func(l classify.Lane) bool { return l.Name == lane }); j >= 0 {
				x.to.Priority[i+1] = uint32(s.Major)<<16 | uint32(x.lanes[j].Tin)
				if p.Named && lane != classify.AcksLane {
					x.to.LaneOfTin[x.lanes[j].Tin&15] = uint8(i + 1)
				}
			}
		}
		for v := range x.to.LaneOfDSCP {
			if class, ok := classify.ClassOfDSCP(uint8(v)); ok && x.trust {
				x.to.LaneOfDSCP[v] = uint8(slices.Index(lanes(), string(class)) + 1)
			}
		}
	}
	if len(t.Limits) > 0 {
		all, slow := t.Limits[0], t.Limits[1]
		c.Slow, c.Acks, c.SlowAcks, c.Thins = of("acks_up", 0), all.Clock(s.Ticks).Rate(all.Rate), slow.Clock(s.Ticks).Rate(slow.Rate), 1
	}
	c.MostFirst, c.Heavy, c.Lasting = uint64(max(l.FirstBytes, l.FirstUp, 1)), uint64(l.HeavyBytes), uint64(l.LongBytes)
	c.UnansweredFor, c.DatagramsFor, c.StreamFor = s.Ticks.Of(classify.KeepUnanswered), s.Ticks.Of(classify.KeepDatagrams), s.Ticks.Of(classify.KeepStream)
	c.MachineFor, c.PortFor = s.Ticks.Of(classify.KeepMachine), s.Ticks.Of(classify.KeepPort)
	c.Small, c.LightMask, c.Seed = uint32(l.SmallPacket), l.LightMask(), s.Seed
	c.FlowMask, c.MachineMask, c.PortMask = uint32(s.Places.Flows-1), uint32(s.Places.Machines-1), uint32(s.Places.Ports-1)
	c.Major = uint32(s.Major)
	if p.Named {
		c.Named = 1
	}
	if p.Varies {
		c.Varies = 1
	}
	if s.Numbered {
		c.Numbered = 1
	}
	return c, nil
}
