package nft

import (
	"fmt"

	"unbloat/internal/plan"
)

// Of the small packets of a UDP connection that is calm, one of lookOf that it
// sends in that direction is looked at, by connection tracking's own count of them;
// the others have their class from the connection's mark. The meters of those that
// are looked at have lookOf times smaller limits, so they find the same rates, and
// a connection that sends too much as soon.
const lookOf = 32

// calmBit is the bit of the mark of connections that are calm in a direction.
func calmBit(d plan.Direction) uint32 {
	if d == plan.DirectionUp {
		return calmUp
	}
	return calmDown
}

// count is the match of a packet by its place in its direction of a connection
// that a machine of the home began: "!=" of those between two looks, "==" of those
// that are looked at. Connections that others began are metered packet by packet.
func count(d plan.Direction, is string) string {
	way := "original"
	if d == plan.DirectionDown {
		way = "reply"
	}
	return fmt.Sprintf("ct %s packets and %d %s 0", way, lookOf-1, is)
}

// unseen are the rules of small packets that nobody looks at.
func (r renderer) unseen(d plan.Direction) []string {
	voice, _ := r.p.Classes.Share(d, plan.Voice)
	return []string{
		r.marked(d, voice, calmBit(d), calmBit(d), count(d, "!=")),
		r.marked(d, r.acks(d), known|calmBit(d), known, "meta length and 0xffffff80 == 0 "+count(d, "!=")),
	}
}

// marked is a rule that gives packets a class by their connection's mark alone.
func (r renderer) marked(d plan.Direction, s plan.Share, mask, is uint32, match string) string {
	then := " " + r.verdict(d, s)
	if r.byMark(d) { // the mark is the class, and stays what it is
		mask, is, then = mask|MarkMask, is|uint32(s.Tin)<<MarkShift, ""
	}
	return fmt.Sprintf("ct mark and 0x%08x == 0x%08x %s%s accept", mask, is, match, then)
}

// datagrams writes the chains of connections that were found calm, and of those
// of which every packet is looked at again.
func (r renderer) datagrams(d plan.Direction) {
	bit := calmBit(d)
	r.w.chain(string(d)+"_seen",
		fmt.Sprintf("ct mark and 0x%08x == 0 ct mark set ct mark or 0x%08x", bit, bit),
		fmt.Sprintf("goto %s_is_calm", d))
	for _, x := range [][2]string{{"crowded", "data"}, {"hasty", "busy"}, {"swarm", "bulk"}} {
		r.w.chain(fmt.Sprintf("%s_%s", d, x[0]),
			fmt.Sprintf("meta l4proto udp ct mark and 0x%08x != 0 ct mark set ct mark and 0x%08x", bit, ^bit),
			fmt.Sprintf("goto %s_%s", d, x[1]))
	}
}

// little writes the chains of small packets of UDP connections that were answered.
// Until the first look every one is metered; what is older than the rules has no
// count, and is metered so for as long as it lasts.
func (r renderer) little(d plan.Direction, f family) {
	b := r.p.Classes.Behaviour
	home, _, _, _ := f.ends(d)
	to := func(name string) string { return fmt.Sprintf("goto %s_%s", d, name) }
	way := map[plan.Direction]string{plan.DirectionUp: "original", plan.DirectionDown: "reply"}[d]
	r.w.chain(fmt.Sprintf("%s_little%s", d, f.n),
		fmt.Sprintf("ct direction %s %s ct packets != 0 %s", way, count(d, "=="), to("look"+f.n)),
		to("calm"+f.n))
	most, rate := int64(b.CalmOf(d))/8/lookOf, int64(b.CalmRate)/8/lookOf
	r.w.chain(fmt.Sprintf("%s_look%s", d, f.n),
		fmt.Sprintf("%s @crowd%s_%s %s", home, f.n, d, to("crowded")),
		fmt.Sprintf("ct mark and 0x%08x == 0 %s @busy%s_%s %s", calmBit(d), f.flow(d), f.n, d, to("hasty")),
		fmt.Sprintf("update @host_looks%s_%s { %s limit rate over %d bytes/second burst %d bytes } update @crowd%s_%s { %s } %s",
			f.n, d, home, max(most, 1), max(most/2, 3000), f.n, d, home, to("crowded")),
		fmt.Sprintf("update @looks%s_%s { %s limit rate %d/minute burst %d packets limit rate %d bytes/second burst %d bytes } %s",
			f.n, d, f.flow(d), max(60*b.CalmPackets/lookOf, 1), max((b.CalmPackets/2+1)/lookOf, 3), max(rate, 1), max(rate/2, int64(b.SmallPacket)), to("seen")),
		fmt.Sprintf("add @busy%s_%s { %s }", f.n, d, f.flow(d)),
		to("hasty"))
}
