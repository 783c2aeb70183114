package classify

import (
	"math/bits"
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

// Ticks is how many jiffies the kernel has a second (HZ).
type Ticks int64

// of returns a time in ticks, rounded up.
func (h Ticks) of(d time.Duration) uint64 {
	return uint64((int64(d)*int64(h) + int64(time.Second) - 1) / int64(time.Second))
}

// now is an instant as the program counts it.
func (h Ticks) now(t unit.Instant) uint64 {
	return uint64(int64(t) / (int64(time.Second) / int64(h)))
}

// window is the logarithm of the ticks of about a quarter of a second, over which rates
// are estimated; twice more of it is a second's.
func (h Ticks) window() uint32 { return uint32(max(bits.Len64(uint64(h)*3/16), 1)) }

// within returns what a rate, of bytes or packets a second, has in a window of 2^shift ticks.
func (h Ticks) within(perSecond uint64, shift uint32) uint64 { return perSecond << shift / uint64(h) }

// A Bucket's rate in whole numbers that need no division: what it gains in a tick, what
// one costs, and what it holds.
type Bucket struct{ Gain, Cost, Most uint64 }

// bucket returns one that fills with n in per, and holds most.
func (h Ticks) bucket(n int, per time.Duration, most int) Bucket {
	cost := uint64(per/time.Second) * uint64(h)
	return Bucket{Gain: uint64(n), Cost: cost, Most: cost * uint64(most)}
}

// moments are the ticks of the one limit that has to be even, not in lumps of a tick: 1024 ns.
const moments Ticks = 1e9 >> 10

// Moment is an instant in those ticks.
func Moment(t unit.Instant) uint64 { return moments.now(t) }

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
	Ticks    Ticks  // of the kernel
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
	Up, Down                                                            Side
	SlowAcks                                                            Bucket // in moments
	LightBytes, LightPackets, Speech, Names, Acks, AcksOfFlow           uint64
	HeavyBytes, LongBytes                                               uint64
	BusyFor, MixedFor, SpeaksFor, SwarmFor, ElasticFor, StruckFor       uint64
	UnansweredFor, DatagramsFor, StreamFor, MachineFor, PortFor         uint64
	Small, Window, Second, FlowMask, MachineMask, PortMask, Seed, Major uint32
	Thins, Numbered, Test, Named, Varies, HTB, _, _                     uint8
}

// Ticks returns those of the setting.
func (c Constants) Ticks() Ticks { return Ticks(c.MachineFor / uint64(keepMachine/time.Second)) }

// Rate returns that of what came in a window of 2^shift ticks, in bytes.
func (c Constants) Rate(window uint64, shift uint32) unit.Rate {
	return unit.Rate(window * 8 * uint64(c.Ticks()) >> shift)
}

// packet is what one packet counts in an estimate of packets: they would be lost in
// whole numbers.
const packet = 1 << 16

// ConstantsOf returns the numbers of a policy.
func ConstantsOf(p Policy, s Setting) Constants {
	l, h := p.Limits, s.Ticks
	quarter := h.window()
	second := quarter + 2
	bytes := func(r unit.Rate, shift uint32) uint64 { return h.within(uint64(max(r, 0)/8), shift) }
	packets := func(n int) uint64 { return h.within(uint64(n)*packet, second) }
	c := Constants{
		SlowAcks:   moments.bucket(l.Acks, time.Second, l.Acks),
		LightBytes: bytes(l.CalmRate, second), LightPackets: packets(l.CalmPackets), Speech: packets(speakPackets), Names: packets(l.Names),
		Acks: packets(l.Acks), AcksOfFlow: packets(slowAcks),
		HeavyBytes: uint64(l.HeavyBytes), LongBytes: uint64(l.LongBytes),
		BusyFor: h.of(busyFor), MixedFor: h.of(mixedFor), SpeaksFor: h.of(speaksFor), SwarmFor: h.of(swarmFor),
		ElasticFor: h.of(elasticFor), StruckFor: h.of(struckFor),
		UnansweredFor: h.of(keepUnanswered), DatagramsFor: h.of(keepDatagrams), StreamFor: h.of(keepStream),
		MachineFor: h.of(keepMachine), PortFor: h.of(keepPort),
		Small: uint32(l.SmallPacket), Window: quarter, Second: second,
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
			Steady: bytes(l.SteadyOf(x.d), quarter), SteadyOfMachine: bytes(l.SteadyOfMachine(x.d), quarter),
			Patience: max(uint64(l.SteadyOf(x.d).Bytes(patience)), picture),
			Heavy:    h.bucket(max(half/4, 1), time.Minute, half), Peers: h.bucket(l.Peers, time.Minute, l.Peers),
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
