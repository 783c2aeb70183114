package simlab

import (
	"fmt"

	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/all"
	"unbloat/internal/cure/platform/linux"
	"unbloat/lab/aqm"
	"unbloat/lab/sim"
	"unbloat/unit"
)

// fullFrame is an Ethernet frame of 1500 bytes of IP, without its check.
const fullFrame = 1514

// usualBurst is HTB's burst where the plan does not say (as lang/tc lays it out).
const usualBurst = 1590

// shaping returns what one direction of a plan does to packets, in the dialect
// of the plan's platform. seed decides what the queue leaves to chance.
func shaping(of string, s *plan.Shaper, mark sim.Mark, seed uint64) sim.Shaping {
	if s == nil {
		return sim.Shaping{}
	}
	out := sim.Shaping{
		MergeAcks: s.AckFilter, Mark: mark,
		Queue: func(drop aqm.DropFunc) (aqm.Queue, error) {
			if s.AQM == plan.CAKE {
				return cake(s, seed, drop)
			}
			inner, err := scheduler(of, s, drop)
			if err != nil {
				return nil, err
			}
			return shaper(of, s, inner)
		},
	}
	for _, r := range s.PacketRules {
		rule := sim.Rule{Match: sim.MatchAck, DSCP: codePoint(r.Tin)}
		if r.Match == plan.MatchSmallUDP {
			rule.Match = sim.MatchSmallUDP
		}
		out.Rules = append(out.Rules, rule)
	}
	return out
}

// kernelOf returns how the kernel of a platform's current release queues. A plan
// that says no platform is Linux's.
func kernelOf(of string) platform.Simulated {
	d, err := all.Find(of)
	if err != nil {
		d = linux.Driver()
	}
	return d.Simulated
}

// dialectOf returns a platform's CoDel. A driver that names one that does not exist
// breaks the tests of this package.
func dialectOf(of string) aqm.Dialect {
	d, err := aqm.ParseDialect(kernelOf(of).CoDel)
	if err != nil {
		panic(err)
	}
	return d
}

// framing returns how the shaper counts packets. Packets of package sim have
// their Ethernet header; a plan's overhead counts from the IP packet.
func framing(s *plan.Shaper) aqm.Framing {
	f := aqm.Framing{Replaced: plan.EthernetHeader, Overhead: unit.Size(s.Overhead), Minimum: unit.Size(s.MPU)}
	switch s.LinkLayer {
	case plan.ATM:
		f.Cells = aqm.ATM
	case plan.PTM:
		f.Cells = aqm.PTM
	}
	return f
}

func cake(s *plan.Shaper, seed uint64, drop aqm.DropFunc) (aqm.Queue, error) {
	p := aqm.DefaultCake(s.Rate)
	p.Framing, p.Ingress, p.Seed, p.Drop = framing(s), s.Ingress, seed, drop
	if s.Interval > 0 {
		p.Interval, p.Target = s.Interval, s.Interval/20
	}
	tins := map[string]aqm.Tins{
		"besteffort": aqm.BestEffort, "diffserv3": aqm.Diffserv3, "diffserv4": aqm.Diffserv4,
		"diffserv8": aqm.Diffserv8, "precedence": aqm.Precedence, "": aqm.Diffserv3,
	}
	isolation := map[string]aqm.Isolation{
		"triple-isolate": aqm.TripleIsolate, "dual-srchost": aqm.DualSource, "dual-dsthost": aqm.DualDest,
		"flows": aqm.IsolateFlows, "hosts": aqm.IsolateHosts, "srchost": aqm.IsolateSources,
		"dsthost": aqm.IsolateDests, "flowblind": aqm.NoIsolation, "": aqm.TripleIsolate,
	}
	var ok, too bool
	p.Tins, ok = tins[s.Tins]
	p.Isolation, too = isolation[s.Isolation]
	if !ok || !too {
		return nil, fmt.Errorf("simulate cake: no tins %q or isolation %q", s.Tins, s.Isolation)
	}
	return aqm.NewCake(p)
}

// scheduler returns the queue that stands behind a shaper.
func scheduler(of string, s *plan.Shaper, drop aqm.DropFunc) (aqm.Queue, error) {
	switch s.AQM {
	case plan.FQCoDel:
		p := aqm.DefaultFQCoDel(dialectOf(of))
		p.CoDel.ECN, p.CoDel.Drop = s.ECN, drop
		set(&p.CoDel.Target, s.Target)
		set(&p.CoDel.Interval, s.Interval)
		set(&p.CoDel.Packets, s.Limit)
		set(&p.Flows, s.Flows)
		p.Quantum = unit.Size(1500 + s.HeaderLen)
		set(&p.Quantum, s.Quantum)
		return aqm.NewFQCoDel(p)
	case plan.FIFO:
		limit := 1000
		set(&limit, s.Limit)
		if kernelOf(of).FIFOBytes {
			return aqm.NewFIFO(aqm.FIFOParams{Bytes: unit.Size(limit * (1500 + s.HeaderLen)), Drop: drop})
		}
		return aqm.NewFIFO(aqm.FIFOParams{Packets: limit, Drop: drop})
	}
	return nil, fmt.Errorf("simulate %s: the simulator has no such queue", s.AQM)
}

// set takes over a value that the plan gives.
func set[T comparable](to *T, v T) {
	var zero T
	if v != zero {
		*to = v
	}
}

// shaper returns what holds the rate in front of a queue.
func shaper(of string, s *plan.Shaper, inner aqm.Queue) (aqm.Queue, error) {
	p := aqm.TokenBucketParams{Bucket: aqm.HTB, Rate: s.Rate, Burst: usualBurst, Framing: framing(s)}
	set(&p.Burst, s.Burst)
	switch kernelOf(of).Shaper {
	case platform.Pipe:
		// A dummynet pipe serves one packet after the other.
		p.Bucket, p.Burst = aqm.TBF, fullFrame
	case platform.HFSC:
		p.Bucket, p.Burst = aqm.HFSC, 0
	}
	return aqm.NewTokenBucket(p, inner)
}
