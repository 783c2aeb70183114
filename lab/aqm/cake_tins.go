package aqm

import (
	"fmt"
	"time"

	"unbloat/unit"
)

// Tins is CAKE's way of sorting code points into classes.
type Tins uint8

// CAKE's sets of tins (tc-cake(8)).
const (
	BestEffort Tins = iota // one tin
	Diffserv3              // best effort, bulk, voice: the kernel's default
	Diffserv4              // best effort, bulk, video, voice
	Diffserv8              // eight, each with 7/8 of the rate of the one before
	Precedence             // eight, by the three precedence bits
)

// Isolation is what CAKE shares the rate among.
type Isolation uint8

// CAKE's isolation modes (tc-cake(8)).
const (
	TripleIsolate  Isolation = iota // flows, weighted by the busier of their two hosts
	DualSource                      // flows, weighted by their source host
	DualDest                        // flows, weighted by their destination host
	IsolateFlows                    // flows alone
	IsolateHosts                    // pairs of hosts
	IsolateSources                  // source hosts
	IsolateDests                    // destination hosts
	NoIsolation                     // one queue for everything: plain COBALT
)

// counts says whether the hosts of a side (0 for sources, 1 for destinations)
// divide a flow's quantum.
func (i Isolation) counts(side int) bool {
	return i == TripleIsolate || i == DualSource && side == 0 || i == DualDest && side == 1
}

// key returns the hash that a packet's queue is found by.
func (i Isolation) key(p *Packet) uint32 {
	switch i {
	case NoIsolation:
		return 0
	case IsolateSources:
		return p.Source
	case IsolateDests:
		return p.Destination
	case IsolateHosts:
		return p.Source ^ p.Destination
	}
	return p.Flow
}

// CakeParams sets CAKE up. DefaultCake fills it as the kernel does.
type CakeParams struct {
	// Rate is what the shaper lets through, counted by Framing; 0 shapes
	// nothing and leaves that to the device below.
	Rate      unit.Rate
	Framing   Framing
	Tins      Tins
	Isolation Isolation
	Interval  time.Duration // tc's rtt, 100 ms
	Target    time.Duration // Interval/20 in tc, 5 ms
	// Ingress charges dropped packets to the shaper, because they have
	// already come through the bottleneck, and tolerates more bulk flows.
	Ingress bool
	MTU     unit.Size // longest packet, 1514 on Ethernet
	// Memory limits the memory of queued packets (memoryOf in store.go); 0
	// for the kernel's own choice: 4 intervals of the rate, within 4 MiB and
	// 10240 MTUs.
	Memory unit.Size
	Seed   uint64   // of BLUE's chance and of the rounding of shared quanta
	Drop   DropFunc // told of each drop; may be nil
}

// DefaultCake returns the kernel's defaults at a rate (sch_cake.c cake_init).
func DefaultCake(rate unit.Rate) CakeParams {
	return CakeParams{
		Rate: rate, Tins: Diffserv3, Isolation: TripleIsolate,
		Interval: 100 * time.Millisecond, Target: 5 * time.Millisecond, MTU: 1514,
	}
}

// check reports the first parameter that makes no sense.
func (p CakeParams) check() error {
	switch {
	case p.Rate < 0 || p.Rate > 1e12:
		return fmt.Errorf("cake: rate of %d bit/s; 0 to 1e12 are possible", int64(p.Rate))
	case p.Tins > Precedence:
		return fmt.Errorf("cake: no tins %d", p.Tins)
	case p.Isolation > NoIsolation:
		return fmt.Errorf("cake: no isolation %d", p.Isolation)
	case p.Interval <= 0 || p.Interval > 10*time.Second || p.Target <= 0 || p.Target > 10*time.Second:
		return fmt.Errorf("cake: interval %v or target %v is not within 1ns to 10s", p.Interval, p.Target)
	case p.MTU < 64 || p.MTU > maxPacketSize:
		return fmt.Errorf("cake: MTU of %d bytes; 64 to %d are possible", p.MTU, maxPacketSize)
	case p.Memory < 0:
		return fmt.Errorf("cake: negative memory")
	}
	if err := p.Framing.check(); err != nil {
		return fmt.Errorf("cake: %w", err)
	}
	return nil
}

// memoryLimit returns the bytes of memory that queued packets may take
// (sch_cake.c cake_reconfigure).
func (p CakeParams) memoryLimit() int64 {
	most := 10240 * int64(p.MTU)
	if p.Memory > 0 {
		return int64(p.Memory)
	}
	if p.Rate == 0 {
		return most
	}
	return min(most, max(4<<20, int64(p.Rate.Bytes(p.Interval*4))))
}

// tinShare is one tin's part of the rate and its weight when unshaped.
type tinShare struct {
	rate   unit.Rate
	weight int32 // bytes a round of the tins
}

// shares returns the tins of a set, in the order of their numbers; the later
// one has priority (sch_cake.c cake_config_*).
func (t Tins) shares(rate unit.Rate) []tinShare {
	switch t {
	case Diffserv3:
		return []tinShare{{rate, 1024}, {rate >> 4, 64}, {rate >> 2, 256}}
	case Diffserv4:
		return []tinShare{{rate, 1024}, {rate >> 4, 64}, {rate >> 1, 512}, {rate >> 2, 256}}
	case Diffserv8, Precedence:
		out := make([]tinShare, 8)
		weight := int32(256)
		for i := range out {
			out[i] = tinShare{rate, weight}
			rate, weight = rate/8*7, weight*7>>3
		}
		return out
	}
	return []tinShare{{rate, 65535}}
}

// index returns the tin of each code point (sch_cake.c diffserv3, diffserv4,
// diffserv8, precedence; code points by RFC 4594). What is not named is best effort.
func (t Tins) index() (tin [64]uint8) {
	set := func(n uint8, points ...uint8) {
		for _, p := range points {
			tin[p] = n
		}
	}
	const ef, va, le = 46, 44, 1
	cs := [8]uint8{0, 8, 16, 24, 32, 40, 48, 56}
	af := func(class uint8) []uint8 { return []uint8{8*class + 2, 8*class + 4, 8*class + 6} }
	switch t {
	case Diffserv3:
		set(1, le, cs[1])
		set(2, 4, va, ef, cs[6], cs[7])
	case Diffserv4:
		set(1, le, cs[1])
		set(2, 4, cs[2], cs[3])
		for class := uint8(2); class <= 4; class++ {
			set(2, af(class)...)
		}
		set(3, cs[4], cs[5], va, ef, cs[6], cs[7])
		// AF4x belongs to video, although its precedence is CS4's.
	case Diffserv8:
		for p := range tin {
			tin[p] = 2
		}
		set(0, le)
		set(1, 2, cs[1])
		set(1, af(1)...)
		set(3, cs[3])
		set(3, af(3)...)
		set(3, af(4)...)
		set(4, 4)
		set(4, af(2)...)
		set(5, cs[2])
		set(6, cs[4], cs[5], va, ef)
		set(7, cs[6], cs[7])
	case Precedence:
		for p := range tin {
			tin[p] = uint8(p) >> 3
		}
	}
	return tin
}
