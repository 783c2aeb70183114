package classify

import (
	"net/netip"

	"unbloat/unit"
)

// A Packet is what the table sees of one.
type Packet struct {
	Direction         Direction
	Protocol          uint8
	Home, Far         netip.Addr
	HomePort, FarPort uint16
	Length            unit.Size // of the IP packet
	DSCP              uint8
	Flags             uint8 // of TCP
	SACK              bool  // a segment with SACK blocks
	// Machine is the home's machine by its number, where the addresses do not tell
	// it; 0: they do.
	Machine uint16
	// Named is the tin of the class that a rule of nftables' gave it, and NamedDown
	// the one that it gave what comes back; 0: none did. Only of what leaves.
	Named, NamedDown uint8
}

// A Decision is what becomes of a packet.
type Decision struct {
	Lane *Lane // what it gets; nil: it is left out, or its direction has no classes
	Drop bool  // it is left out
	Code Code  // the row that decided, and what was found
}

// A Code is why a packet has its class: a row of the table.
type Code uint8

// Codes.
const (
	_            Code = iota
	ByRule            // a rule that somebody wrote
	ByDSCP            // its mark, which is trusted, and its flow stays below the bound
	Names             // DNS or ping, not too many
	ManyNames         // more of that than is protected
	Acknowledges      // it has no data
	First             // of the first bytes of its connection
	Unprotected       // nothing protects its protocol
	Swarm             // its port has many partners
	Unanswered        // nobody has answered it yet
	Crowd             // the light flows of its machine had too much together
	LightTCP          // its flow is light
	LightSmall        // so, and a small datagram
	LightLarge        // so, and a larger one
	LightMixed        // a small one of a light flow that has larger ones too
	Steady            // its flow stays below its bound
	TookMore          // its flow took more, or its machine's together did
	Waits             // its flow was elastic before, and a call of its machine goes on, or there is no room
	Sound             // its flow took more, but it is small, and speaks
	BusySmall         // its flow took more, but it is as small as an acknowledgement
	WasBulk           // its flow is bulk already
	Long              // its flow has run long
	Ordinary          // nothing sets it apart from the others
)

// Codes returns all of them.
func Codes() []Code {
	var out []Code
	for c := ByRule; c <= Ordinary; c++ {
		out = append(out, c)
	}
	return out
}

// Name returns the code's name in JSON, as in "calm_tcp": what is light there is calm.
func (c Code) Name() string {
	names := [...]string{ByRule: "by_rule", ByDSCP: "by_dscp", Names: "names", ManyNames: "many_names", Acknowledges: "acknowledges",
		First: "first_bytes", Unprotected: "unprotected", Swarm: "swarm", Unanswered: "unanswered", Crowd: "crowd",
		LightTCP: "calm_tcp", LightSmall: "calm_small", LightLarge: "calm_large", LightMixed: "mixed",
		Steady: "steady", TookMore: "took_more", Waits: "waits", Sound: "sound", BusySmall: "busy_small",
		WasBulk: "was_bulk", Long: "long", Ordinary: "ordinary"}
	if int(c) >= len(names) {
		return ""
	}
	return names[c]
}

// lane numbers, as LaneNames has them.
type lane uint8

const (
	noLane lane = iota
	voice
	interactive
	normal
	bulk
	acks
)

// A Classifier walks packets through the table. It is for one goroutine.
type Classifier struct {
	n      Constants
	policy Policy
	now    uint64 // ticks
	moment uint64
	sides  [2]side
	shared struct { // of all acknowledgements
		all   estimate
		slow  bucket
		turns uint64
		made  bool
	}
}

// New returns one that remembers nothing yet.
func New(p Policy, s Setting) *Classifier {
	c := &Classifier{n: ConstantsOf(p, s), policy: p}
	for i := range c.sides {
		c.sides[i] = side{make([][WaysOfBucket]flow, s.Places.Flows), make([][WaysOfBucket]machine, s.Places.Machines), make([][WaysOfBucket]port, s.Places.Ports)}
	}
	return c
}

func (c *Classifier) of(d Direction) *Side { return by(d, &c.n.Down, &c.n.Up) }

// A walk is one packet's way through the table.
type walk struct {
	*Classifier
	p        *Packet
	s        *Side
	f, other *flow // its flow, in its direction and in the other; nil: unknown
	m        *machine
	bytes    uint64 // of its flow, both ways
	tcp, udp bool
	small    bool // a light packet may be so long
	why      Code // of what goes on to the last rows
	hint     lane // that its mark asks for, if that is trusted and one that goes first
}

// A verdict ends the walk; the zero one goes on with the next row.
type verdict struct {
	lane lane
	code Code
}

// Decide walks a packet through the table, and remembers it. now never goes back. Of
// what arrives the machine's number is learned.
func (c *Classifier) Decide(ts unit.Instant, x *Packet) Decision {
	lanes := c.policy.lanes(x.Direction)
	if lanes == nil {
		return Decision{}
	}
	c.now, c.moment = Tick(ts), Moment(ts)
	w := c.begin(x)
	v := verdict{normal, Ordinary}
	for i, row := range [...]func() verdict{w.rule, w.mark, w.name, w.acknowledgement, w.first, w.unprotected, w.swarm, w.unanswered, w.light, w.steady, w.heavy, w.normal} {
		if i == 2 && w.needsMachine() {
			w.m = c.takeMachine(x.Direction, w.machineKey(), c.machineHash(w.machineKey()))
		}
		if v = row(); v.code != 0 {
			break
		}
	}
	if w.hint != noLane && (v.lane == voice || v.lane == interactive) { // all of a flow in one lane
		v = verdict{w.hint, ByDSCP}
	}
	d := Decision{Code: v.code, Drop: v.lane == noLane}
	for i := range lanes {
		if v.lane != noLane && lanes[i].Name == LaneNames()[v.lane-1] {
			d.Lane = &lanes[i]
		}
	}
	return d
}

// begin finds the packet's flow, and counts it.
func (c *Classifier) begin(p *Packet) *walk {
	w := &walk{Classifier: c, p: p, s: c.of(p.Direction), tcp: p.Protocol == TCP, udp: p.Protocol == UDP, small: uint32(p.Length) <= c.n.Small}
	k := FlowKey{p.Home, p.Far, p.HomePort, p.FarPort, p.Protocol}
	hash := c.flowHash(k)
	w.other = c.findFlow(by(p.Direction, Up, Down), k, hash)
	if p.Direction == Down {
		p.Machine = 0
		if w.other != nil {
			p.Machine = w.other.machine
		}
	}
	f := c.takeFlow(p.Direction, k, hash, w.other != nil)
	w.f = f
	if f == nil {
		return w
	}
	keep := c.n.StreamFor
	switch {
	case w.other == nil:
		keep = c.n.UnansweredFor
	case !w.tcp:
		keep = c.n.DatagramsFor
	}
	f.keep = max(f.keep, c.now+keep)
	f.bytes += uint64(p.Length)
	f.machine, f.answered = p.Machine, w.other != nil
	w.bytes = f.bytes
	if w.other != nil {
		w.bytes += w.other.bytes
	}
	return w
}

// needsMachine reports whether a row asks for the packet's machine.
func (w *walk) needsMachine() bool {
	return w.isName() || w.isFirst() || w.udp || w.tcp && w.small && !w.isAck() || w.isHeavy() || w.hint != noLane
}

func (w *walk) machineKey() machineKey {
	if w.p.Machine != 0 {
		return machineKey{number: w.p.Machine}
	}
	return machineKey{home: w.p.Home}
}

func (w *walk) isName() bool {
	return (w.udp || w.tcp && w.small) && (w.p.FarPort == 53 || w.p.FarPort == 853) || w.p.Protocol == ICMP || w.p.Protocol == ICMPv6
}

func (w *walk) isAck() bool {
	return w.tcp && w.p.Length < AckBelow && w.p.Flags&(FIN|SYN|RST|PSH|ACK|URG) == ACK
}

func (w *walk) isFirst() bool { return w.tcp && w.bytes > 0 && w.bytes <= w.s.FirstBytes }

func (w *walk) isHeavy() bool { return w.f != nil && w.bytes > w.n.HeavyBytes && !w.f.heavy }

// given is the verdict of a row that has a lane for the packet, or none.
func given(l uint8, c Code) verdict {
	if l == 0 {
		return verdict{}
	}
	return verdict{lane(l), c}
}

// rule: a rule of nftables' names the packet. What arrives comes here before nftables:
// what leaves says it for both.
func (w *walk) rule() verdict {
	switch {
	case w.n.Named == 0:
		return verdict{}
	case w.p.Direction == Up:
		if w.f != nil {
			w.f.named = w.n.Down.LaneOfTin[w.p.NamedDown&15]
		}
		return given(w.s.LaneOfTin[w.p.Named&15], ByRule)
	case w.other != nil:
		return given(w.other.named, ByRule)
	}
	return verdict{}
}

// mark: its DSCP, where that is trusted. One that asks to go first is a hint: its flow need not
// be of UDP, nor answered, and is metered as all others. Of TCP, which takes for lost what others
// overtake, it counts for nothing.
func (w *walk) mark() verdict {
	asked := w.s.LaneOfDSCP[w.p.DSCP&63]
	if l := lane(asked); l == voice || l == interactive {
		if !w.tcp {
			w.hint = l
		}
		return verdict{}
	}
	return given(asked, ByDSCP)
}

// name: DNS and ping.
func (w *walk) name() verdict {
	if !w.isName() {
		return verdict{}
	}
	if m := w.m; m != nil && m.names.add(packet, second, w.now) <= w.n.Names {
		return verdict{voice, Names}
	}
	return verdict{normal, ManyNames}
}

// acknowledgement: TCP's without data.
func (w *walk) acknowledgement() verdict {
	if !w.isAck() {
		return verdict{}
	}
	if w.p.Direction == Up && w.n.Thins != 0 && w.thinned() {
		return verdict{noLane, Acknowledges}
	}
	return verdict{acks, Acknowledges}
}

// thinned decides whether an acknowledgement is left out: of slow connections beyond the
// allowed number. Of those with SACK blocks every second one goes even then: each tells the three
// newest blocks (RFC 2018), so the next one tells what it would have told.
func (w *walk) thinned() bool {
	s := &w.shared
	if !s.made {
		s.slow, s.made = w.n.SlowAcks.full(w.moment), true
	}
	fast := w.f != nil && w.f.small.add(packet, second, w.now) > w.n.AcksOfFlow
	if s.all.add(packet, second, w.now) <= w.n.Acks || fast || !s.slow.exceeds(&w.n.SlowAcks, w.moment) {
		return false
	}
	if w.p.SACK {
		s.turns++
		return s.turns%2 == 0
	}
	return true
}

// first: the first bytes of a TCP connection. A hundred that begin at once would fill
// the class for seconds, so those of one machine are bounded.
func (w *walk) first() verdict {
	if !w.isFirst() {
		return verdict{}
	}
	if m := w.m; m != nil && m.first.add(uint64(w.p.Length), second, w.now) <= w.s.FirstOfMachine {
		return verdict{interactive, First}
	}
	return verdict{}
}

// unprotected: neither TCP nor UDP.
func (w *walk) unprotected() verdict {
	if w.tcp || w.udp || w.hint != noLane {
		return verdict{}
	}
	return verdict{normal, Unprotected}
}

// swarm: UDP of a port with many partners, as either direction found it.
func (w *walk) swarm() verdict {
	if !w.udp {
		return verdict{}
	}
	k := portKey{w.p.Home, w.p.HomePort}
	hash := w.portHash(k)
	if w.f != nil && w.other == nil && w.f.bytes == uint64(w.p.Length) {
		w.partner(w.p.Direction, k, hash)
	}
	if w.swarms(Up, k, hash) || w.swarms(Down, k, hash) {
		return verdict{bulk, Swarm}
	}
	return verdict{}
}

// unanswered: UDP that nobody has answered. Protection is earned.
func (w *walk) unanswered() verdict {
	if w.udp && w.other == nil && w.hint == noLane {
		return verdict{normal, Unanswered}
	}
	return verdict{}
}

// light: a flow below a small rate. Of TCP small segments alone have the class, and a
// busy connection's small ones go as its large ones do: TCP takes what others overtake
// for lost. A machine whose light flows have too much together has none.
func (w *walk) light() verdict {
	f, length := w.f, uint64(w.p.Length)
	if f == nil {
		return verdict{}
	}
	bytes, packets := f.light.add(length, second, w.now), f.lightPackets.add(packet, second, w.now)
	if bytes > w.n.LightBytes || packets > w.n.LightPackets {
		f.busy = w.now + w.n.BusyFor
	}
	m := w.m
	if f.busy > w.now || w.tcp && !w.small || m == nil {
		return verdict{}
	}
	if m.crowd > w.now || m.light.add(length, second, w.now) > w.s.LightOfMachine {
		if m.crowd <= w.now {
			m.crowd = w.now + w.n.BusyFor
		}
		return verdict{normal, Crowd}
	}
	switch {
	case w.tcp:
		return verdict{interactive, LightTCP}
	case !w.small:
		f.mixed = w.now + w.n.MixedFor
		return verdict{interactive, LightLarge}
	case f.mixed > w.now: // its sender takes for lost what others overtake
		return verdict{interactive, LightMixed}
	}
	return verdict{voice, LightSmall}
}

// steady: a flow of datagrams, or by its mark, below its bound. It is elastic from the moment
// that it has been above it for long enough, or has brought its machine's above theirs, and then
// does not go first: for 4 s, doubled each time. Of one that speaks, as a call does, what is within the
// bound goes first even then, packet by packet: by what waits its sender learns that it takes
// too much. What was elastic before waits for room: while a call of its machine goes on, and
// while its machine's datagrams, also those that wait, are above the bound.
func (w *walk) steady() verdict {
	f, m, length := w.f, w.m, uint64(w.p.Length)
	if w.tcp || f == nil || w.s.Steady == 0 || m == nil {
		return verdict{}
	}
	if w.small && length >= AckBelow && f.small.add(packet, second, w.now) > w.n.Speech {
		f.speaks = w.now + w.n.MixedFor
		m.speaks = w.now + w.n.SpeaksFor
	}
	speaks := f.speaks > w.now
	call, room := m.speaks > w.now && !speaks, m.datagrams.add(length, window, w.now) <= w.s.SteadyOfMachine
	w.why = TookMore
	switch {
	case f.elastic > w.now && (!speaks || w.n.Varies != 0):
		return w.elastic(speaks)
	case f.elastic > w.now:
		if f.rate.add(0, window, w.now)+length > w.s.Steady || m.steady.add(0, window, w.now)+length > w.s.SteadyOfMachine {
			return verdict{normal, TookMore}
		}
		f.rate.add(length, window, w.now)
		m.steady.add(length, window, w.now)
		return verdict{interactive, Steady}
	case f.struck > w.now && !speaks && (call || !room):
		w.why = Waits
		return w.elastic(speaks)
	}
	over := f.rate.exceeds(length, w.s.Steady, w.s.Patience, window, w.now)
	if !over {
		patience := 3 * w.s.Patience // one that is above its own bound goes before the others of its machine
		if f.struck > w.now || m.crowd > w.now || call {
			patience = 0
		}
		over = m.steady.exceeds(length, w.s.SteadyOfMachine, patience, window, w.now)
	}
	if !over {
		return verdict{interactive, Steady}
	}
	if f.struck <= w.now || speaks {
		f.strikes = 0
	}
	f.elastic = w.now + w.n.ElasticFor<<f.strikes
	f.strikes = min(f.strikes+1, mostStrikes)
	f.struck = w.now + w.n.StruckFor
	if f.answered { // others keep no place
		f.keep = max(f.keep, f.struck)
	}
	return w.elastic(speaks)
}

// elastic is a packet of a flow that does not go first. Its smallest ones do, as
// acknowledgements, and on a line that varies a call's sound does.
func (w *walk) elastic(speaks bool) verdict {
	if w.p.Length < AckBelow {
		return verdict{acks, BusySmall}
	}
	if w.n.Varies != 0 && speaks && w.small && w.m.light.add(uint64(w.p.Length), second, w.now) <= w.s.LightOfMachine {
		return verdict{voice, Sound}
	}
	return verdict{}
}

// heavy: after much, or as one of many.
func (w *walk) heavy() verdict {
	f := w.f
	if f == nil {
		return verdict{}
	}
	if f.bulk || w.other != nil && w.other.bulk {
		f.bulk = true
		return verdict{bulk, WasBulk}
	}
	if w.bytes > w.n.LongBytes {
		f.bulk = true
		return verdict{bulk, Long}
	}
	if w.isHeavy() {
		f.heavy = true
		if m := w.m; m != nil && m.heavy.exceeds(&w.s.Heavy, w.now) {
			f.bulk = true
		}
	}
	return verdict{}
}

// normal: everything else.
func (w *walk) normal() verdict {
	if w.why != 0 {
		return verdict{normal, w.why}
	}
	return verdict{normal, Ordinary}
}
