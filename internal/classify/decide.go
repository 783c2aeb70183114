package classify

import (
	"fmt"
	"net/netip"
	"slices"

	"unbloat/unit"
)

// A Packet is what the rules see of one.
type Packet struct {
	Direction         Direction
	Protocol          uint8
	Home, Far         netip.Addr
	HomePort, FarPort uint16
	Length            unit.Size // of the IP packet
	DSCP              uint8
	Flags             uint8  // of TCP
	SACK              bool   // a segment with SACK blocks
	Second            uint32 // bits 32 to 63 of the transport header: TCP's sequence number; of UDP the checksum is the lower half
	MAC               string // of the sender, in lower case; "" if it cannot be seen
	// Machine is the home's machine by its number, where the addresses do not tell
	// it; 0: they do.
	Machine uint16
	// Named is the tin of the class that another table's rule gave it; 0: none did.
	Named uint8
}

// A Connection is what connection tracking knows of a packet's flow, this packet
// included. Mark is what the rules write.
type Connection struct {
	Sent, Replied uint64    // packets in the direction of the end that began it, and in the other
	Bytes         unit.Size // of IP packets, both ways; like the packets 0 for a connection that is older than its counters
	ReplyPacket   bool      // the packet goes in the other direction
	Answered      bool      // one has gone in the other direction
	Untracked     bool      // there is none, as for a malformed packet: no test of it fits, and no mark is kept
	Mark          uint32
}

// A State is what the rules remember between packets, apart from connections.
type State interface {
	// Holds reports whether a set has a key now.
	Holds(now unit.Instant, s *Set, k Key) bool
	// Remember adds a key to a set; again has one that is there already stay for
	// another timeout. It reports false if there is no room.
	Remember(now unit.Instant, s *Set, k Key, again bool) bool
	// Meter remembers a key for another timeout, charges its meters with a packet
	// of so many bytes, one after the other, and reports whether all fit.
	Meter(now unit.Instant, s *Set, k Key, rates []Rate, bytes unit.Size) bool
	// Exceeds charges a limit with a packet, and reports whether that is above it.
	Exceeds(now unit.Instant, l *Limit) bool
	// Alternate is true for every second call, beginning with the first.
	Alternate() bool
}

// A Decision is what becomes of a packet.
type Decision struct {
	Drop bool // it is left out
	// Lane is what the packet got: by its priority, or in its connection's mark. Nil
	// is none: its direction has no classes.
	Lane *Lane
	// Why are the reasons that were met on the way; the last one decided. Only with Explain.
	Why []Reason
}

// A Reason says what decided, or was found out on the way.
type Reason struct {
	Code Code
	Rule int // of ByRule: which one, from 0
}

// A Code is a kind of reason.
type Code uint8

// Codes.
const (
	_            Code = iota
	ByRule            // a rule that somebody wrote
	ByDSCP            // its mark, which is trusted
	Names             // DNS or ping, not too many
	ManyNames         // more of that than is protected
	Swarm             // its port has many partners
	Unanswered        // nobody has answered it yet
	Acknowledges      // it has no data
	First             // of the first bytes of its connection
	Crowd             // the calm flows of its machine had too much together
	Busy              // it was not calm
	BusySmall         // so, but it is as small as an acknowledgement
	Steady            // it is busy, and stays below a bound
	TookMore          // it took more than that
	Waits             // so it may have, once other flows of its machine have been tried
	Sound             // it has not that class, but is small, and its flow speaks
	Mixed             // it is calm, and its flow has large packets too
	CalmTCP           // it is calm
	CalmSmall         // so, and a small datagram
	CalmLarge         // so, and a larger one
	WasBulk           // its connection is bulk already
	Long              // its connection has run long
	Ordinary          // nothing makes it more, or less, than the others
	Unprotected       // nothing protects its protocol
)

// Codes returns all of them.
func Codes() []Code {
	var out []Code
	for c := ByRule; c <= Unprotected; c++ {
		out = append(out, c)
	}
	return out
}

// Name returns the code's name, as in "calm_tcp".
func (c Code) Name() string {
	names := [...]string{ByRule: "by_rule", ByDSCP: "by_dscp", Names: "names", ManyNames: "many_names", Swarm: "swarm", Unanswered: "unanswered",
		Acknowledges: "acknowledges", First: "first_bytes", Crowd: "crowd", Busy: "busy", BusySmall: "busy_small",
		Steady: "steady", TookMore: "took_more", Waits: "waits", Sound: "sound", Mixed: "mixed", CalmTCP: "calm_tcp",
		CalmSmall: "calm_small", CalmLarge: "calm_large", WasBulk: "was_bulk", Long: "long", Ordinary: "ordinary", Unprotected: "unprotected"}
	if int(c) >= len(names) {
		return ""
	}
	return names[c]
}

// resolve finds the chains that steps lead to.
func (t *Table) resolve(chains map[string]*Chain) {
	for _, c := range t.Chains {
		for i := range c.Steps {
			if s := &c.Steps[i]; s.To != "" {
				if s.to = chains[s.To]; s.to == nil {
					panic(fmt.Sprintf("classify: chain %s leads to %s, which is not there", c.Name, s.To))
				}
			}
		}
	}
	for _, d := range []Direction{Up, Down} {
		i := d.index()
		t.entry[i] = chains[string(d)+"_class"]
		lanes := t.policy.lanes(d)
		for j := range lanes {
			if at := &t.byTin[i][lanes[j].Tin&0xf]; *at == nil {
				*at = &lanes[j]
			}
		}
	}
}

// Policy returns what the table was built of.
func (t *Table) Policy() Policy { return t.policy }

// ByMark returns the lane that a connection's mark stands for, which is that of
// a packet that arrives; nil: none yet, which is normal.
func (t *Table) ByMark(mark uint32) *Lane {
	return t.byTin[1][mark&MarkMask>>MarkShift]
}

// Decide walks a packet through the table: what it gets, what that leaves in its
// connection's mark and in what is remembered.
func (t *Table) Decide(now unit.Instant, p *Packet, c *Connection, s State) Decision {
	return t.walk(now, p, c, s, false)
}

// Explain decides like Decide, and says why.
func (t *Table) Explain(now unit.Instant, p *Packet, c *Connection, s State) Decision {
	return t.walk(now, p, c, s, true)
}

// A walk is one packet's.
type walk struct {
	table   *Table
	now     unit.Instant
	p       *Packet
	c       *Connection
	s       State
	explain bool
	out     Decision
}

func (t *Table) walk(now unit.Instant, p *Packet, c *Connection, s State, explain bool) Decision {
	entry := t.entry[p.Direction.index()]
	if entry == nil {
		return Decision{}
	}
	w := walk{table: t, now: now, p: p, c: c, s: s, explain: explain}
	w.chain(entry)
	if p.Direction == Down && t.policy.DownByMark {
		w.out.Lane = t.ByMark(c.Mark)
	}
	return w.out
}

// index is a direction's place where both have one.
func (d Direction) index() int {
	if d == Down {
		return 1
	}
	return 0
}

// chain walks one chain, and reports whether the packet is done with.
func (w *walk) chain(c *Chain) (done bool) {
next:
	for i := range c.Steps {
		s := &c.Steps[i]
		for _, x := range s.If {
			if !w.fits(x) {
				continue next
			}
		}
		for _, e := range s.Do {
			if !w.does(e) {
				continue next
			}
		}
		if w.explain && s.Why.Code != 0 {
			w.out.Why = append(w.out.Why, s.Why)
		}
		switch s.Then {
		case Goto:
			return w.chain(s.to)
		case Jump:
			if w.chain(s.to) {
				return true
			}
		case Accept:
			return true
		case Drop:
			w.out.Drop = true
			return true
		}
	}
	return false
}

// fits reports whether a packet meets a condition.
func (w *walk) fits(x Cond) bool {
	p := w.p
	switch x := x.(type) {
	case Test:
		return !(w.c.Untracked && x.Field >= CtMark) && x.holds(w.field(x.Field))
	case Within:
		if x.Family != 0 && x.Family != p.family() || x.Protocol != 0 && x.Protocol != p.Protocol {
			return false
		}
		v := uint16(w.field(x.Field))
		for _, r := range x.Ranges {
			if r.Contains(v) {
				return true
			}
		}
		return false
	case Addresses:
		if x.Family != p.family() {
			return false
		}
		a := p.Home
		if x.Far {
			a = p.Far
		}
		return slices.ContainsFunc(x.nets, func(n netip.Prefix) bool { return n.Contains(a) })
	case Hardware:
		return slices.Contains(x.MACs, p.MAC)
	case Member:
		k, ok := p.key(x.Set)
		return ok && w.s.Holds(w.now, x.Set, k)
	case Meter:
		k, ok := p.key(x.Set)
		return ok && w.s.Meter(w.now, x.Set, k, x.Rates, p.Length)
	case Exceeds:
		return w.s.Exceeds(w.now, x.Limit)
	case Alternate:
		return w.s.Alternate()
	}
	panic(fmt.Sprintf("classify: no condition %T", x))
}

// does has an effect, and reports whether it could.
func (w *walk) does(e Effect) bool {
	switch e := e.(type) {
	case SetMark:
		if w.c.Untracked {
			return true
		}
		if e.And != 0 {
			w.c.Mark &= e.And
		}
		w.c.Mark |= e.Or
	case Remember:
		k, ok := w.p.key(e.Set)
		return ok && w.s.Remember(w.now, e.Set, k, e.Again)
	case Classify:
		if e.ByMark && w.c.Untracked {
			return true
		}
		if e.ByMark {
			w.c.Mark = w.c.Mark&^MarkMask | uint32(e.Lane.Tin)<<MarkShift
		} else {
			w.out.Lane = w.table.byTin[e.Direction.index()][e.Lane.Tin&0xf] // the table's own copy
		}
	}
	return true
}

func (x Test) holds(v uint64) bool {
	if x.Mask != 0 {
		v &= uint64(x.Mask)
	}
	switch x.Op {
	case Equal:
		return v == x.Value
	case NotEqual:
		return v != x.Value
	case Less:
		return v < x.Value
	case AtMost:
		return v <= x.Value
	case More:
		return v > x.Value
	case AtLeast:
		return v >= x.Value
	}
	return v >= x.Value && v <= x.To
}

func (p *Packet) family() int {
	if p.Home.Is4() {
		return 4
	}
	return 6
}

// HasPorts reports whether packets of a protocol have ports.
func HasPorts(protocol uint8) bool { return protocol == TCP || protocol == UDP || protocol == SCTP }

// key is what a set remembers of the packet. ok is false if the packet has no such thing.
func (p *Packet) key(s *Set) (k Key, ok bool) {
	if s.Family != 0 && s.Family != p.family() {
		return k, false
	}
	switch s.Key {
	case HomeAddress:
		if k.Home = p.Home; p.Machine != 0 {
			k = Key{Machine: p.Machine}
		}
	case FarAddress:
		k.Far = p.Far
	case HomeAddressAndPort:
		k.Home, k.HomePort = p.Home, p.HomePort
	case FlowKey:
		k = Key{Home: p.Home, Far: p.Far, HomePort: p.HomePort, FarPort: p.FarPort, Protocol: p.Protocol}
	case PortPair:
		k.HomePort, k.FarPort = p.HomePort, p.FarPort
	}
	return k, true
}

func (w *walk) field(f Field) uint64 {
	p, c := w.p, w.c
	flag := func(b bool) uint64 {
		if b {
			return 1
		}
		return 0
	}
	switch f {
	case Length:
		return uint64(p.Length)
	case ProtocolIs:
		return uint64(p.Protocol)
	case FamilyIs:
		return uint64(p.family())
	case FlagsOf:
		if p.Protocol != TCP {
			return 0
		}
		return uint64(p.Flags)
	case SACKBlocks:
		return flag(p.SACK)
	case SecondWord:
		return uint64(p.Second)
	case CodePoint:
		return uint64(p.DSCP)
	case NamedIs:
		return uint64(p.Named)
	case HomePortIs:
		return uint64(p.HomePort)
	case FarPortIs:
		return uint64(p.FarPort)
	case CtMark:
		return uint64(c.Mark)
	case CtBytes:
		return uint64(c.Bytes)
	case CtPackets:
		return c.Sent + c.Replied
	case CtSent:
		return c.Sent
	case CtReplied:
		return c.Replied
	case CtIsReply:
		return flag(c.ReplyPacket)
	case CtIsNew:
		return flag(!c.Answered)
	case CtIsAnswered:
		return flag(c.Answered)
	}
	panic(fmt.Sprintf("classify: no field %d", f))
}
