package classify

import (
	"time"

	"unbloat/unit"
)

// Rules for targets that keep no sets: iptables of Linux 3.10 knows bits of a
// connection's mark, meters by the hash of addresses and ports, and lists of
// addresses. So what Build remembers of a flow in a set with a timeout is here a
// bit of its connection's mark, and a meter that lets one packet through in that
// time: the first one that it lets through afterwards takes the bit away.
//
// Compared with Build:
//
//   - A flow that speaks is steady, with the same bounds. None is tried, so a busy
//     flow without small packets is normal. One that takes more than its bound loses
//     the class for 4 s each time.
//   - A port's partners beyond those allowed are bulk. Those before them are then
//     asked once each: the third of a port within a minute is bulk too.
//   - A flow of datagrams is not bulk for having run long, nor counted as heavy.
//   - Heavy connections are counted for each direction by itself.
//   - A calm flow's small packets are voice, if it has large ones or not.
//   - Acknowledgements all go. IPv6 has no class.
const (
	busyBits   = 0x01000000 // the flow is busy in a direction
	outBits    = 0x04000000 // it took more than a steady flow may have
	speaksBits = 0x40000000 // it sends small packets beside large ones
	asked      = counted    // of UDP: it was asked after its machine had a swarm

	// Periods of meters that let one packet through.
	busyAgain = 6  // a minute: BusyFor
	outAgain  = 15 // a minute: lostFor
	// fewPeers are those of a port, on a machine with a swarm, that are not bulk.
	fewPeers = 2 // a minute
	// meterFor is how long a meter outlives its last packet: more than any needs to be full again.
	meterFor = 20 * time.Second
	// mostMeters is how many keys a meter has room for. The kernel drops packets of
	// further ones, so it is more than a home's answered flows of meterFor.
	mostMeters = 1 << 16
	// mostListed is how many addresses a list holds.
	mostListed = 100
)

// bitOf returns a direction's bit of the two that belong together.
func (w way) bitOf(up uint32) uint32 {
	if w.d == Down {
		return up << 1
	}
	return up
}

// hashed makes the table of a policy whose target keeps no sets.
func (b *builder) hashed() {
	b.set(of("swarm", 4), HomeAddress, 4, 10*time.Minute, mostListed)
	for _, d := range []Direction{Up, Down} {
		if b.policy.lanes(d) == nil {
			continue
		}
		name := func(what string) string { return of(what, 4) + "_" + string(d) }
		for _, x := range []struct {
			name string
			key  KeyKind
		}{{"calm", FlowKey}, {"timer", FlowKey}, {"out", FlowKey}, {"small", FlowKey}, {"flows", FlowKey},
			{"hosts", HomeAddress}, {"homes", HomeAddress}, {"names", HomeAddress}, {"starts", HomeAddress}} {
			b.set(name(x.name), x.key, 4, meterFor, mostMeters)
		}
		b.set(name("heavy"), HomeAddress, 4, 10*time.Minute, mostMeters)
		b.set(name("peers"), HomeAddressAndPort, 4, 2*time.Minute, mostMeters)
		b.set(name("ports"), HomeAddressAndPort, 4, 2*time.Minute, mostMeters)
		b.set(name("crowd"), HomeAddress, 4, BusyFor, mostListed)
		w := way{builder: b, d: d, l: b.policy.Limits, lanes: b.policy.lanes(d)}
		w.hashedChains()
	}
}

// hashedChains makes the chains of one direction. A step does one thing at most, as
// a rule of iptables has one target.
func (w way) hashedChains() {
	for _, lane := range w.lanes {
		w.chain(lane.Name, Step{Do: w.classify(lane)})
	}
	w.hashedTCP()
	w.hashedUDP()
	w.hashedCalm()
	if w.hasSteady(w.d) {
		w.hashedSteady()
	}
	w.chain("names",
		w.then("voice", Meter{w.in("names", 4), []Rate{{N: int64(w.l.Names), Per: time.Second, Burst: int64(w.l.Names)}}}).because(Names),
		w.then("normal").because(ManyNames))
	w.chain("class", append(append(w.explicit(), w.trusted()...),
		w.then("tcp", is(ProtocolIs, TCP)),
		w.then("udp", is(ProtocolIs, UDP)),
		w.then("names", is(ProtocolIs, ICMP)),
		w.then("normal").because(Unprotected))...)
}

func (w way) resolver(protocol uint8) Within {
	return Within{Field: FarPortIs, Protocol: protocol, Ranges: []PortRange{{53, 53}, {853, 853}}}
}

// hashedTCP makes the chains of TCP.
func (w way) hashedTCP() {
	l := w.l
	pure := Test{Field: FlagsOf, Mask: FIN | SYN | RST | PSH | ACK | URG, Value: ACK}
	w.chain("tcp",
		w.then(AcksLane, tiny(), pure).because(Acknowledges),
		w.then("names", upTo(l.SmallPacket), w.resolver(TCP)),
		w.then("interactive", first(l.first(w.d)), w.starts(4)).because(First),
		w.then("calm", upTo(l.SmallPacket)),
		w.then("data"))
	w.chain("data",
		w.then("bulk", mark(isBulk)).because(WasBulk),
		w.then("long", carried(l.LongBytes)).because(Long),
		w.then("heavy", carried(l.HeavyBytes), noMark(counted)),
		w.then("normal").because(Ordinary))
	w.chain("long", does(setMark(isBulk)), w.then("bulk"))
	w.chain("heavy",
		does(setMark(counted)),
		does(setMark(isBulk), Meter{w.in("heavy", 4), []Rate{
			{N: int64(max(l.HeavyOfHost/4, 1)), Per: time.Minute, Burst: int64(l.HeavyOfHost), Over: true}}}),
		w.then("bulk", mark(isBulk)).because(WasBulk),
		w.then("normal").because(Ordinary))
}

// hashedUDP makes the chains of UDP.
func (w way) hashedUDP() {
	w.chain("udp",
		w.then("names", w.resolver(UDP)),
		w.then("opened", is(CtIsNew, 1), is(CtPackets, 1)).jumps(),
		w.then("asked", noMark(asked), Member{w.sets[of("swarm", 4)]}).jumps(),
		w.then("bulk", mark(isBulk)).because(Swarm),
		w.then("normal", not(CtIsAnswered, 1)).because(Unanswered),
		w.then("calm"))
	w.chain("opened", w.then("swarm", Meter{w.in("peers", 4), []Rate{
		{N: int64(w.l.Peers), Per: time.Minute, Burst: int64(w.l.Peers), Over: true}}}))
	w.chain("swarm",
		does(Remember{w.sets[of("swarm", 4)], true}),
		does(setMark(isBulk)))
	w.chain("asked",
		does(setMark(asked)),
		does(setMark(isBulk), Meter{w.in("ports", 4), []Rate{{N: fewPeers, Per: time.Minute, Burst: fewPeers, Over: true}}}))
}

// again is the meter that lets one packet of a flow through in a while.
func (w way) again(set string, perMinute int64) Meter {
	return Meter{w.in(set, 4), []Rate{{N: perMinute, Per: time.Minute, Burst: 1}}}
}

// hashedCalm makes the chains that find out whether a flow is calm.
func (w way) hashedCalm() {
	l, most := w.l, int64(w.l.CalmOf(w.d))/8
	busy, speaks := w.bitOf(busyBits), w.bitOf(speaksBits)
	timer := w.again("timer", busyAgain)
	calm := Meter{w.in("calm", 4), []Rate{
		{N: int64(l.CalmPackets), Per: time.Second, Burst: int64(l.CalmPackets/2 + 1)},
		{N: int64(l.CalmRate) / 8, Per: time.Second, Bytes: true}}}
	w.chain("calm",
		// One that speaks stays busy, so that all of its packets have one class.
		does(SetMark{And: ^busy}, Test{Field: CtMark, Mask: busy | speaks, Value: uint64(busy)}, timer),
		w.then("hasty", mark(busy)).because(Busy),
		w.then("crowd", Member{w.in("crowd", 4)}),
		w.then("crowded", Meter{w.in("hosts", 4), []Rate{{N: most, Per: time.Second, Bytes: true, Over: true}}}),
		w.then("is_calm", calm),
		w.then("hastes"))
	w.chain("crowd", w.then("rest", calm).because(Crowd), w.then("hastes"))
	w.chain("crowded", does(Remember{w.in("crowd", 4), true}), w.then("rest").because(Crowd))
	w.chain("hastes", does(setMark(busy)), Step{If: []Cond{timer}}, w.then("hasty").because(Busy))
	w.chain("is_calm",
		w.then("interactive", is(ProtocolIs, TCP)).because(CalmTCP),
		w.then("voice", upTo(l.SmallPacket)).because(CalmSmall),
		w.then("interactive").because(CalmLarge))
	brief := w.then(AcksLane, Test{Field: Length, Op: Less, Value: AckBelow}).because(BusySmall)
	if w.hasSteady(w.d) {
		w.chain("hasty", w.then("judged", is(ProtocolIs, UDP), mark(speaks)), brief, w.then("steady", is(ProtocolIs, UDP)), w.then("data"))
	} else {
		w.chain("hasty", brief, w.then("rest"))
	}
	w.chain("rest", w.then("data", is(ProtocolIs, TCP)), w.then("normal").because(Ordinary))
}

// hashedSteady makes the chains of busy flows of datagrams.
func (w way) hashedSteady() {
	out, speaks := w.bitOf(outBits), w.bitOf(speaksBits)
	timer := w.again("out", outAgain)
	within := func(set string, r unit.Rate) Meter {
		return Meter{w.in(set, 4), []Rate{{N: max(int64(r)/8, 1), Per: time.Second, Bytes: true}}}
	}
	w.chain("steady",
		does(SetMark{And: ^out}, mark(out), timer),
		w.then("normal", mark(out)).because(TookMore),
		w.then("speaks", upTo(w.l.SmallPacket), Meter{w.in("small", 4), []Rate{{N: speakPackets, Per: time.Second, Burst: speakPackets, Over: true}}}),
		w.then("normal").because(Waits))
	w.chain("speaks", does(setMark(speaks)), w.then("judged"))
	w.chain("judged",
		w.then("interactive", within("flows", w.l.SteadyOf(w.d)), within("homes", w.l.SteadyOfMachine(w.d))).because(Steady),
		does(SetMark{And: ^(out | speaks), Or: out}),
		Step{If: []Cond{timer}},
		w.then("normal").because(TookMore))
}

// Hashes is State as xt_hashlimit and xt_recent of Linux 3.10 keep it, in whole
// milliseconds (HZ is 1000 there). A meter of bytes holds what comes in a second.
// Its zero value is not ready; NewHashes makes one.
type Hashes struct {
	meters map[hashKey]*hashEntry
	lists  []map[Key]unit.Instant // by set: when a key was put in last
	count  map[[2]int]int         // keys, by set and rate
	swept  int64
}

type hashKey struct {
	set, rate int
	key       Key
}

type hashEntry struct {
	expires, prev int64 // ms
	credit        int64
}

// NewHashes returns an empty one for the table.
func NewHashes(t *Table) *Hashes {
	h := &Hashes{meters: map[hashKey]*hashEntry{}, lists: make([]map[Key]unit.Instant, len(t.Sets)), count: map[[2]int]int{}}
	for i := range h.lists {
		h.lists[i] = map[Key]unit.Instant{}
	}
	return h
}

// Of meters of the kernel, in its units.
const (
	hashTicks     = 1000                  // a second
	hashPackets   = 32                    // credits that a meter of packets gains in a tick
	hashScale     = 10_000                // in which it is given what a packet costs
	hashBytes     = 1 << 22               // credits that a meter of bytes gains in a tick
	hashFullBytes = hashBytes * hashTicks // and holds
	hashChunk     = 16                    // bytes that are counted together
)

// hashCost returns what a packet takes of a meter, and what that holds.
func (r Rate) hashCost(length unit.Size) (cost, most int64) {
	if !r.Bytes {
		user := hashScale * int64(r.Per/time.Second) / r.N
		credits := func(n int64) int64 {
			if n > (1<<32-1)/(hashTicks*hashPackets) { // what 32 bits can't multiply
				return n / hashScale * hashTicks * hashPackets
			}
			return n * hashTicks * hashPackets / hashScale
		}
		return credits(user), credits(user * r.Burst)
	}
	avg := (1<<32 - 1) / (r.N/hashChunk + 1)
	return min((int64(length)/hashChunk+1)*(avg*hashFullBytes>>32), hashFullBytes), hashFullBytes
}

// sweep forgets expired meters, as the kernel does each second.
func (h *Hashes) sweep(tick int64) {
	second := tick / hashTicks
	if second == h.swept {
		return
	}
	h.swept = second
	for k, e := range h.meters {
		if e.expires <= second*hashTicks {
			delete(h.meters, k)
			h.count[[2]int{k.set, k.rate}]--
		}
	}
}

// Meter charges the meters of a key; the first that does not fit ends it. For a
// key without room, whose packet the kernel drops, it returns false.
func (h *Hashes) Meter(now unit.Instant, s *Set, k Key, rates []Rate, bytes unit.Size) bool {
	tick := int64(now) / int64(time.Millisecond)
	h.sweep(tick)
	k.Protocol = 0
	for i, r := range rates {
		at := hashKey{s.index, i, k}
		cost, most := r.hashCost(bytes)
		e := h.meters[at]
		if e == nil {
			if h.count[[2]int{s.index, i}] >= s.Size {
				return false
			}
			e = &hashEntry{prev: tick, credit: most}
			h.meters[at] = e
			h.count[[2]int{s.index, i}]++
		} else if gone := tick - e.prev; gone > 0 {
			e.prev = tick
			if !r.Bytes {
				e.credit = min(e.credit+gone*hashPackets, most)
			} else if was := e.credit; true { // 32 bits, which may overflow
				e.credit = (e.credit + gone*hashBytes) & (1<<32 - 1)
				if was >= e.credit || e.credit > most {
					e.credit = most
				}
			}
		}
		e.expires = tick + s.Timeout.Milliseconds()
		within := e.credit >= cost
		if within {
			e.credit -= cost
		}
		if within == r.Over {
			return false
		}
	}
	return true
}

// Holds reports whether a key was put into a list within its timeout.
func (h *Hashes) Holds(now unit.Instant, s *Set, k Key) bool {
	at, is := h.lists[s.index][k]
	return is && int64(now)/int64(time.Millisecond)-int64(at) <= s.Timeout.Milliseconds()
}

// Remember puts a key into a list. A full one forgets the oldest.
func (h *Hashes) Remember(now unit.Instant, s *Set, k Key, _ bool) bool {
	list := h.lists[s.index]
	if _, is := list[k]; !is && len(list) >= s.Size {
		var oldest Key
		first := true
		for k, at := range list {
			if first || at < list[oldest] {
				oldest, first = k, false
			}
		}
		delete(list, oldest)
	}
	list[k] = unit.Instant(int64(now) / int64(time.Millisecond))
	return true
}

// Exceeds is not used: no rule of such a table has a limit that all share.
func (h *Hashes) Exceeds(unit.Instant, *Limit) bool { return false }

// Alternate is not used either.
func (h *Hashes) Alternate() bool { return false }

var _ State = (*Hashes)(nil)
