package lab

import (
	"fmt"
	"strings"
	"time"

	"unbloat/lab/household"
	"unbloat/lab/scenario"
	"unbloat/unit"
)

// A batch is the input of one `ip -batch` or `tc -batch` (tool), inside a
// namespace ("" for the guest's own).
type batch struct {
	tool, node string
	lines      []string
}

func (b *batch) add(format string, args ...any) {
	b.lines = append(b.lines, fmt.Sprintf(format, args...))
}

// A cable is a veth pair between two nodes.
type cable struct{ aNode, aIf, bNode, bIf string }

// wiring returns what builds the home of a scenario: namespaces, cables,
// addresses, and the line itself. It is pure, so that it can be read and tested
// anywhere. With a router's own image, r, the home has no node for the router;
// its two cables, and that on which the distance lies, are tap devices.
func wiring(s *scenario.Scenario, engine Engine, r *Router) []batch {
	hosts := s.Hosts()
	cables := []cable{
		{NodeRouter, RouterWAN, NodeModem, "m0"},
		{NodeModem, "m1", NodeISP, ispHome},
		{NodeISP, "net", NodeServer, "eth0"},
	}
	if hosts == 1 {
		cables = append(cables, cable{NodeRouter, RouterLAN, Host(1), "eth0"})
	} else {
		cables = append(cables, cable{NodeRouter, RouterLAN, nodeSwitch, "p0"})
		for k := 1; k <= hosts; k++ {
			cables = append(cables, cable{nodeSwitch, fmt.Sprintf("p%d", k), Host(k), "eth0"})
		}
	}
	root := batch{tool: "ip"}
	all := nodes(hosts, r)
	for _, n := range all {
		root.add("netns add %s", n)
	}
	for i, c := range cables {
		if r != nil && tapped(&root, c, i) {
			continue
		}
		queues := ""
		if n := s.Home.Queues; n > 1 {
			queues = fmt.Sprintf(" numtxqueues %d numrxqueues %d", n, n)
		}
		root.add("link add %s netns %s address %s%s type veth peer name %s netns %s address %s%s",
			c.aIf, c.aNode, mac(i, 0), queues, c.bIf, c.bNode, mac(i, 1), queues)
	}
	out := []batch{root}
	for _, n := range all {
		out = append(out, addresses(n, cables, engine, r))
	}
	for k := 1; k <= hosts; k++ {
		if away := s.Home.AwayOf(k); away > 0 { // all of it on the way out
			far := batch{tool: "tc", node: Host(k)}
			far.add("qdisc add dev eth0 root netem limit 1000000 delay %dus", away.Microseconds())
			out = append(out, far)
		}
	}
	return append(out, line(s.Line, engine, r)...)
}

// Tap devices by the names that they are made with.
const (
	tapLAN  = "lab-lan"  // the router's first network card
	tapWAN  = "lab-wan"  // its second
	tapNear = "lab-near" // the distance's end at the provider
	tapFar  = "lab-far"  // its end at the server
)

// tapped puts the tap devices to where the i-th cable ends, and reports whether
// the cable is made of them.
func tapped(b *batch, c cable, i int) bool {
	move := func(tap, node, name string, end int) {
		b.add("link set dev %s netns %s name %s address %s", tap, node, name, mac(i, end))
	}
	switch {
	case c.aNode == NodeRouter && c.aIf == RouterWAN:
		move(tapWAN, c.bNode, c.bIf, 1)
	case c.aNode == NodeRouter:
		move(tapLAN, c.bNode, c.bIf, 1)
	case c.bNode == NodeServer:
		move(tapNear, c.aNode, c.aIf, 0)
		move(tapFar, c.bNode, c.bIf, 1)
	default:
		return false
	}
	return true
}

// lanNet is the home's network: the first three numbers of its addresses, that of
// its router, and the last number of its first machine.
func lanNet(r *Router) (prefix, router string, first int) {
	if r == nil {
		return "10.1.0", routerLAN4, 2
	}
	a := r.Address.As4()
	return fmt.Sprintf("%d.%d.%d", a[0], a[1], a[2]), r.Address.String(), 101
}

// nodes returns all namespaces of a home with that many hosts. A router's own
// image is none.
func nodes(hosts int, r *Router) []string {
	var out []string
	if r == nil {
		out = append(out, NodeRouter)
	}
	out = append(out, NodeModem, NodeISP, NodeServer)
	if hosts > 1 {
		out = append(out, nodeSwitch)
	}
	for k := 1; k <= hosts; k++ {
		out = append(out, Host(k))
	}
	return out
}

// ends returns the interfaces of a node, in the order of the cables.
func ends(node string, cables []cable) []string {
	var out []string
	for _, c := range cables {
		if c.aNode == node {
			out = append(out, c.aIf)
		}
		if c.bNode == node {
			out = append(out, c.bIf)
		}
	}
	return out
}

func mac(cable, end int) string { return fmt.Sprintf("02:00:00:00:%02x:%02x", cable, end+1) }

// addresses configures one node. Neighbours across the line are permanent: an
// ARP exchange that waits for seconds in the modem would measure ARP.
func addresses(node string, cables []cable, engine Engine, r *Router) batch {
	b := batch{tool: "ip", node: node}
	b.add("link set lo up")
	ifs := ends(node, cables)
	if node == NodeModem || node == nodeSwitch {
		b.add("link add name br0 type bridge")
		for _, i := range ifs {
			b.add("link set %s master br0", i)
		}
		b.add("link set br0 up")
	}
	for _, i := range ifs {
		if engine == Virtual { // no router solicitations; the other kernel has no IPv6 at all
			b.add("link set %s addrgenmode none", i)
		}
		b.add("link set %s up", i)
	}
	lan, gateway, first := lanNet(r)
	switch node {
	case NodeRouter:
		b.add("addr add %s/24 dev %s", routerLAN4, RouterLAN)
		b.add("addr add %s/24 dev %s", routerWAN4, RouterWAN)
		b.add("route add default via %s", ispHome4)
		b.add("neigh replace %s lladdr %s dev %s nud permanent", ispHome4, mac(1, 1), RouterWAN)
	case NodeISP:
		b.add("addr add %s/24 dev %s", ispHome4, ispHome)
		b.add("addr add %s/24 dev net", ispNet4)
		b.add("route add %s.0/24 via %s", lan, routerWAN4)
		for _, net := range append(reflectorNets(), household.Internet) {
			b.add("route add %s via %s", net, ServerAddr)
		}
		b.add("neigh replace %s lladdr %s dev home nud permanent", routerWAN4, mac(0, 0))
	case NodeServer:
		b.add("addr add %s/24 dev eth0", ServerAddr)
		for _, a := range Reflectors() {
			b.add("addr add %s/32 dev eth0", a)
		}
		b.add("route add default via %s", ispNet4)
	case NodeModem, nodeSwitch:
	default: // a host
		var k int
		fmt.Sscanf(node, "home%d", &k)
		b.add("addr add %s.%d/24 dev eth0", lan, first+k-1)
		b.add("route add default via %s", gateway)
	}
	return b
}

// line makes the access line: the rate and the byte-limited FIFO of the modem
// each way, and the distance to the server, half of it each way.
func line(l scenario.Line, engine Engine, r *Router) []batch {
	modem := batch{tool: "tc", node: NodeModem}
	for _, way := range []struct {
		dev    string
		rate   unit.Rate
		buffer unit.Size
	}{{"m0", l.Down, l.BufferDown}, {"m1", l.Up, l.BufferUp}} {
		if r != nil { // packets come from tap devices, and are in no sender's account
			modem.add("qdisc add dev %s root handle 1:%s %s", way.dev, framing(l), bottleneck(l, way.rate, way.buffer, engine))
			headDrop(&modem, l, way.dev, way.rate)
			continue
		}
		// A packet leaves its sender's account when a network card has sent it; a
		// veth keeps it there, and TCP would see the modem's queue as its own
		// (TSQ) and never fill it. netem takes packets out of the account, so the
		// modem begins with one that delays them by next to nothing. How long a packet
		// is on the line is computed where it enters, at the root.
		modem.add("qdisc add dev %s root handle 2:%s netem delay 1us limit 1000000", way.dev, framing(l))
		modem.add("qdisc add dev %s parent 2:1 handle 1: %s", way.dev, bottleneck(l, way.rate, way.buffer, engine))
		headDrop(&modem, l, way.dev, way.rate)
	}
	if r != nil {
		return []batch{modem} // the distance is the agent's own (distance.go)
	}
	isp := batch{tool: "tc", node: NodeISP}
	for _, dev := range []string{"home", "net"} {
		isp.add("qdisc add dev %s root netem %s", dev, distance(l))
	}
	if l.EchoOnly {
		isp.add("qdisc add dev net clsact")
		isp.add("filter add dev net egress protocol ip flower ip_proto icmp type 13 action drop")
	}
	return []batch{modem, isp}
}

// bottleneck is tc-tbf(8): the rate, and a FIFO of so many bytes, or what headDrop has put in its place.
func bottleneck(l scenario.Line, rate unit.Rate, buffer unit.Size, engine Engine) string {
	if l.LinkLayer == "ptm" { // 64 bytes of 65 carry data
		rate = rate * 64 / 65
	}
	// A burst of one frame keeps the modem's queue exact; real time needs as
	// much as passes between two ticks of the guest's timer.
	burst := unit.Size(1600)
	if l.LinkLayer == "atm" {
		burst = 2048
	}
	if engine == Realtime {
		burst = max(burst, rate.Bytes(4*time.Millisecond))
	}
	if l.HeadDrop > 0 { // tbf hands its limit on to the queue below it, which counts packets
		buffer = unit.Size(l.HeadDropPackets(rate))
	}
	return fmt.Sprintf("tbf rate %dbit burst %db limit %db", rate, burst, buffer)
}

// headDrop puts tc-pfifo_head_drop(8) in the place of the bottleneck's own queue.
func headDrop(b *batch, l scenario.Line, dev string, rate unit.Rate) {
	if l.HeadDrop > 0 {
		b.add("qdisc add dev %s parent 1:1 handle 3: pfifo_head_drop limit %d", dev, l.HeadDropPackets(rate))
	}
}

// framing is tc-stab(8): what a packet occupies on the line. Its table has a slot for each
// size, or steps would lie on multiples of four.
func framing(l scenario.Line) string {
	layer := "ethernet"
	switch {
	case l.LinkLayer == "atm":
		layer = "atm"
	case l.Overhead == 0 && l.MPU == 0:
		return ""
	}
	return fmt.Sprintf(" stab mtu 2047 tsize 2048 mpu %d overhead %d linklayer %s", l.MPU, l.Overhead, layer)
}

// distance is tc-netem(8): half the idle round trip. The rate, far above the
// line's, makes netem keep packets in order when there is jitter.
func distance(l scenario.Line) string {
	d := fmt.Sprintf("limit 1000000 delay %dus", (l.RTT / 2).Microseconds())
	if l.Jitter > 0 {
		d += fmt.Sprintf(" %dus", (l.Jitter / 2).Microseconds())
	}
	if l.Loss > 0 {
		d += fmt.Sprintf(" loss %g%%", l.Loss*100)
	}
	if l.Jitter > 0 {
		d += " rate 100gbit"
	}
	return d
}

// leastRate is a byte a second.
const leastRate unit.Rate = 8

// retune returns what changes the line's rates while it runs.
func retune(l scenario.Line, c scenario.Change, engine Engine, r *Router) batch {
	b := batch{tool: "tc", node: NodeModem}
	at := "parent 2:1 handle 1:"
	if r != nil {
		at = "root handle 1:" + framing(l)
	}
	down, up := c.Down, c.Up
	if c.Exact { // an outage is the least rate that tc knows
		down, up = max(down, leastRate), max(up, leastRate)
	}
	if down > 0 {
		b.add("qdisc change dev m0 %s %s", at, bottleneck(l, down, l.BufferDown, engine))
	}
	if up > 0 {
		b.add("qdisc change dev m1 %s %s", at, bottleneck(l, up, l.BufferUp, engine))
	}
	return b
}

// surroundings returns what changes the provider's network while the line runs.
func surroundings(l scenario.Line, c scenario.Change) (out []batch) {
	if c.More > 0 {
		b := batch{tool: "tc", node: NodeISP}
		l.RTT += 2 * c.More
		b.add("qdisc change dev %s root netem %s", ispHome, distance(l))
		out = append(out, b)
	}
	if c.Silent {
		b := batch{tool: "ip", node: NodeISP}
		for _, net := range reflectorNets() {
			b.add("route replace blackhole %s", net)
		}
		out = append(out, b)
	}
	return out
}

// text is the batch as its tool reads it.
func (b batch) text() string { return strings.Join(b.lines, "\n") + "\n" }

// argv is the command that takes the batch on its standard input.
func (b batch) argv() []string {
	if b.node == "" {
		return []string{b.tool, "-batch", "-"}
	}
	return []string{b.tool, "-n", b.node, "-batch", "-"}
}
