package classify

import (
	"time"

	"unbloat/unit"
)

// What the limits do not name.
const (
	// AckBelow is the length of IP packets below which one can be an
	// acknowledgement without data.
	AckBelow = 128
	// slowAcks is how many acknowledgements a second a connection sends at most
	// that acknowledges each packet by itself: those that come closer than 40 ms
	// (TCP_ATO_MIN) are acknowledged in pairs.
	slowAcks = 30
	// A flow speaks that sends more small packets a second that are no
	// acknowledgements: sound has 50, and what is left of it beside a hundred uploads
	// is more than this. An upload has none.
	speakPackets = 4

	busyFor   = 10 * time.Second // a flow is not light after it had too much, and a machine a crowd
	mixedFor  = 2 * time.Second  // a light flow's small packets go with its large ones
	speaksFor = 5 * time.Second  // a machine has a call after one of its flows spoke
	swarmFor  = 10 * time.Minute // a port is a swarm's after it had too many partners
	// patience is for how long a flow may send at its bound while it is above it, before it
	// is elastic; at least picture, which a camera sends at once.
	patience = 500 * time.Millisecond
	picture  = 64_000
	// elasticFor is how long it does not go first then; doubled each time within struckFor.
	elasticFor  = 4 * time.Second
	mostStrikes = 7 // 4 s << 7 is more than eight minutes
	struckFor   = 10 * time.Minute

	// For how long a place is kept after its last packet. An answered datagram is that
	// of a conversation, with connection tracking's usual time; TCP's are longer quiet.
	keepUnanswered = 30 * time.Second
	keepDatagrams  = 2 * time.Minute
	keepStream     = 5 * time.Minute
	keepMachine    = 5 * time.Minute
	keepPort       = time.Minute
)

// A clock counts time as the program does: its value is the logarithm of a unit's nanoseconds.
type clock uint

// Nearly everything counts in ticks of 4.2 ms; the one limit that has to be even, not in lumps
// of a tick, in moments of 1024 ns.
const (
	ticks   clock = 22
	moments clock = 10
)

// Rates are estimated over windows: the logarithms of a quarter of a second's ticks, and of a
// second's.
const (
	window = 6
	second = 8
)

// of returns a time in units, rounded up.
func (k clock) of(d time.Duration) uint64 { return (uint64(d) + 1<<k - 1) >> k }

// within returns what a rate, of bytes or packets a second, has in a window of 2^shift units.
func (k clock) within(perSecond uint64, shift uint) uint64 {
	return perSecond << (shift + uint(k)) / uint64(time.Second)
}

// Tick is an instant as the program counts it.
func Tick(t unit.Instant) uint64 { return uint64(t) >> ticks }

// Moment is the same, finer.
func Moment(t unit.Instant) uint64 { return uint64(t) >> moments }

// Until returns how long after a tick another one is.
func Until(now, tick uint64) time.Duration { return time.Duration(max(tick, now)-now) << ticks }

// RateOfWindow returns the rate at a tick of what an estimate of bytes had at an earlier one,
// over a quarter of a second.
func RateOfWindow(bytes, at, now uint64) unit.Rate { return rateOf(bytes, at, now, window) }

// RateOfSecond is the same over a second.
func RateOfSecond(bytes, at, now uint64) unit.Rate { return rateOf(bytes, at, now, second) }

func rateOf(bytes, at, now uint64, shift uint) unit.Rate {
	e := estimate{window: bytes, at: at}
	return unit.Rate(e.add(0, shift, now) * 8 * uint64(time.Second) >> (shift + uint(ticks)))
}

// A Bucket's rate in whole numbers that need no division: what it gains in a tick, what
// one costs, and what it holds.
type Bucket struct{ Gain, Cost, Most uint64 }

// bucket returns one that fills with n in per, and holds most.
func (k clock) bucket(n int, per time.Duration, most int) Bucket {
	cost := k.of(per)
	return Bucket{Gain: uint64(n), Cost: cost, Most: cost * uint64(most)}
}

// Places are how many buckets each of a direction's tables has. Each is a power of
// two, and each bucket has WaysOfBucket places.
type Places struct{ Flows, Machines, Ports int }

// WaysOfBucket is how many places a bucket has.
const WaysOfBucket = 4

// PlacesFor returns room for so many flows. CAKE has 1024 hosts at most.
func PlacesFor(flows int) Places {
	n := 16
	for n*WaysOfBucket < flows && n < 1<<16 {
		n *= 2
	}
	return Places{Flows: n, Machines: min(max(n/8, 16), 1024/WaysOfBucket), Ports: max(n/4, 16)}
}

// A Setting is what the table is loaded with, beside the policy.
type Setting struct {
	Major    uint16 // of the shaper's handle: 0xb10a is b10a:
	First    uint16 // with HTB: the minor number of its classes is a tin's and this; 0: CAKE
	Places   Places
	Seed     uint32 // of the hashes
	Numbered bool   // a filter on the LAN's interface numbers the machines
}

// A Side has the numbers of one direction. It and Constants are the program's: the same
// fields in the same order.
type Side struct {
	FirstOfMachine, LightOfMachine, Steady, SteadyOfMachine uint64 // bytes in a window
	Patience                                                uint64 // bytes above Steady
	Heavy, Peers                                            Bucket
	FirstBytes                                              uint64
	Priority                                                [8]uint32 // by lane
	LaneOfDSCP                                              [64]uint8
	LaneOfTin                                               [16]uint8
}

// Constants are all numbers of the table, in ticks, and in bytes or packets of a window.
type Constants struct {
	Up, Down                                                      Side
	SlowAcks                                                      Bucket // in moments
	LightBytes, LightPackets, Speech, Names, Acks, AcksOfFlow     uint64
	HeavyBytes, LongBytes                                         uint64
	BusyFor, MixedFor, SpeaksFor, SwarmFor, ElasticFor, StruckFor uint64
	UnansweredFor, DatagramsFor, StreamFor, MachineFor, PortFor   uint64
	Small, FlowMask, MachineMask, PortMask, Seed, Major           uint32
	Thins, Numbered, Test, Named, Varies, HTB, _, _               uint8
}

// packet is what one packet counts in an estimate of packets: they would be lost in
// whole numbers.
const packet = 1 << 16

// ConstantsOf returns the numbers of a policy.
func ConstantsOf(p Policy, s Setting) Constants {
	l := p.Limits
	bytes := func(r unit.Rate, shift uint) uint64 { return ticks.within(uint64(max(r, 0)/8), shift) }
	packets := func(n int) uint64 { return ticks.within(uint64(n)*packet, second) }
	c := Constants{
		SlowAcks:   moments.bucket(l.Acks, time.Second, l.Acks),
		LightBytes: bytes(l.CalmRate, second), LightPackets: packets(l.CalmPackets), Speech: packets(speakPackets), Names: packets(l.Names),
		Acks: packets(l.Acks), AcksOfFlow: packets(slowAcks),
		HeavyBytes: uint64(l.HeavyBytes), LongBytes: uint64(l.LongBytes),
		BusyFor: ticks.of(busyFor), MixedFor: ticks.of(mixedFor), SpeaksFor: ticks.of(speaksFor), SwarmFor: ticks.of(swarmFor),
		ElasticFor: ticks.of(elasticFor), StruckFor: ticks.of(struckFor),
		UnansweredFor: ticks.of(keepUnanswered), DatagramsFor: ticks.of(keepDatagrams), StreamFor: ticks.of(keepStream),
		MachineFor: ticks.of(keepMachine), PortFor: ticks.of(keepPort),
		Small:    uint32(l.SmallPacket),
		FlowMask: uint32(s.Places.Flows - 1), MachineMask: uint32(s.Places.Machines - 1), PortMask: uint32(s.Places.Ports - 1),
		Seed: s.Seed, Major: uint32(s.Major),
		Thins: flag(l.Acks > 0), Numbered: flag(s.Numbered), Named: flag(p.Named), Varies: flag(p.Varies), HTB: flag(s.First > 0),
	}
	for _, x := range []struct {
		d     Direction
		to    *Side
		trust bool
	}{{Up, &c.Up, p.Trust.TrustHome}, {Down, &c.Down, p.Trust.TrustFar}} {
		half := max((l.HeavyOfHost+1)/2, 1) // each direction counts for itself
		*x.to = Side{
			FirstOfMachine: bytes(2*l.CalmOf(x.d), second), LightOfMachine: bytes(l.CalmOf(x.d), second),
			Steady: bytes(l.SteadyOf(x.d), window), SteadyOfMachine: bytes(l.SteadyOfMachine(x.d), window),
			Patience: max(uint64(l.SteadyOf(x.d).Bytes(patience)), picture),
			Heavy:    ticks.bucket(max(half/4, 1), time.Minute, half), Peers: ticks.bucket(l.Peers, time.Minute, l.Peers),
			FirstBytes: uint64(l.FirstOf(x.d)),
		}
		for i, name := range LaneNames() {
			for _, lane := range p.lanes(x.d) {
				if lane.Name != name {
					continue
				}
				x.to.Priority[i+1] = uint32(s.Major)<<16 | uint32(s.First) + uint32(lane.Tin)
				if name != AcksLane && p.Named {
					x.to.LaneOfTin[lane.Tin&15] = uint8(i + 1)
				}
				for v := range x.to.LaneOfDSCP {
					if class, ok := ClassOfDSCP(uint8(v)); ok && x.trust && name == string(class) {
						x.to.LaneOfDSCP[v] = uint8(i + 1)
					}
				}
			}
		}
	}
	return c
}

func flag(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}
