package classify

import (
	"slices"
	"time"

	"unbloat/unit"
)

// Steady flows: how a call with video keeps the class of calls.
//
// A video call is one flow of datagrams of 0.5 to 3 Mbit/s, which is not calm. It
// takes what its pictures need, and no more when it may. An upload by QUIC takes
// all there is. That is what tells them apart: a busy flow of datagrams goes
// first, in class interactive, for as long as it stays below a bound. One that
// takes more loses that: for 4 s, and for a minute if it has within the last ten.
//
// A call finds its rate by taking more, on a slow line again and again, and nothing is
// as bad for it as to wait for long. So on its machine there is no minute, and a flow
// that speaks keeps the class: what it has above the bound is normal, packet by packet.
// It waits beside the uploads, by which its sender learns that it takes too much.
//
// A line that varies may have less than the bound, and then a call is above it that has
// all of the line. There a flow that speaks is out for 4 s as well.
//
// Only packets that have met the other rules come here: UDP, answered, in no
// swarm, of a flow that is busy, and no smaller than AckBelow. Known heavy flows
// come with one packet of 32.
//
//	mixed   flow. It is calm and has sent a large packet, or it is busy, speaks, and
//	        keeps the class. 2 s
//	steady  flow. In it: the flow has the class. 3 s
//	steady_flows  flow → its meter. A set of its own, as nftables charges the meter
//	        of an element also when a rule only asks whether it is there
//	small   flow → the meter of its small packets: sound, and reports. One above it
//	        speaks
//	speaker home address. A flow of the machine speaks. 5 s
//	trial   home address. In it: a flow of this machine is being tried. 3 s
//	waiting home address → the meter of the large packets of heavy flows that wait
//	full    home address. Those have more than its steady flows may have. 10 s
//	lost    flow. It took too much. 4 s, which is more than steady's, so that a
//	        flow that lost the class has to begin again: no set needs deletion,
//	        which kernels before 6.5 do not do properly from a rule
//	struck  flow. It lost the class within the last 10 min, while its machine did not speak
//	greedy  flow. It lost it twice. 1 min
//	steady_hosts  home address → its meter: what steady flows of a machine have together
//
// All are kept for each direction and version of IP. A packet goes this way:
//
//	lost? greedy?      yes: no class, but on a line that varies what is small overtakes
//	of a flow that speaks, and small: remember its machine in speaker, judged. It keeps
//	                   the class: remember it in mixed
//	steady?            yes: judged
//	speaker?           yes: no class
//	carried little? full? trial?
//	                   yes: no class. None: the machine's trial is this flow's, judged
//	judged: full, and no speaker: no class
//	  meter of the flow, then of the machine:
//	  within             → interactive
//	  mixed              → normal
//	  else               remember in lost; speaker? no class
//	                     struck? → greedy; remember in struck: no class
//
// A call has sound and reports beside its pictures: packets above AckBelow and up
// to SmallPacket, all the time. An upload has none. So a flow that speaks has the
// class at once, and beside one no other flow of the machine is tried: an upload's
// trial would take from the call what is left of the class.
//
// Others are tried one at a time on each machine. So each is tried where it could have
// more. While a flow is tried it can do no harm for long: above the class's share it no
// longer goes first, and it is out once its bucket, that of a second, is empty. A
// picture of 60 kB fits into any bucket. None is tried before it has carried
// HeavyBytes: a call has spoken by then. And none is where those that wait have more
// than the machine's steady flows may have: most of them wait for nothing, so the
// machine has had its share, and what would go first is more than that. Those
// without a voice that went first before lose it then too.
//
// A steady flow stays busy until it is silent, so that all of its packets have one
// class: its sender takes it for loss if small ones overtake large ones.
//
// The same holds before it is busy: a calm flow that has sent a large packet is
// mixed, and its small ones are interactive too for as long as large ones come.
// A call without pictures has none, and stays voice.
//
// Both directions are judged alone. The bit known, by which heavy flows have
// class normal from their mark, is of both: it is not set while the flow is
// steady in the other direction.
const (
	steadyFor = 3 * time.Second
	lostFor   = 4 * time.Second
	struckFor = 10 * time.Minute
	greedyFor = time.Minute
	speaksFor = 5 * time.Second
	trialFor  = 3 * time.Second
	fullFor   = 10 * time.Second
	mixedFor  = 2 * time.Second
	// metersFor is more than any bucket takes to be full again.
	metersFor = 20 * time.Second
	// picture is the least that the bucket of a steady flow's meter holds: the
	// key frame of a video, in bytes, which is sent at once.
	picture = 64_000
	// A flow speaks that sends more small packets a second: sound has 50, and what
	// is left of it beside a hundred uploads is more than this.
	speakPackets = 4
)

// SteadyOf returns what a flow of datagrams may have in a direction and still be
// steady; 0: none is.
func (l Limits) SteadyOf(d Direction) unit.Rate {
	if d == Up {
		return l.SteadyUp
	}
	return l.Steady
}

// SteadyOfMachine returns what the steady flows of one machine may have together.
func (l Limits) SteadyOfMachine(d Direction) unit.Rate {
	if d == Up {
		return l.SteadyOfHostUp
	}
	return l.SteadyOfHost
}

// hasSteady reports whether a direction has steady flows.
func (b *builder) hasSteady(d Direction) bool {
	return b.policy.lanes(d) != nil && b.policy.Limits.SteadyOf(d) > 0
}

// rememberSteady makes the sets of a direction.
func (b *builder) rememberSteady(f int, d Direction, n, few int) {
	name := func(what string) string { return of(what, f) + "_" + string(d) }
	b.set(name("mixed"), FlowKey, f, mixedFor, n)
	b.set(name("steady"), FlowKey, f, steadyFor, n)
	b.set(name("steady_flows"), FlowKey, f, metersFor, n)
	b.set(name("small"), FlowKey, f, speaksFor, n)
	b.set(name("speaker"), HomeAddress, f, speaksFor, few)
	b.set(name("trial"), HomeAddress, f, trialFor, few)
	b.set(name("lost"), FlowKey, f, lostFor, n)
	b.set(name("struck"), FlowKey, f, struckFor, n)
	b.set(name("greedy"), FlowKey, f, greedyFor, n)
	b.set(name("steady_hosts"), HomeAddress, f, metersFor, few)
	b.set(name("waiting"), HomeAddress, f, metersFor, few)
	b.set(name("full"), HomeAddress, f, fullFor, few)
}

// steadyRate is a bucket that holds at least a picture.
func steadyRate(r unit.Rate) Rate {
	bytes := max(int64(r)/8, 1)
	return Rate{N: bytes, Per: time.Second, Bytes: true, Burst: max(bytes/8, picture-bytes, 3000)}
}

// toSteady are the steps that lead busy datagrams on.
func (w way) toSteady() []Step {
	if !w.hasSteady(w.d) {
		return []Step{w.then("data")}
	}
	return []Step{w.then("steady4", is(FamilyIs, 4)), w.then("steady6")}
}

// keep are the steps by which steady flows keep their class where no others are
// tried: those of a machine with too many calm ones, and packets as small as
// acknowledgements, which must not overtake the others of a call.
func (w way) keep() []Step {
	if !w.hasSteady(w.d) {
		return nil
	}
	var out []Step
	for _, f := range families() {
		out = append(out, w.then(of("judged", f), Member{w.in("steady", f)}))
	}
	return out
}

// otherway are the steps of a machine's crowd for flows that are steady in the
// other direction. That one clears the bit known, so they would be counted as
// heavy again and again, until all of their machine's are bulk.
func (w way) otherway() (out []Step) {
	for _, f := range families() {
		out = append(out, w.unknown(f)...)
	}
	return out
}

// unknown is the step of flows that are steady in the other direction.
func (w way) unknown(f int) []Step {
	d := w.d.other()
	if !w.hasSteady(d) {
		return nil
	}
	return []Step{w.then("normal", Member{w.sets[of("steady", f)+"_"+string(d)]})}
}

// isCalm and seen name the chains of calm packets: each version of IP has its own
// where mixed flows are known.
func (w way) isCalm(f int) string { return w.ofMixed("is_calm", f) }
func (w way) seen(f int) string   { return w.ofMixed("seen", f) }

func (w way) ofMixed(name string, f int) string {
	if w.hasSteady(w.d) {
		return of(name, f)
	}
	return name
}

// steady makes the chains of steady flows, and that of mixed ones.
func (w way) steady(f int) {
	w.chain(of("is_calm", f),
		w.then("interactive", is(ProtocolIs, TCP)).because(CalmTCP),
		w.then(of("mixed", f), upTo(w.l.SmallPacket)),
		does(SetMark{And: ^w.calm}, mark(w.calm)),
		w.then("interactive").does(Remember{w.in("mixed", f), true}).because(CalmLarge))
	w.chain(of("mixed", f),
		w.then("interactive", Member{w.in("mixed", f)}).because(Mixed),
		w.then("voice").because(CalmSmall))
	// Sound, or reports, all the time.
	speaks := []Cond{upTo(w.l.SmallPacket), Meter{w.in("small", f), []Rate{{N: speakPackets, Per: time.Second, Burst: speakPackets, Over: true}}}}
	speaker := []Effect{Remember{w.in("speaker", f), true}}
	without := of("rests", f)
	var above []Step // what a call has above the bound
	if w.policy.Varies {
		without = w.without(f)
	} else {
		speaker = append(speaker, Remember{w.in("mixed", f), true})
		above = []Step{w.then("normal", Member{w.in("mixed", f)}).because(TookMore)}
	}
	w.chain(of("steady", f), slices.Concat([]Step{
		w.then(without, Member{w.in("lost", f)}).because(TookMore),
		w.then(without, Member{w.in("greedy", f)}).because(TookMore),
		w.then(of("judged", f), speaks...).does(speaker...),
		w.then(of("judged", f), Member{w.in("steady", f)}),
		w.then(of("rests", f), Member{w.in("speaker", f)}).because(Waits),
	}, w.fills(f), []Step{
		w.then(of("rests", f), Test{Field: CtBytes, Op: AtMost, Value: uint64(w.l.HeavyBytes)}).because(Waits),
		w.then(of("rests", f), Member{w.in("full", f)}).because(Waits),
		w.then(of("rests", f), Member{w.in("trial", f)}).because(Waits),
		w.then(of("judged", f)).does(Remember{Set: w.in("trial", f)}),
		w.then(of("rests", f)).because(Waits)})...)
	within := func(set string, r unit.Rate) Cond { return Meter{w.in(set, f), []Rate{steadyRate(r)}} }
	flow, machine := within("steady_flows", w.l.SteadyOf(w.d)), within("steady_hosts", w.l.SteadyOfMachine(w.d))
	stays := Remember{w.in("busy", f), true}
	w.chain(of("judged", f),
		w.then(of("rests", f), Member{w.in("lost", f)}).because(TookMore),
		does(SetMark{And: ^uint32(known)}, mark(known)),
		w.then(of("bounded", f), Member{w.in("speaker", f)}),
		w.then(of("rests", f), Member{w.in("full", f)}).because(Waits),
		w.then(of("bounded", f)))
	w.chain(of("bounded", f), slices.Concat([]Step{
		w.then(string(Interactive), flow, machine).does(Remember{w.in("steady", f), true}, stays).because(Steady),
	}, above, []Step{
		does(Remember{w.in("lost", f), true}),
		w.then(of("rests", f), Member{w.in("speaker", f)}).because(TookMore),
		does(Remember{w.in("greedy", f), true}, Member{w.in("struck", f)}),
		does(Remember{w.in("struck", f), true}),
		w.then(of("rests", f)).because(TookMore)})...)
	// A connection that waits and has carried much is heavy, but not bulk for having
	// run long. A greedy one is as any other.
	// Known heavy flows come with one packet of 32, and would be calm by these.
	w.chain(of("rests", f), append(w.unknown(f),
		does(stays, mark(known)),
		w.then("bulk", mark(isBulk)).because(WasBulk),
		w.then("bulk", carried(w.l.LongBytes), Member{w.in("greedy", f)}).does(setMark(isBulk)).because(Long),
		w.then(of("count", f), carried(w.l.HeavyBytes), noMark(known)).does(setMark(known)).jumps(),
		w.then("normal"))...)
}

// fills are the steps by which a machine is found full: what waits of its flows has
// more than its steady ones may have. Of a known flow one large packet of many comes
// here; of the others one of as many is metered.
func (w way) fills(f int) []Step {
	bytes := max(int64(w.l.SteadyOfMachine(w.d))/8, 1)
	if !w.policy.EveryPacket {
		bytes = max(bytes/lookOf, 1)
	}
	large := Test{Field: Length, Op: More, Value: uint64(w.l.SmallPacket)}
	most := Meter{w.in("waiting", f), []Rate{{N: bytes, Per: time.Second, Bytes: true, Burst: max(4*bytes, 12_000), Over: true}}}
	full := Remember{w.in("full", f), true}
	if w.policy.EveryPacket {
		return []Step{does(full, large, most)}
	}
	return []Step{
		does(full, noMark(known), w.count(Equal), large, most),
		does(full, mark(known), large, most)}
}

// without names the chain of a flow that has lost the class on a line that varies, and
// makes it. Its sound goes first all the same, within what a calm flow may have, and
// its machine's calm ones together. It overtakes the pictures, whose sender takes them
// for lost and sends less: that call has too much. No other flow of its machine is tried
// meanwhile. Where the class goes over the connection's mark the next packet has it,
// which may be a picture, so there is no such chain.
func (w way) without(f int) string {
	if w.policy.byMark(w.d) {
		return of("rests", f)
	}
	w.chain(of("without", f),
		w.then(of("rests", f), Test{Field: Length, Op: More, Value: uint64(w.l.SmallPacket)}),
		does(Remember{w.in("speaker", f), true}),
		w.then(of("rests", f), w.calmOfHost(f)).because(Crowd),
		w.then("voice", w.calmOfFlow(f)).because(Sound),
		w.then(of("rests", f)))
	return of("without", f)
}

// heard names the chain of packets that somebody's rule gives a class, and makes it. If
// they are a call's, its machine is known for one that speaks, as with a
// call that has its class by how it behaves: no upload is tried beside it. What
// has carried little may be anything, as a name's lookup. Where there are no trials it
// does not matter who speaks.
func (w way) heard(x Rule) string {
	if w.policy.Hashed || w.policy.RulesAlone || !w.hasSteady(w.d) || x.Class != Voice && x.Class != Interactive || x.Protocol != "" && x.Protocol != "udp" {
		return string(x.Class)
	}
	name := "heard_" + string(x.Class)
	if w.chains[string(w.d)+"_"+name] != nil {
		return name
	}
	if w.chains[string(w.d)+"_hears"] == nil {
		var steps []Step
		for _, f := range families() {
			steps = append(steps, does(Remember{w.in("speaker", f), true}, is(FamilyIs, uint64(f)), carried(w.l.HeavyBytes)))
		}
		w.chain("hears", steps...)
	}
	w.chain(name, w.then("hears", is(ProtocolIs, UDP), upTo(w.l.SmallPacket)).jumps(), w.then(string(x.Class)))
	return name
}
