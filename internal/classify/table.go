package classify

import (
	"net/netip"
	"time"
)

// A Table is the rules as chains of steps, and the sets and limits that they
// share. Build makes one; Decide walks a packet through it.
type Table struct {
	Sets   []*Set
	Limits []*Limit
	Chains []*Chain // a chain only goes to others of its direction; those of the upload first

	policy Policy
	byTin  [2][16]*Lane
	entry  [2]*Chain
}

// A Chain is a list of steps. The first step that fits and leads elsewhere ends
// it. At its end a packet goes back to where Jump came from.
type Chain struct {
	Name      string
	Direction Direction
	Limits    []*Limit // that its steps ask first
	Steps     []Step
}

// A Step does what it does to packets that fit all of its conditions, which are
// tried in their order.
type Step struct {
	If   []Cond
	Do   []Effect
	Then Verdict
	To   string // the chain that Goto and Jump go to
	Why  Reason // what it means to come here; the zero one: nothing

	to *Chain
}

// A Verdict is what happens to a packet after a step.
type Verdict uint8

// Verdicts.
const (
	Continue Verdict = iota // with the next step
	Goto                    // another chain, and never back
	Jump                    // another chain, and on with the next step after it
	Accept                  // it has its class
	Drop                    // it is left out
)

// A Set remembers keys for a time, each with meters of its own.
type Set struct {
	Name   string
	Key    KeyKind
	Family int // 4 or 6; 0: its key has no address, or one of either
	// Direction is that of the packets that fill it; "": both.
	Direction Direction
	Timeout   time.Duration
	GC        time.Duration // how often what has expired is forgotten
	Size      int           // a newcomer finds no room in a full one, and the step does not fit

	index int
}

// A Limit is a meter that all packets share.
type Limit struct {
	Name string
	Rate Rate
	Even bool // what it lets pass comes evenly, not in lumps of a tick

	index int
}

// A Rate is a bucket of tokens. Of packets it holds Burst; of bytes Burst and
// what comes in a second (or Per) besides, as nftables makes it.
type Rate struct {
	N     int64 // packets, or bytes, in Per
	Per   time.Duration
	Bytes bool
	Burst int64
	Over  bool // it fits what is above it; otherwise what is within it
}

// A KeyKind says what of a packet a set remembers.
type KeyKind uint8

// Kinds of keys. Home and far are the ends, whichever sends.
const (
	HomeAddress KeyKind = iota
	FarAddress
	HomeAddressAndPort
	FlowKey  // protocol, home's address and port, far address and port
	PortPair // home's port, far port
)

// A Key is what a set remembers; what its kind does not have is zero.
type Key struct {
	Home, Far         netip.Addr
	HomePort, FarPort uint16
	Protocol          uint8
	Machine           uint16 // its number, in place of its address
}

// A Cond is what a step asks: Test, Within, Addresses, Hardware, Member, Meter,
// Exceeds or Alternate.
type Cond interface{ cond() }

// A Test compares the bits of a field that Mask keeps (0: all).
type Test struct {
	Field Field
	Mask  uint32
	Op    Op
	Value uint64
	To    uint64 // of Between
}

// Within asks whether a field has one of these values.
type Within struct {
	Field    Field
	Protocol uint8 // whose ports they are; 0: of any
	Family   int   // whose DSCP it is
	Ranges   []PortRange
}

// Addresses asks whether an end is one of these addresses or networks, all of
// one version of IP.
type Addresses struct {
	Far    bool
	Family int
	Names  []string // as KindOfHost gives them

	nets []netip.Prefix
}

// Hardware asks whether the sender has one of these MAC addresses.
type Hardware struct{ MACs []string }

// Member asks whether a set holds the packet's key.
type Member struct{ Set *Set }

// Meter remembers the packet's key for another timeout, and asks its meters.
type Meter struct {
	Set   *Set
	Rates []Rate
}

// Exceeds asks whether all packets together are above a limit.
type Exceeds struct{ Limit *Limit }

// Alternate takes every second packet that comes to it, beginning with the first.
type Alternate struct{}

func (Test) cond()      {}
func (Within) cond()    {}
func (Addresses) cond() {}
func (Hardware) cond()  {}
func (Member) cond()    {}
func (Meter) cond()     {}
func (Exceeds) cond()   {}
func (Alternate) cond() {}

// A Field is something of a packet, or of its connection, that is a number.
type Field uint8

// Fields.
const (
	Length       Field = iota // bytes of the IP packet
	ProtocolIs                // of IP
	FamilyIs                  // 4 or 6
	FlagsOf                   // of TCP
	SACKBlocks                // 1: it has some
	SecondWord                // bits 32 to 63 of the transport header, as a number
	CodePoint                 // DSCP
	NamedIs                   // the tin that another table's rule gave it; 0: none
	HomePortIs                //
	FarPortIs                 //
	CtMark                    // of its connection
	CtBytes                   // both ways, with this packet's; 0 if it is not counted
	CtPackets                 // both ways
	CtSent                    // packets in the direction of the one that began it
	CtReplied                 // packets in the other
	CtIsReply                 // 1: this packet goes in the other
	CtIsNew                   // 1: no packet has gone in the other
	CtIsAnswered              // 1: one has
)

// An Op compares.
type Op uint8

// Ops.
const (
	Equal Op = iota
	NotEqual
	Less
	AtMost
	More
	AtLeast
	Between // Value to To, both included
)

// Flags of TCP (RFC 9293 §3.1).
const (
	FIN = 1 << iota
	SYN
	RST
	PSH
	ACK
	URG
)

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

// An Effect is what a step does: SetMark, Remember or Classify.
type Effect interface{ effect() }

// SetMark changes the connection's mark: first And (0: leaves all), then Or.
type SetMark struct{ And, Or uint32 }

// Remember adds the packet's key to a set.
type Remember struct {
	Set   *Set
	Again bool // where the set holds it already, for another timeout
}

// Classify gives a direction's packet its class, or its connection's mark that of
// what arrives next.
type Classify struct {
	Direction Direction
	Lane      Lane
	ByMark    bool
}

func (SetMark) effect()  {}
func (Remember) effect() {}
func (Classify) effect() {}
