// Package classify says what class a packet has: one table of rules and limits
// (Build), and an evaluator that walks a packet through it (Table.Decide).
// Package lang/nft renders the same table for nftables, `unbloat why` explains
// its decisions, and the simulator decides by it. It is pure: time is passed in.
//
// The rules also depend on state, which is modelled here: the Connection that
// connection tracking keeps (counts of bytes and packets in each direction,
// whether it was answered, 32 bits of mark), and State, the sets with limits
// that the rules fill. There are two models of it: Memory is State as nftables
// keeps it, beside connection tracking; Own is all of it as the BPF program of
// package platform/linux/bpf keeps it, connections too. Each renderer is compared
// with Decide over its own.
package classify

import (
	"time"

	"unbloat/unit"
)

// A Class is what a packet is to the queue: how soon it goes, and how much of
// the line it can claim. There are four, on every platform.
type Class string

// The classes, first to last. Each is bounded by its share: what is above it
// goes as ordinary traffic does, so that pretending gains nothing.
const (
	Voice       Class = "voice"       // small and calm: calls, games, names, keystrokes
	Interactive Class = "interactive" // acknowledgements, a connection's first bytes, calm flows of large packets
	Normal      Class = "normal"      // everything else
	Bulk        Class = "bulk"        // what runs long, and swarms: BitTorrent, backups
)

// AllClasses returns the classes, first to last.
func AllClasses() []Class { return []Class{Voice, Interactive, Normal, Bulk} }

// Direction is down (towards the home) or up.
type Direction string

// Directions.
const (
	Down Direction = "down"
	Up   Direction = "up"
)

func (d Direction) other() Direction {
	if d == Up {
		return Down
	}
	return Up
}

// Limits are what tells the class of a flow that no rule names. Rates count
// IP packets. Every memory that they need is bounded by Flows.
type Limits struct {
	CalmPackets int       `json:"calm_packets"`        // a second: a flow that sends more, or more bytes, is not calm
	CalmRate    unit.Rate `json:"calm_bps"`            //
	CalmOfHost  unit.Rate `json:"calm_of_host_bps"`    // a machine whose calm flows together receive more has none, so that many do not gain what one cannot
	CalmOfUp    unit.Rate `json:"calm_of_host_up_bps"` // or send more
	// A busy flow of datagrams that stays below this is steady, and keeps class
	// interactive; 0: none is. Those of one machine together have a bound of their own.
	Steady         unit.Rate `json:"steady_bps,omitempty"`
	SteadyUp       unit.Rate `json:"steady_up_bps,omitempty"`
	SteadyOfHost   unit.Rate `json:"steady_of_host_bps,omitempty"`
	SteadyOfHostUp unit.Rate `json:"steady_of_host_up_bps,omitempty"`

	SmallPacket unit.Size `json:"small_packet"`      // IP bytes: calm datagrams up to this are voice, larger ones interactive; TCP has calm packets up to this alone
	FirstBytes  unit.Size `json:"first_bytes"`       // of a connection, counted both ways: interactive on the way down
	FirstUp     unit.Size `json:"first_bytes_up"`    // and on the way up
	HeavyBytes  unit.Size `json:"heavy_bytes"`       // from here on a connection counts as heavy
	LongBytes   unit.Size `json:"long_bytes"`        // and from here on it is bulk
	HeavyOfHost int       `json:"heavy_connections"` // more than this many heavy connections of one host: those above are bulk
	Peers       int       `json:"peers"`             // more than this many new partners of one UDP port: a swarm, which is bulk
	Names       int       `json:"names_per_second"`  // DNS queries and pings of one host that are voice
	Acks        int       `json:"acks_per_second"`   // acknowledgements of slow TCP connections that go up; of more, only every second one with SACK blocks goes; 0: all go
	Flows       int       `json:"flows"`             // most flows that are remembered, for each of IPv4 and IPv6 and each direction
}

// CalmOf returns what the calm flows of one machine may have together in a direction.
func (l Limits) CalmOf(d Direction) unit.Rate {
	if d == Up {
		return l.CalmOfUp
	}
	return l.CalmOfHost
}

// first is what a connection carries first in a direction.
func (l Limits) first(d Direction) unit.Size {
	if d == Down {
		return max(l.FirstBytes, 1)
	}
	return max(l.FirstUp, 1)
}

// What the limits do not name.
const (
	// AckBelow is the length of IP packets below which one can be an
	// acknowledgement without data. It is a power of two.
	AckBelow = 128
	// BusyFor is how long a flow is busy after it was not calm, and a machine a
	// crowd after its calm flows had too much.
	BusyFor = 10 * time.Second
	// swarmFor is how long a port is a swarm's after it had too many partners.
	swarmFor = 10 * time.Minute
	// slowAcks is how many acknowledgements a second a connection sends at most
	// that acknowledges each packet by itself: those that come closer than 40 ms
	// (TCP_ATO_MIN) are acknowledged in pairs.
	slowAcks = 30
	// lookOf is the sampling of calm UDP connections: one of lookOf small packets
	// in a direction is metered, by connection tracking's own count of them; the
	// others have their class from the connection's mark. The limits of the
	// sampled packets' meters are lookOf times smaller, so they find the same
	// rates, and find a connection that sends too much as soon.
	lookOf = 32
	// lookAt are the bits of a TCP sequence number that are 0 while a connection
	// is sampled: for 2 kB of each 64 kB that it sends. UDP has its checksum
	// there, which samples one packet of 32.
	lookAt = 0x0000f800
	// gcInterval is how often a set is searched for expired elements, which costs
	// as much for an empty set.
	gcInterval = 5 * time.Second
)

// Bits of a connection's mark that are used, all of them MarkBits; the others are left alone.
const (
	MarkMask  = 0x0f000000 // the tin of what arrives
	MarkShift = 24
	MarkBits  = MarkMask | counted | isBulk | known | metered
	counted   = 0x10000000 // the connection is counted as a heavy one
	isBulk    = 0x20000000 // and is bulk: its machine has so many, or it has run long
	known     = 0x40000000 // a TCP connection past its first bytes; one of UDP that is counted as a heavy one
	metered   = 0x80000000 // its acknowledgements are counted, because there were too many of all

	calmDown = counted // of UDP: its small packets are calm in this direction, and one of many is sampled
	calmUp   = metered
)

// A Lane is where packets of a class go: a class's own, or that of acknowledgements.
type Lane struct {
	Name  string // the class, or "acks"
	Class Class
	Tin   uint8 // its number in the shaper, 1 to 15: a tin of CAKE, or its equivalent
}

// A Policy is what Build makes a table of.
type Policy struct {
	Up, Down []Lane // those of the classes, first to last, and of acknowledgements; nil: the direction has no classes
	// DownByMark says that what arrives meets its queue before the rules: its class
	// is kept in the connection's mark, and is that of its next packet.
	DownByMark bool
	// EveryPacket says that each packet is metered. Otherwise connections that are
	// known go by their mark, and one packet of many is sampled.
	EveryPacket bool
	// Hashed says that the target keeps no sets, only what iptables of Linux 3.10
	// has: see hashed.go. Neither DownByMark nor EveryPacket matter then.
	Hashed bool
	// Apart says that each direction remembers by itself what both could share:
	// neither writes what the other reads.
	Apart bool
	// Varies says that the line does, so that a bound may be more than it has.
	Varies bool
	// Named says that another table's rules name traffic: Packet.Named says so.
	Named bool
	// RulesAlone says that this is that other table: it has the rules, and leaves
	// alone what they do not name.
	RulesAlone bool
	Limits     Limits
	Rules      []Rule
	Trust      Trust
}

// lanes returns those of a direction.
func (p Policy) lanes(d Direction) []Lane {
	if d == Up {
		return p.Up
	}
	return p.Down
}

// byMark reports whether a direction's class goes over the connection's mark.
func (p Policy) byMark(d Direction) bool { return d == Down && p.DownByMark }
