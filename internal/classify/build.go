package classify

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"time"

	"unbloat/unit"
)

// Build returns the table of a policy.
//
// The cheapest rules come first: most packets of a busy line are full ones of TCP
// connections past their first bytes, and small ones of calm flows. They have
// their class from the connection's mark alone, by comparing bits. Only samples
// of them are metered again.
func Build(p Policy) *Table {
	b := &builder{policy: p, table: &Table{policy: p}, sets: map[string]*Set{}, chains: map[string]*Chain{}}
	if p.Hashed {
		b.hashed()
		b.table.resolve(b.chains)
		return b.table
	}
	b.remember()
	for _, d := range []Direction{Up, Down} {
		if p.lanes(d) != nil {
			b.direction(d)
		}
	}
	b.table.resolve(b.chains)
	return b.table
}

// A builder makes one table.
type builder struct {
	policy Policy
	table  *Table
	sets   map[string]*Set
	chains map[string]*Chain
}

// families are the versions of IP.
func families() []int { return []int{4, 6} }

// of writes a name of what there is for each version of IP.
func of(name string, family int) string { return name + strconv.Itoa(family) }

func (b *builder) set(name string, kind KeyKind, family int, timeout time.Duration, size int) {
	s := &Set{Name: name, Key: kind, Family: family, Timeout: timeout, GC: gcInterval, Size: size, index: len(b.table.Sets)}
	b.sets[name] = s
	b.table.Sets = append(b.table.Sets, s)
}

// remember makes the sets that the meters fill. Each is bounded: where one is
// full, a newcomer is not protected, and those in it are not touched.
func (b *builder) remember() {
	l := b.policy.Limits
	n, few := l.Flows, max(l.Flows/8, 16)
	for _, f := range families() {
		if b.policy.RulesAlone {
			break
		}
		for _, d := range []Direction{Up, Down} {
			if b.policy.lanes(d) == nil {
				continue
			}
			from := len(b.table.Sets)
			name := func(what string) string { return of(what, f) + "_" + string(d) }
			b.set(name("calm"), FlowKey, f, 20*time.Second, n)
			b.set(name("busy"), FlowKey, f, BusyFor, n)
			b.set(name("hosts"), HomeAddress, f, 20*time.Second, few)
			b.set(name("crowd"), HomeAddress, f, BusyFor, few)
			b.set(name("names"), HomeAddress, f, time.Minute, few)
			b.set(name("starts"), HomeAddress, f, 20*time.Second, few)
			if b.policy.Apart {
				b.set(name("heavy"), HomeAddress, f, 10*time.Minute, few)
				b.set(name("partners"), HomeAddressAndPort, f, 2*time.Minute, n)
				b.set(name("swarm"), HomeAddressAndPort, f, swarmFor, few)
			} else {
				b.set(name("looks"), FlowKey, f, 20*time.Second, n)
				b.set(name("host_looks"), HomeAddress, f, 20*time.Second, few)
			}
			if b.hasSteady(d) {
				b.rememberSteady(f, d, n, few)
			}
			for _, s := range b.table.Sets[from:] {
				s.Direction = d
			}
		}
		if b.policy.Apart {
			continue
		}
		if b.policy.byMark(Down) && b.policy.Up != nil {
			b.set(of("asked", f)+"_up", HomeAddress, f, time.Minute, few)
		}
		b.set(of("heavy", f), HomeAddress, f, 10*time.Minute, few)
		b.set(of("partners", f), HomeAddressAndPort, f, 2*time.Minute, n)
		b.set(of("swarm", f), HomeAddressAndPort, f, swarmFor, few)
	}
	switch {
	case b.policy.Up == nil || l.Acks == 0 || b.policy.RulesAlone:
	case b.policy.Apart:
		b.set("acks_up", FlowKey, 0, 10*time.Second, n)
		b.sets["acks_up"].Direction = Up
	default:
		b.set("acks_up", PortPair, 0, 10*time.Second, n)
	}
	for i, x := range b.policy.Rules {
		for _, f := range families() {
			if x.hasMAC() {
				b.set(homeSet(f, i), HomeAddress, f, time.Hour, 1024)
			}
			if len(x.Domain) > 0 {
				b.set(farSet(f, i), FarAddress, f, 24*time.Hour, 4096)
			}
		}
	}
}

// homeSet and farSet are the sets of the i-th rule: machines by their MAC
// address, which their own packets fill, and domains, which the resolver fills.
func homeSet(family, i int) string { return fmt.Sprintf("home%d_%d", family, i+1) }
func farSet(family, i int) string  { return fmt.Sprintf("far%d_%d", family, i+1) }

// A way builds the chains of one direction.
type way struct {
	*builder
	d     Direction
	l     Limits
	calm  uint32 // the bit of the mark of connections that are calm in this direction
	lanes []Lane
}

// direction makes the chains of one direction.
func (b *builder) direction(d Direction) {
	w := way{builder: b, d: d, l: b.policy.Limits, calm: calmUp, lanes: b.policy.lanes(d)}
	if d == Down {
		w.calm = calmDown
	}
	for _, lane := range w.lanes {
		w.chain(lane.Name, Step{Do: w.classify(lane)})
	}
	if b.policy.RulesAlone {
		w.chain("class", append(w.explicit(), w.unnamedMark()...)...)
		return
	}
	w.meters()
	w.remarks()
	w.protocols()
	w.full()
	w.large()
	w.chain("class", slices.Concat(w.named(), w.explicit(), w.trusted(), w.unnamed())...)
}

// named are the steps of packets that another table's rule has named.
func (w way) named() []Step {
	if !w.policy.Named {
		return nil
	}
	var out []Step
	for _, lane := range w.lanes {
		if lane.Name != AcksLane {
			out = append(out, w.then(lane.Name, is(NamedIs, uint64(lane.Tin))).because(ByRule))
		}
	}
	return out
}

// unnamedMark is the step of a connection that no rule names any longer.
func (w way) unnamedMark() []Step {
	if !w.policy.byMark(w.d) {
		return nil
	}
	return []Step{does(SetMark{And: ^uint32(MarkMask)}, mark(MarkMask))}
}

func (w way) chain(name string, steps ...Step) {
	c := &Chain{Name: string(w.d) + "_" + name, Direction: w.d, Steps: steps}
	w.chains[c.Name] = c
	w.table.Chains = append(w.table.Chains, c)
}

// What steps are made of.

// then ends a step in another chain of the direction.
func (w way) then(chain string, conds ...Cond) Step {
	return Step{If: conds, Then: Goto, To: string(w.d) + "_" + chain}
}

func (s Step) does(e ...Effect) Step  { s.Do = append(s.Do, e...); return s }
func (s Step) because(c Code) Step    { s.Why = Reason{Code: c}; return s }
func (s Step) jumps() Step            { s.Then = Jump; return s }
func does(e Effect, ifs ...Cond) Step { return Step{If: ifs, Do: []Effect{e}} }

func is(f Field, v uint64) Test  { return Test{Field: f, Value: v} }
func not(f Field, v uint64) Test { return Test{Field: f, Op: NotEqual, Value: v} }
func mark(bits uint32) Test      { return Test{Field: CtMark, Mask: bits, Op: NotEqual} }
func noMark(bits uint32) Test    { return Test{Field: CtMark, Mask: bits} }
func setMark(bits uint32) Effect { return SetMark{Or: bits} }

func carried(n unit.Size) Test { return Test{Field: CtBytes, Op: More, Value: uint64(n)} }
func first(n unit.Size) Test {
	return Test{Field: CtBytes, Op: Between, Value: 1, To: uint64(n)}
}
func upTo(n unit.Size) Test { return Test{Field: Length, Op: AtMost, Value: uint64(n)} }

// tiny are packets that could be acknowledgements without data.
func tiny() Test { return Test{Field: Length, Mask: ^uint32(AckBelow - 1)} }

func (w way) in(set string, family int) *Set { return w.sets[of(set, family)+"_"+string(w.d)] }

// shared is a set of both directions, or that of the direction where they are apart.
func (w way) shared(set string, family int) *Set {
	if w.policy.Apart {
		return w.in(set, family)
	}
	return w.sets[of(set, family)]
}

// swarms are the steps of ports that either direction has found to be a swarm's.
func (w way) swarms(family int) []Step {
	sets := []*Set{w.sets[of("swarm", family)]}
	if w.policy.Apart {
		sets = nil
		for _, d := range []Direction{Up, Down} {
			if s := w.sets[of("swarm", family)+"_"+string(d)]; s != nil {
				sets = append(sets, s)
			}
		}
	}
	var out []Step
	for _, s := range sets {
		out = append(out, w.then("swarm", Member{s}).because(Swarm))
	}
	return out
}

// classify gives a packet of the direction its lane.
func (w way) classify(lane Lane) []Effect {
	return []Effect{Classify{Direction: w.d, Lane: lane, ByMark: w.policy.byMark(w.d)}}
}

func (w way) lane(name string) Lane {
	i := slices.IndexFunc(w.lanes, func(l Lane) bool { return l.Name == name })
	return w.lanes[i]
}

// AcksLane is the name of the lane of acknowledgements.
const AcksLane = "acks"

// marked gives packets a lane by their connection's mark alone.
func (w way) marked(name string, mask, value uint32, conds ...Cond) Step {
	lane := w.lane(name)
	s := Step{Then: Accept, Do: w.classify(lane)}
	if w.policy.byMark(w.d) { // the mark is the class, and stays what it is
		mask, value, s.Do = mask|MarkMask, value|uint32(lane.Tin)<<MarkShift, nil
	}
	s.If = append([]Cond{Test{Field: CtMark, Mask: mask, Value: uint64(value)}}, conds...)
	return s
}

// byFamily makes a chain that goes on by the version of IP.
func (w way) byFamily(name string) {
	w.chain(name, w.then(of(name, 4), is(FamilyIs, 4)), w.then(of(name, 6)))
}

// lightMask are the bits of a packet's length that only packets have that are
// longer than a small one. A rule that compares bits, or whether something is
// equal, costs a fraction of one that asks for more or less.
func (l Limits) lightMask() uint32 {
	return ^uint32(1<<bits.Len(uint(max(l.SmallPacket, AckBelow-1))) - 1)
}

// longer is the step of light packets that are longer than n; none where none is.
func (w way) longer(n unit.Size) []Step {
	if uint32(n) == ^w.l.lightMask() {
		return nil
	}
	return []Step{w.then("full", Test{Field: Length, Op: More, Value: uint64(n)})}
}

// unnamed are the steps of packets that no rule of somebody's names. The next
// step costs less than another chain, so those of small datagrams come first: they
// are looked at by their connection's count, which is dear.
func (w way) unnamed() []Step {
	steps := append([]Step{
		w.then("large", Test{Field: Length, Mask: w.l.lightMask(), Op: NotEqual}),
		w.then("light", not(ProtocolIs, UDP))},
		w.longer(w.l.SmallPacket)...)
	if !w.policy.EveryPacket { // small packets that nobody looks at
		steps = append(steps,
			w.marked(string(Voice), w.calm, w.calm, w.count(NotEqual)),
			w.marked(AcksLane, known|w.calm, known, tiny(), w.count(NotEqual)))
	}
	return append(steps, w.then("udp"))
}

// count tells packets by their place in their direction of a connection that a
// machine of the home began: NotEqual are those between two looks, Equal those that
// are looked at. Connections that others began are metered packet by packet.
func (w way) count(op Op) Test {
	f := CtSent
	if w.d == Down {
		f = CtReplied
	}
	return Test{Field: f, Mask: lookOf - 1, Op: op}
}

// large makes the chain of packets that are not light.
func (w way) large() {
	var steps []Step
	if !w.policy.EveryPacket {
		steps = append(steps, w.marked(string(Normal), known|isBulk, known, Test{Field: SecondWord, Mask: lookAt, Op: NotEqual}))
	}
	w.chain("large", append(steps, w.then("bulk", mark(isBulk)).because(WasBulk), w.then("full"))...)
}

// full makes the chain of full packets of connections that are looked at.
func (w way) full() {
	steps := append([]Step{w.then("other", not(ProtocolIs, TCP))}, w.firstBytes()...)
	if most := max(w.l.FirstBytes, w.l.FirstUp, 1); most > w.l.first(w.d) { // the other direction still asks
		steps = append(steps, w.then("normal", first(most)).because(Ordinary))
	}
	steps = append(steps, does(setMark(known)))
	for _, f := range families() {
		steps = append(steps, w.segments(f)...)
	}
	w.chain("full", append(steps, w.then("data"))...)
}

// segments are the steps of large segments of TCP by which their connection is
// found busy: where they are looked at one of many, each stands for lookOf of them.
func (w way) segments(f int) []Step {
	family, busy := is(FamilyIs, uint64(f)), Remember{w.in("busy", f), true}
	if w.policy.EveryPacket {
		return []Step{w.then("data", family, w.calmOfFlow(f)), does(busy, family)}
	}
	bytes := max(int64(w.l.CalmRate)/8/lookOf, 1)
	return []Step{does(busy, family, Meter{w.in("looks", f), []Rate{{N: bytes, Per: time.Second, Bytes: true, Burst: max(4*bytes, 3000), Over: true}}})}
}

// firstBytes are the steps of what a connection carries first. One that is not
// counted, because it is older than the rules, has carried nothing by it.
func (w way) firstBytes() (steps []Step) {
	for _, f := range families() {
		steps = append(steps, w.then("interactive", first(w.l.first(w.d)), is(FamilyIs, uint64(f)), w.starts(f)).because(First))
	}
	return steps
}

// starts bounds what the connections of one machine carry first together. A
// hundred that begin at once would fill the class for seconds, and a call that
// begins with them would have a hundredth of it.
func (w way) starts(f int) Meter {
	most := 2 * int64(w.l.CalmOf(w.d)) / 8
	return Meter{w.in("starts", f), []Rate{{N: most, Per: time.Second, Bytes: true, Burst: 3000}}}
}

// meters makes the chains that find out how a flow, a host or a port behaves.
func (w way) meters() {
	l := w.l
	// What BitTorrent's peers tell each other by TCP is small and calm, and more than a call.
	if !w.hasSteady(w.d) {
		w.chain("is_calm",
			w.then("interactive", is(ProtocolIs, TCP)).because(CalmTCP),
			w.then("voice", upTo(l.SmallPacket)).because(CalmSmall),
			w.then("interactive").because(CalmLarge))
	}
	heavy := l.HeavyOfHost
	if w.policy.Apart { // half in each direction
		heavy = max((heavy+1)/2, 1)
	}
	w.chain("data",
		w.then("heavy", carried(l.HeavyBytes)),
		w.then("normal").because(Ordinary))
	w.chain("heavy",
		w.then("bulk", mark(isBulk)).because(WasBulk),
		w.then("bulk", carried(l.LongBytes)).does(setMark(isBulk)).because(Long),
		w.then("count", is(ProtocolIs, UDP), noMark(known)).does(setMark(known)).jumps(),
		w.then("count", is(ProtocolIs, TCP), noMark(counted)).does(setMark(counted)).jumps(),
		w.then("normal").because(Ordinary))
	for _, f := range families() {
		if w.hasSteady(w.d) {
			w.steady(f)
		}
		w.calmOf(f)
		w.names(f)
		w.chain(of("count", f), does(setMark(isBulk), Meter{w.shared("heavy", f), []Rate{
			{N: int64(max(heavy/4, 1)), Per: time.Minute, Burst: int64(heavy), Over: true}}}))
		w.chain(of("partner", f), does(Remember{w.shared("swarm", f), true}, Meter{w.shared("partners", f), []Rate{
			{N: int64(l.Peers), Per: time.Minute, Burst: int64(l.Peers), Over: true}}}))
		w.chain(of("udp", f), slices.Concat(w.swarms(f),
			[]Step{w.then("normal", not(CtIsAnswered, 1)).because(Unanswered)},
			w.looks(f),
			[]Step{w.then(of("calm", f))})...)
	}
	w.byFamily("calm")
	w.byFamily("names")
	w.byFamily("partner")
	w.byFamily("count")
}

// calmOf makes the chain that meters every packet of a flow: what its machine's
// calm flows have together, then what it has itself.
func (w way) calmOf(f int) {
	calm := w.calmOfFlow(f)
	w.chain(of("calm", f),
		w.then("hasty", Member{w.in("busy", f)}).because(Busy),
		// What is busy in a crowd is found too: uploads and a call that begin together
		// are a crowd until each has been found busy.
		w.then("crowded", Member{w.in("crowd", f)}, calm).because(Crowd),
		w.then("hasty", Member{w.in("crowd", f)}).does(Remember{Set: w.in("busy", f)}).because(Busy),
		w.then("crowded", w.calmOfHost(f)).does(Remember{w.in("crowd", f), true}).because(Crowd),
		w.then(w.isCalm(f), calm),
		does(Remember{Set: w.in("busy", f)}),
		w.then("hasty").because(Busy))
}

// calmOfFlow asks whether a flow is within what a calm one may have.
func (w way) calmOfFlow(f int) Meter {
	return Meter{w.in("calm", f), []Rate{
		{N: int64(w.l.CalmPackets), Per: time.Second, Burst: int64(w.l.CalmPackets/2 + 1)},
		{N: int64(w.l.CalmRate) / 8, Per: time.Second, Bytes: true, Burst: max(int64(w.l.CalmRate)/16, 3000)}}}
}

// calmOfHost asks whether a machine is above what its calm flows may have together.
func (w way) calmOfHost(f int) Meter {
	most := int64(w.l.CalmOf(w.d)) / 8
	return Meter{w.in("hosts", f), []Rate{{N: most, Per: time.Second, Bytes: true, Burst: max(most/2, 3000), Over: true}}}
}

// names makes the chain of DNS and ping.
func (w way) names(f int) {
	asks := []Rate{{N: int64(w.l.Names), Per: time.Second, Burst: int64(w.l.Names)}}
	var steps []Step
	if w.d == Up && w.policy.byMark(Down) && w.policy.Down != nil {
		// Answers of one packet: their class must be known before they come.
		steps = append(steps, Step{If: []Cond{Meter{w.in("asked", f), asks}}, Then: Jump, To: string(Down) + "_" + string(Voice)})
	}
	w.chain(of("names", f), append(steps, w.then("voice", Meter{w.in("names", f), asks}).because(Names), w.then("normal").because(ManyNames))...)
}

// remarks makes the chains of connections that were found calm, and of those of
// which every packet is looked at again.
func (w way) remarks() {
	if !w.policy.EveryPacket {
		seen := does(setMark(w.calm), noMark(w.calm))
		if w.hasSteady(w.d) {
			for _, f := range families() {
				w.chain(of("seen", f),
					w.then("interactive", Member{w.in("mixed", f)}).because(Mixed),
					seen,
					w.then(of("is_calm", f)))
			}
		} else {
			w.chain("seen", seen, w.then("is_calm"))
		}
	}
	uncalm := SetMark{And: ^w.calm}
	w.chain("brief", append(w.keep(), w.then(AcksLane).because(BusySmall))...)
	w.chain("crowded", slices.Concat(
		[]Step{does(uncalm, is(ProtocolIs, UDP), mark(w.calm))},
		w.keep(),
		w.otherway(),
		[]Step{w.then("data")})...)
	// A busy connection's small segments must not overtake its large ones: TCP takes
	// those for lost, and sends less. A call by way of a relay over TLS has its sound
	// in small ones, its pictures in large.
	w.chain("hasty", slices.Concat(
		[]Step{
			w.then("data", is(ProtocolIs, TCP)),
			does(uncalm, mark(w.calm)),
			w.then("brief", Test{Field: Length, Op: Less, Value: AckBelow})},
		w.toSteady())...)
	w.chain("swarm", does(uncalm, mark(w.calm)), w.then("bulk"))
}

// looks are the steps of small packets of UDP connections that were answered.
// Until the first look every one is metered; what is older than the rules has no
// count, and is metered so for as long as it lasts.
func (w way) looks(f int) []Step {
	if w.policy.EveryPacket {
		return nil
	}
	w.look(f)
	reply := uint64(0)
	if w.d == Down {
		reply = 1
	}
	return []Step{w.then(of("look", f), upTo(w.l.SmallPacket), is(CtIsReply, reply), w.count(Equal), not(CtPackets, 0))}
}

// look makes the chain of the one of lookOf packets that is looked at.
func (w way) look(f int) {
	l := w.l
	most, rate := int64(l.CalmOf(w.d))/8/lookOf, int64(l.CalmRate)/8/lookOf
	w.chain(of("look", f),
		w.then("hasty", noMark(w.calm), Member{w.in("busy", f)}).because(Busy),
		w.then("crowded", Member{w.in("crowd", f)}).because(Crowd),
		w.then("crowded", Meter{w.in("host_looks", f), []Rate{{N: max(most, 1), Per: time.Second, Bytes: true, Burst: max(most/2, 3000), Over: true}}}).
			does(Remember{w.in("crowd", f), true}).because(Crowd),
		w.then(w.seen(f), Meter{w.in("looks", f), []Rate{
			{N: int64(max(60*l.CalmPackets/lookOf, 1)), Per: time.Minute, Burst: int64(max((l.CalmPackets/2+1)/lookOf, 3))},
			{N: max(rate, 1), Per: time.Second, Bytes: true, Burst: max(rate/2, int64(l.SmallPacket))}}}),
		does(Remember{Set: w.in("busy", f)}),
		w.then("hasty").because(Busy))
}

// protocols makes the chains of TCP and UDP.
func (w way) protocols() {
	resolver := func(protocol uint8) Within {
		return Within{Field: FarPortIs, Protocol: protocol, Ranges: []PortRange{{53, 53}, {853, 853}}}
	}
	acks := AcksLane
	if w.d == Up && w.l.Acks > 0 {
		acks = w.thin()
	}
	w.chain("small", slices.Concat(
		[]Step{w.then("names", resolver(TCP))},
		w.firstBytes(),
		[]Step{w.then("calm", upTo(w.l.SmallPacket)), w.then("data")})...)
	w.chain("udp",
		w.then("names", resolver(UDP)),
		w.then("partner", is(CtIsNew, 1), is(CtPackets, 1)).jumps(),
		w.then("udp4", is(FamilyIs, 4)),
		w.then("udp6"))
	rest := []Step{
		w.then("names", Within{Field: ProtocolIs, Ranges: []PortRange{{ICMP, ICMP}, {ICMPv6, ICMPv6}}}),
		w.then("normal").because(Unprotected),
	}
	pure := Test{Field: FlagsOf, Mask: FIN | SYN | RST | PSH | ACK | URG, Value: ACK}
	w.chain("light", slices.Concat(
		[]Step{w.then(acks, tiny(), pure).because(Acknowledges)},
		w.longer(max(w.l.SmallPacket, AckBelow-1)),
		[]Step{w.then("small", is(ProtocolIs, TCP))}, rest)...)
	w.chain("other", append([]Step{w.then("bulk", mark(isBulk)).because(WasBulk), w.then("udp", is(ProtocolIs, UDP))}, rest...)...)
}

// thin makes the chains that leave out acknowledgements of slow connections
// beyond the allowed number, and returns the first one's name. Of those with
// SACK blocks, which a sender needs to mend a loss, every second one goes even
// then: each tells the three newest blocks (RFC 2018), so the next one tells
// what it would have told. As long as those of
// all connections together are not more, nothing has to be known of each; once
// they were, those connections are metered. A connection is known
// by its ports alone, which is half the work for every acknowledgement; two that
// have the same are taken for a faster one, and left alone the sooner.
func (w way) thin() string {
	most := Rate{N: int64(w.l.Acks), Per: time.Second, Burst: int64(w.l.Acks), Over: true} // a second's: a page's short connections are not touched
	all := &Limit{Name: "acks", Rate: most}
	slow := &Limit{Name: "slow_acks", Rate: most, Even: true, index: 1}
	w.table.Limits = []*Limit{all, slow}
	goes := Step{Do: w.classify(w.lane(AcksLane))}
	w.chain("over", w.then(AcksLane, is(SACKBlocks, 1), Alternate{}), Step{Then: Drop})
	w.chains[string(w.d)+"_over"].Limits = w.table.Limits
	w.chain("meter",
		w.then(AcksLane, Meter{w.sets["acks_up"], []Rate{{N: slowAcks, Per: time.Second, Burst: slowAcks / 2, Over: true}}}),
		w.then("over", Exceeds{slow}),
		goes)
	w.chain("many", does(setMark(metered)), w.then("meter"))
	w.chain("thin",
		w.then("many", Exceeds{all}),
		w.then("meter", mark(metered)),
		goes)
	return "thin"
}
