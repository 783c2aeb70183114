package nft

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"unbloat/internal/plan"
	"unbloat/unit"
)

// A renderer writes the chains of one plan.
type renderer struct {
	p    plan.Plan
	root string
	w    *writer
}

// families are the versions of IP, with what nft calls their parts.
func families() []family {
	return []family{{"4", "ipv4", "ip", "ipv4_addr"}, {"6", "ipv6", "ip6", "ipv6_addr"}}
}

type family struct{ n, proto, ip, addr string }

// ends returns the words for a packet's home and far ends.
func (f family) ends(d plan.Direction) (home, homePort, far, farPort string) {
	if d == plan.DirectionUp {
		return f.ip + " saddr", "th sport", f.ip + " daddr", "th dport"
	}
	return f.ip + " daddr", "th dport", f.ip + " saddr", "th sport"
}

// flow is the key of a flow, the same for both directions.
func (f family) flow(d plan.Direction) string {
	home, hp, far, fp := f.ends(d)
	return strings.Join([]string{"meta l4proto", home, hp, far, fp}, " . ")
}

func (r renderer) shares(d plan.Direction) []plan.Share {
	if d == plan.DirectionUp {
		return r.p.Classes.Up
	}
	return r.p.Classes.Down
}

// byMark reports whether the direction's class goes over the connection's mark.
func (r renderer) byMark(d plan.Direction) bool {
	return d == plan.DirectionDown && r.p.Down != nil && r.p.Down.IngressOf != ""
}

// direction writes the chains of one direction.
func (r renderer) direction(d plan.Direction) {
	r.verdicts(d)
	r.meters(d)
	r.datagrams(d)
	r.protocols(d)
	r.looks(d)
	r.large(d)
	r.w.chain(string(d)+"_class", slices.Concat(r.explicit(d), r.marks(d), r.unnamed(d))...)
	if r.byMark(d) { // what the router itself downloads goes through the ifb too
		r.w.chain("down_own", "type filter hook input priority -149; policy accept;", fmt.Sprintf("iifname %q goto down_class", r.p.WAN))
	}
}

// hook writes the chain that every forwarded packet meets, whichever way it
// goes: to meet two costs a router as much as most of the rules do.
func (r renderer) hook() {
	rules := []string{"type filter hook postrouting priority -149; policy accept;"}
	if r.shares(plan.DirectionUp) != nil {
		rules = append(rules, fmt.Sprintf("oifname %q goto up_class", r.p.WAN))
	}
	if r.shares(plan.DirectionDown) != nil {
		rules = append(rules, fmt.Sprintf("iifname %q goto down_class", r.p.WAN))
	}
	r.w.chain("forwarded", rules...)
	r.washed()
}

// washed writes the chain that clears the marks of what CAKE does not wash, once
// the rules have seen them.
func (r renderer) washed() {
	rules := []string{}
	add := func(wish bool, s *plan.Shaper, device string) {
		if wish && s != nil && !s.Wash {
			for _, f := range families() {
				rules = append(rules, fmt.Sprintf("%s %q %s dscp != 0x00 %s dscp set 0x00", device, r.p.WAN, f.ip, f.ip))
			}
		}
	}
	add(r.p.Classes.DSCP.WashUp, r.p.Up, "oifname")
	add(r.p.Classes.DSCP.WashDown, r.p.Down, "iifname")
	if len(rules) > 0 {
		r.w.chain("washed", append([]string{"type filter hook postrouting priority -148; policy accept;"}, rules...)...)
	}
}

// lookAt are the bits of a TCP sequence number that are 0 while a connection is
// looked at: for 2 kB of each 64 kB that it sends. Where TCP has those, UDP has its
// checksum, by which one packet of 32 is looked at.
const lookAt = 0x0000f800

// unnamed returns the rules of packets that no rule of somebody's names. The next
// rule costs less than another chain, so those of small datagrams come first: they
// are looked at by their connection's count, which is dear.
func (r renderer) unnamed(d plan.Direction) []string {
	return slices.Concat([]string{
		fmt.Sprintf("meta length and 0x%08x != 0 goto %s_large", lightMask(r.p.Classes.Behaviour), d),
		fmt.Sprintf("meta l4proto != udp goto %s_light", d)},
		r.longer(d, r.p.Classes.Behaviour.SmallPacket),
		r.unseen(d),
		[]string{fmt.Sprintf("goto %s_udp", d)})
}

// longer is the rule of light packets that are longer than n; none where none is.
func (r renderer) longer(d plan.Direction, n unit.Size) []string {
	if uint32(n) == ^lightMask(r.p.Classes.Behaviour) {
		return nil
	}
	return []string{fmt.Sprintf("meta length > %d goto %s_full", int64(n), d)}
}

// large writes the chain of packets that are not light. Most packets of a busy
// line are full ones of TCP connections past their first bytes: they have their
// class from the connection's mark alone, and only now and then it is looked
// again what the connection has carried. A rule that compares bits, or whether
// something is equal, takes nft a fraction of one that asks for more or less.
func (r renderer) large(d plan.Direction) {
	normal, _ := r.p.Classes.Share(d, plan.Normal)
	r.w.chain(string(d)+"_large",
		r.marked(d, normal, known|isBulk, known, fmt.Sprintf("@th,32,32 and 0x%08x != 0", uint32(lookAt))),
		fmt.Sprintf("ct mark and 0x%08x != 0 goto %s_bulk", uint32(isBulk), d),
		fmt.Sprintf("goto %s_full", d))
}

// lightMask are the bits of a packet's length that only packets have that are
// longer than a small one.
func lightMask(b plan.Behaviour) uint32 {
	return ^uint32(1<<bits.Len(uint(max(b.SmallPacket, 127))) - 1)
}

// looks writes the chain of full packets of connections that are looked at.
func (r renderer) looks(d plan.Direction) {
	b := r.p.Classes.Behaviour
	rules := []string{
		fmt.Sprintf("meta l4proto != tcp goto %s_other", d),
		r.firstBytes(d),
	}
	if first := max(b.FirstBytes, b.FirstUp, 1); first > r.first(d) { // the other direction still asks
		rules = append(rules, fmt.Sprintf("ct bytes 1-%d goto %s_normal", int64(first), d))
	}
	r.w.chain(string(d)+"_full", append(rules,
		fmt.Sprintf("ct mark set ct mark or 0x%08x", uint32(known)),
		fmt.Sprintf("goto %s_data", d))...)
}

// first is what a connection carries first in a direction.
func (r renderer) first(d plan.Direction) unit.Size {
	if d == plan.DirectionDown {
		return max(r.p.Classes.Behaviour.FirstBytes, 1)
	}
	return max(r.p.Classes.Behaviour.FirstUp, 1)
}

// firstBytes is the rule of what a connection carries first. One that the kernel
// does not count, because it is older than the rules, has carried nothing by it.
func (r renderer) firstBytes(d plan.Direction) string {
	return fmt.Sprintf("ct bytes 1-%d goto %s_interactive", int64(r.first(d)), d)
}

// verdicts writes one chain a class, which gives the packet its tin.
func (r renderer) verdicts(d plan.Direction) {
	for _, s := range append(slices.Clone(r.shares(d)), r.acks(d)) {
		r.w.chain(fmt.Sprintf("%s_%s", d, s.Class), r.verdict(d, s))
	}
}

// verdict is the rule that gives a packet the tin of a class.
func (r renderer) verdict(d plan.Direction, s plan.Share) string {
	if r.byMark(d) {
		return fmt.Sprintf("ct mark and 0x%08x != 0x%08x ct mark set ct mark and 0x%08x or 0x%08x",
			MarkMask, int(s.Tin)<<MarkShift, uint32(^uint32(MarkMask)), int(s.Tin)<<MarkShift)
	}
	return fmt.Sprintf("meta priority set %s%x", r.root, Minor(r.p, d, s.Tin))
}

// acks is the lane of acknowledgements.
func (r renderer) acks(d plan.Direction) plan.Share {
	return plan.Share{Class: "acks", Tin: plan.AckTin(r.shares(d))}
}

// Minor returns the class of the shaper's root qdisc that stands for a tin: of
// CAKE the tin itself, of HTB a class that cannot be its inner one.
func Minor(p plan.Plan, d plan.Direction, t plan.Tin) int {
	s := p.Up
	if d == plan.DirectionDown {
		s = p.Down
	}
	if s != nil && s.AQM == plan.CAKE {
		return int(t)
	}
	return HTBMinor(t)
}

// HTBMinor returns the minor number of the HTB class that stands for a tin.
func HTBMinor(t plan.Tin) int { return 0x10 + int(t) }

// jumpFamily writes a chain that goes on by the version of IP.
func (r renderer) jumpFamily(name string) {
	r.w.chain(name, "meta nfproto ipv4 goto "+name+"4", "meta nfproto ipv6 goto "+name+"6")
}

// meters writes the chains that find out how a flow, a host or a port behaves.
func (r renderer) meters(d plan.Direction) {
	b := r.p.Classes.Behaviour
	// What BitTorrent's peers tell each other by TCP is small and calm, and more than a call.
	r.w.chain(string(d)+"_is_calm",
		fmt.Sprintf("meta l4proto tcp goto %s_interactive", d),
		fmt.Sprintf("meta length <= %d goto %s_voice", b.SmallPacket, d),
		fmt.Sprintf("goto %s_interactive", d))
	r.w.chain(string(d)+"_data",
		fmt.Sprintf("ct bytes > %d goto %s_heavy", int64(b.HeavyBytes), d),
		fmt.Sprintf("goto %s_normal", d))
	r.w.chain(string(d)+"_heavy",
		fmt.Sprintf("ct mark and 0x%08x != 0 goto %s_bulk", uint32(isBulk), d),
		fmt.Sprintf("ct bytes > %d ct mark set ct mark or 0x%08x goto %s_bulk", int64(b.LongBytes), uint32(isBulk), d),
		fmt.Sprintf("meta l4proto udp ct mark and 0x%08x == 0 ct mark set ct mark or 0x%08x jump %s_count", uint32(known), uint32(known), d),
		fmt.Sprintf("meta l4proto tcp ct mark and 0x%08x == 0 ct mark set ct mark or 0x%08x jump %s_count", uint32(counted), uint32(counted), d),
		fmt.Sprintf("goto %s_normal", d))
	r.w.chain(string(d)+"_busy", fmt.Sprintf("meta length < 128 goto %s_acks", d), fmt.Sprintf("goto %s_data", d))
	for _, f := range families() {
		home, homePort, _, _ := f.ends(d)
		set := func(name string) string { return fmt.Sprintf("@%s%s", name, f.n) }
		most := int64(b.CalmOf(d)) / 8
		r.w.chain(fmt.Sprintf("%s_calm%s", d, f.n),
			fmt.Sprintf("%s @crowd%s_%s goto %s_crowded", home, f.n, d, d),
			fmt.Sprintf("%s @busy%s_%s goto %s_hasty", f.flow(d), f.n, d, d),
			fmt.Sprintf("update @hosts%s_%s { %s limit rate over %d bytes/second burst %d bytes } update @crowd%s_%s { %s } goto %s_crowded",
				f.n, d, home, most, max(most/2, 3000), f.n, d, home, d),
			fmt.Sprintf("update @calm%s_%s { %s limit rate %d/second burst %d packets limit rate %d bytes/second burst %d bytes } goto %s_is_calm",
				f.n, d, f.flow(d), b.CalmPackets, b.CalmPackets/2+1, int64(b.CalmRate)/8, max(int64(b.CalmRate)/16, 3000), d),
			fmt.Sprintf("add @busy%s_%s { %s }", f.n, d, f.flow(d)),
			fmt.Sprintf("goto %s_hasty", d))
		names := []string{fmt.Sprintf("update %s_%s { %s limit rate %d/second burst %d packets } goto %s_voice", set("names"), d, home, b.Names, b.Names, d),
			fmt.Sprintf("goto %s_normal", d)}
		if r.byMark(plan.DirectionDown) && d == plan.DirectionUp && r.shares(plan.DirectionDown) != nil {
			// Answers of one packet: their class must be known before they come.
			names = append([]string{fmt.Sprintf("update %s_%s { %s limit rate %d/second burst %d packets } jump down_voice", set("asked"), d, home, b.Names, b.Names)}, names...)
		}
		r.w.chain(fmt.Sprintf("%s_names%s", d, f.n), names...)
		r.w.chain(fmt.Sprintf("%s_count%s", d, f.n),
			fmt.Sprintf("update %s { %s limit rate over %d/minute burst %d packets } ct mark set ct mark or 0x%08x", set("heavy"), home, max(b.HeavyOfHost/4, 1), b.HeavyOfHost, uint32(isBulk)))
		r.w.chain(fmt.Sprintf("%s_partner%s", d, f.n),
			fmt.Sprintf("update %s { %s . %s limit rate over %d/minute burst %d packets } update %s { %s . %s }", set("partners"), home, homePort, b.Peers, b.Peers, set("swarm"), home, homePort))
		r.w.chain(fmt.Sprintf("%s_udp%s", d, f.n),
			fmt.Sprintf("%s . %s %s goto %s_swarm", home, homePort, set("swarm"), d),
			fmt.Sprintf("ct status and seen-reply != seen-reply goto %s_normal", d),
			fmt.Sprintf("meta length <= %d goto %s_little%s", b.SmallPacket, d, f.n),
			fmt.Sprintf("goto %s_calm%s", d, f.n))
		r.little(d, f)
	}
	r.jumpFamily(string(d) + "_calm")
	r.jumpFamily(string(d) + "_names")
	r.jumpFamily(string(d) + "_partner")
	r.w.chain(string(d)+"_count", fmt.Sprintf("meta nfproto ipv4 goto %s_count4", d), fmt.Sprintf("meta nfproto ipv6 goto %s_count6", d))
}

// protocols writes the chains of TCP and UDP.
func (r renderer) protocols(d plan.Direction) {
	b := r.p.Classes.Behaviour
	far := "dport"
	if d == plan.DirectionDown {
		far = "sport"
	}
	acks := string(d) + "_acks"
	if d == plan.DirectionUp && b.Acks > 0 {
		acks = r.thin()
	}
	r.w.chain(string(d)+"_small",
		fmt.Sprintf("tcp %s { 53, 853 } goto %s_names", far, d),
		r.firstBytes(d),
		fmt.Sprintf("meta length <= %d goto %s_calm", int64(b.SmallPacket), d),
		fmt.Sprintf("goto %s_data", d))
	r.w.chain(string(d)+"_udp",
		fmt.Sprintf("udp %s { 53, 853 } goto %s_names", far, d),
		fmt.Sprintf("ct state new ct packets 1 jump %s_partner", d),
		fmt.Sprintf("meta nfproto ipv4 goto %s_udp4", d),
		fmt.Sprintf("goto %s_udp6", d))
	rest := []string{
		fmt.Sprintf("meta l4proto udp goto %s_udp", d),
		fmt.Sprintf("meta l4proto { icmp, ipv6-icmp } goto %s_names", d),
		fmt.Sprintf("goto %s_normal", d),
	}
	r.w.chain(string(d)+"_light", slices.Concat([]string{
		"meta length and 0xffffff80 == 0 tcp flags & (fin | syn | rst | psh | ack | urg) == ack goto " + acks},
		r.longer(d, max(b.SmallPacket, 127)),
		[]string{fmt.Sprintf("meta l4proto tcp goto %s_small", d)}, rest[1:])...)
	r.w.chain(string(d)+"_other", append([]string{fmt.Sprintf("ct mark and 0x%08x != 0 goto %s_bulk", uint32(isBulk), d)}, rest...)...)
}

// slowAcks is how many acknowledgements a second a connection sends at most
// that acknowledges each packet by itself: those that come closer than 40 ms
// (TCP_ATO_MIN) are acknowledged in pairs.
const slowAcks = 30

// thin writes the chains that leave out acknowledgements of slow connections
// beyond the allowed number, and returns the first one's name. Of those with
// SACK blocks, which a sender needs to mend a loss, every second one goes even
// then: each tells the three newest blocks (RFC 2018), so the next one tells
// what it would have told. As long as those of
// all connections together are not more, nothing has to be known of each; once
// they were, those connections are metered. A connection is known
// by its ports alone, which is half the work for every acknowledgement; two that
// have the same are taken for a faster one, and left alone the sooner.
func (r renderer) thin() string {
	const name = "up_thin"
	b := r.p.Classes.Behaviour
	verdict := r.verdict(plan.DirectionUp, r.acks(plan.DirectionUp))
	r.w.limit("acks", b.Acks, b.Acks) // a second's: a page's short connections are not touched
	r.w.limit("slow_acks", b.Acks, b.Acks)
	r.w.chain("up_over", "tcp option sack exists numgen inc mod 2 0 goto up_acks", "drop")
	r.w.chain("up_meter",
		fmt.Sprintf("update @acks_up { th sport . th dport limit rate over %d/second burst %d packets } goto up_acks", slowAcks, slowAcks/2),
		`limit name "slow_acks" goto up_over`,
		verdict)
	r.w.chain("up_many", fmt.Sprintf("ct mark set ct mark or 0x%08x", uint32(metered)), "goto up_meter")
	r.w.chain(name,
		`limit name "acks" goto up_many`,
		fmt.Sprintf("ct mark and 0x%08x != 0 goto up_meter", uint32(metered)),
		verdict)
	return name
}

// sets writes what the meters remember. Each is bounded: where one is full, a
// newcomer is not protected, and those in it are not touched.
func (r renderer) sets() {
	n := r.p.Classes.Behaviour.Flows
	for _, f := range families() {
		flow := strings.Join([]string{"inet_proto", f.addr, "inet_service", f.addr, "inet_service"}, " . ")
		for _, d := range []plan.Direction{plan.DirectionUp, plan.DirectionDown} {
			if r.shares(d) == nil {
				continue
			}
			r.w.set(fmt.Sprintf("calm%s_%s", f.n, d), flow, "20s", n)
			r.w.set(fmt.Sprintf("busy%s_%s", f.n, d), flow, "10s", n)
			r.w.set(fmt.Sprintf("hosts%s_%s", f.n, d), f.addr, "20s", max(n/8, 16))
			r.w.set(fmt.Sprintf("crowd%s_%s", f.n, d), f.addr, "10s", max(n/8, 16))
			r.w.set(fmt.Sprintf("names%s_%s", f.n, d), f.addr, "1m", max(n/8, 16))
			r.w.set(fmt.Sprintf("looks%s_%s", f.n, d), flow, "20s", n)
			r.w.set(fmt.Sprintf("host_looks%s_%s", f.n, d), f.addr, "20s", max(n/8, 16))
		}
		if r.byMark(plan.DirectionDown) && r.shares(plan.DirectionUp) != nil {
			r.w.set(fmt.Sprintf("asked%s_up", f.n), f.addr, "1m", max(n/8, 16))
		}
		r.w.set("heavy"+f.n, f.addr, "10m", max(n/8, 16))
		r.w.set("partners"+f.n, f.addr+" . inet_service", "2m", n)
		r.w.set("swarm"+f.n, f.addr+" . inet_service", "10m", max(n/8, 16))
	}
	if r.shares(plan.DirectionUp) != nil && r.p.Classes.Behaviour.Acks > 0 {
		r.w.set("acks_up", "inet_service . inet_service", "10s", n)
	}
	r.ruleSets()
}
