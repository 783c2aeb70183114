// Package classify says what class a packet has. It is one decision table (Classifier.Decide)
// over what is remembered of flows, machines and ports, and the rules that somebody
// wrote (Match). The BPF program of package platform/linux/bpf is the same table in the
// same order with the same names, and a test walks packets through both. The simulator
// decides by this one. It is pure: time is passed in.
//
// The table's rows, of which the first that fits decides:
//
//	rule             a rule names the packet
//	mark             its DSCP, where that is trusted
//	name             DNS and ping, up to a number a second of each machine
//	acknowledgement  TCP's without data; of slow connections not more than the upload carries
//	first            the first bytes of a TCP connection, bounded for each machine
//	unprotected      neither TCP nor UDP
//	swarm            UDP of a port with many partners: bulk
//	unanswered       UDP that nobody has answered
//	light            a flow below a small rate, and its machine's light ones together
//	steady           a flow of datagrams below its bound that was not found elastic
//	bulk             after much, or as one of many
//	normal           everything else
package classify

import "unbloat/unit"

// A Class is what a packet is to the queue: how soon it goes, and how much of
// the line it can claim. There are four, on every platform.
type Class string

// The classes, first to last. Each is bounded by its share: what is above it
// goes as ordinary traffic does, so that pretending gains nothing.
const (
	Voice       Class = "voice"       // small and light: calls, games, names, keystrokes
	Interactive Class = "interactive" // acknowledgements, a connection's first bytes, light flows of large packets, steady ones
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

// by returns what belongs to a direction.
func by[T any](d Direction, down, up T) T {
	if d == Up {
		return up
	}
	return down
}

// Limits are what tells the class of a flow that no rule names. Rates count
// IP packets. Every memory that they need is bounded by Flows.
type Limits struct {
	CalmPackets int       `json:"calm_packets"`        // a second: a flow that sends more, or more bytes, is not light
	CalmRate    unit.Rate `json:"calm_bps"`            //
	CalmOfHost  unit.Rate `json:"calm_of_host_bps"`    // a machine whose light flows together receive more has none, so that many do not gain what one cannot
	CalmOfUp    unit.Rate `json:"calm_of_host_up_bps"` // or send more
	// A flow of datagrams that stays below this is steady, and keeps class
	// interactive; 0: none is. Those of one machine together have a bound of their own.
	Steady         unit.Rate `json:"steady_bps,omitempty"`
	SteadyUp       unit.Rate `json:"steady_up_bps,omitempty"`
	SteadyOfHost   unit.Rate `json:"steady_of_host_bps,omitempty"`
	SteadyOfHostUp unit.Rate `json:"steady_of_host_up_bps,omitempty"`

	SmallPacket unit.Size `json:"small_packet"`      // IP bytes: light datagrams up to this are voice, larger ones interactive; TCP has light packets up to this alone
	FirstBytes  unit.Size `json:"first_bytes"`       // of a connection, counted both ways: interactive on the way down
	FirstUp     unit.Size `json:"first_bytes_up"`    // and on the way up
	HeavyBytes  unit.Size `json:"heavy_bytes"`       // from here on a connection counts as heavy
	LongBytes   unit.Size `json:"long_bytes"`        // and from here on it is bulk
	HeavyOfHost int       `json:"heavy_connections"` // more than this many heavy connections of one host: those above are bulk
	Peers       int       `json:"peers"`             // more than this many new partners of one UDP port: a swarm, which is bulk
	Names       int       `json:"names_per_second"`  // DNS queries and pings of one host that are voice
	Acks        int       `json:"acks_per_second"`   // acknowledgements of slow TCP connections that go up; of more, only every second one with SACK blocks goes; 0: all go
	Flows       int       `json:"flows"`             // most flows that are remembered in each direction
}

// CalmOf returns what the light flows of one machine may have together in a direction.
func (l Limits) CalmOf(d Direction) unit.Rate { return by(d, l.CalmOfHost, l.CalmOfUp) }

// SteadyOf returns what a flow of datagrams may have in a direction and still be
// steady; 0: none is.
func (l Limits) SteadyOf(d Direction) unit.Rate { return by(d, l.Steady, l.SteadyUp) }

// SteadyOfMachine returns what the steady flows of one machine may have together.
func (l Limits) SteadyOfMachine(d Direction) unit.Rate {
	return by(d, l.SteadyOfHost, l.SteadyOfHostUp)
}

// FirstOf returns what a connection carries first in a direction.
func (l Limits) FirstOf(d Direction) unit.Size { return max(by(d, l.FirstBytes, l.FirstUp), 1) }

// A Lane is where packets of a class go: a class's own, or that of acknowledgements.
type Lane struct {
	Name  string // the class, or "acks"
	Class Class
	Tin   uint8 // its number in the shaper, 1 to 15: a tin of CAKE, or its equivalent
}

// AcksLane is the name of the lane of acknowledgements.
const AcksLane = "acks"

// LaneNames are the lanes in the order of their numbers, of which the first is 1: the
// program counts them so.
func LaneNames() []string {
	return []string{string(Voice), string(Interactive), string(Normal), string(Bulk), AcksLane}
}

// A Policy is what a plan asks of the table.
type Policy struct {
	Up, Down []Lane // those of the classes, first to last, and of acknowledgements; nil: the direction has no classes
	Varies   bool   // the line does, so that a bound may be more than it has
	Named    bool   // rules of nftables' name traffic: Packet.Named says so
	Limits   Limits
	Trust    Trust
}

// lanes returns those of a direction.
func (p Policy) lanes(d Direction) []Lane { return by(d, p.Down, p.Up) }

// Numbers of protocols (IANA).
const (
	ICMP   = 1
	TCP    = 6
	UDP    = 17
	GRE    = 47
	ESP    = 50
	ICMPv6 = 58
	SCTP   = 132
)

// HasPorts reports whether packets of a protocol have ports.
func HasPorts(protocol uint8) bool { return protocol == TCP || protocol == UDP || protocol == SCTP }

// Flags of TCP (RFC 9293 §3.1).
const (
	FIN = 1 << iota
	SYN
	RST
	PSH
	ACK
	URG
)

// Where nftables alone gives classes, what arrives has its class in these bits of its
// connection's mark. Rules of others that use any of MarkBits are in the way.
const (
	MarkMask  = 0x0f000000
	MarkShift = 24
	MarkBits  = 0xff000000
)
