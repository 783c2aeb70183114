package nft_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unbloat/internal/classify"
	"unbloat/internal/lab/labtest"
	"unbloat/internal/lang/nft"
	"unbloat/internal/plan"
	"unbloat/internal/platform/linux"
	"unbloat/unit"
)

// A kernelWorld is a router in a network namespace: frames written to one veth
// pair are forwarded to the other, with their class in the TTL.
type kernelWorld struct {
	t        *testing.T
	lan, wan int // sockets at the far ends of the two pairs
	lanMAC   net.HardwareAddr
	wanMAC   net.HardwareAddr
	id       uint16
	buffer   []byte
}

// Programs are started as seldom as can be: a start costs more than what they do.
const worldUp = `set -e
ip -batch - <<end
link set lo up
link add lan0 type veth peer name lanx
link add wan0 type veth peer name wanx
end
for i in lan0 lanx wan0 wanx; do echo 1 > /proc/sys/net/ipv6/conf/$i/disable_ipv6; done
for i in lan0 wan0; do echo 0 > /proc/sys/net/ipv6/conf/$i/disable_ipv6; echo 0 > /proc/sys/net/ipv6/conf/$i/accept_dad; done
for i in all default lan0 wan0; do echo 0 > /proc/sys/net/ipv4/conf/$i/rp_filter; done
echo 1 > /proc/sys/net/ipv4/ip_forward
echo 1 > /proc/sys/net/ipv6/conf/all/forwarding
ip -batch - <<end
link set lan0 up
link set lanx up
link set wan0 up
link set wanx up
addr add 10.8.0.1/24 dev lan0
addr add 10.9.0.1/24 dev wan0
addr add fd08::1/64 dev lan0 nodad
addr add fd09::1/64 dev wan0 nodad
neigh add 10.8.0.2 lladdr 02:00:00:00:08:02 dev lan0 nud permanent
neigh add 10.9.0.2 lladdr 02:00:00:00:09:02 dev wan0 nud permanent
neigh add fd08::2 lladdr 02:00:00:00:08:02 dev lan0 nud permanent
neigh add fd09::2 lladdr 02:00:00:00:09:02 dev wan0 nud permanent
route add 192.168.1.0/24 via 10.8.0.2
route add default via 10.9.0.2
route add fd00::/64 via fd08::2
route add ::/0 via fd09::2
end
cd /proc/sys/net/netfilter
echo 0 > nf_conntrack_checksum; echo 1 > nf_conntrack_tcp_be_liberal; echo 1 > nf_conntrack_tcp_loose
for f in nf_conntrack_generic_timeout nf_conntrack_icmp_timeout nf_conntrack_icmpv6_timeout nf_conntrack_udp_timeout nf_conntrack_udp_timeout_stream nf_conntrack_tcp_timeout_*; do echo 360000 > $f; done
echo 0 > nf_conntrack_acct
nft -f - <<end
table inet track { chain in { type filter hook prerouting priority 0; ct state established accept; }; }
end
`

// newKernelWorld creates one. The goroutine's thread stays in its namespace.
func newKernelWorld(t *testing.T) *kernelWorld {
	t.Helper()
	runtime.LockOSThread() // never unlocked: the thread ends with its namespace
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("make a network namespace: %v", err)
	}
	w := &kernelWorld{t: t, buffer: make([]byte, 4000)}
	w.sh(worldUp)
	w.lan, w.lanMAC = w.socket("lanx", "lan0")
	w.wan, w.wanMAC = w.socket("wanx", "wan0")
	return w
}

func (w *kernelWorld) sh(script string) {
	w.t.Helper()
	cmd := exec.Command("sh", "-c", script)
	if out, err := cmd.CombinedOutput(); err != nil {
		w.t.Fatalf("%s: %v: %s", script, err, out)
	}
}

func (w *kernelWorld) socket(name, peer string) (int, net.HardwareAddr) {
	w.t.Helper()
	const all = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK, all)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { unix.Close(fd) })
	here, err := net.InterfaceByName(name)
	if err != nil {
		w.t.Fatal(err)
	}
	there, err := net.InterfaceByName(peer)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: here.Index}); err != nil {
		w.t.Fatal(err)
	}
	return fd, there.HardwareAddr
}

// load loads the table, and a second one that writes the class into the TTL.
func (w *kernelWorld) load(table nft.Table, byMark bool) {
	w.t.Helper()
	var shows strings.Builder
	shows.WriteString("table inet law {\n chain shows {\n  type filter hook postrouting priority 10; policy accept;\n")
	for tin := 1; tin <= 8; tin++ {
		match := fmt.Sprintf("meta priority b10a:%d", tin)
		if byMark {
			fmt.Fprintf(&shows, "  iifname wan0 ct mark and 0x0f000000 == 0x%08x ip ttl set %d\n", tin<<24, 100+tin)
			fmt.Fprintf(&shows, "  iifname wan0 ct mark and 0x0f000000 == 0x%08x ip6 hoplimit set %d\n", tin<<24, 100+tin)
			match = "oifname wan0 " + match
		}
		fmt.Fprintf(&shows, "  %s ip ttl set %d\n  %s ip6 hoplimit set %d\n", match, 100+tin, match, 100+tin)
	}
	shows.WriteString(" }\n}\n")
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(table.Load() + shows.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		w.t.Fatalf("load the rules: %v: %s", err, out)
	}
}

// send sends a packet and returns the tin it left with: 0 for none, -1 if it
// was dropped.
func (w *kernelWorld) send(p classify.Packet) int {
	w.t.Helper()
	w.id++
	from, to, mac := w.lan, w.wan, w.lanMAC
	source := net.HardwareAddr{2, 0, 0, 0, 9, 2}
	if p.Direction == classify.Down {
		from, to, mac = w.wan, w.lan, w.wanMAC
	} else {
		source, _ = net.ParseMAC(p.MAC)
	}
	frame := append(append(append(w.buffer[:0:0], mac...), source...), 0, 0)
	binary.BigEndian.PutUint16(frame[12:], etherType(p))
	frame = append(frame, ipPacket(p, w.id)...)
	if _, err := unix.Write(from, frame); err != nil {
		w.t.Fatalf("send %+v: %v", p, err)
	}
	for {
		n, err := unix.Read(to, w.buffer)
		if err == unix.EAGAIN {
			return -1
		}
		if err != nil {
			w.t.Fatal(err)
		}
		b := w.buffer[:n]
		ttl, id := 0, uint16(0)
		switch binary.BigEndian.Uint16(b[12:]) {
		case unix.ETH_P_IP:
			ttl, id = int(b[14+8]), binary.BigEndian.Uint16(b[14+4:])
		case unix.ETH_P_IPV6:
			ttl, id = int(b[14+7]), binary.BigEndian.Uint16(b[14+2:])
		}
		if id != w.id {
			continue // sent by the kernel itself
		}
		if ttl > 100 {
			return ttl - 100
		}
		return 0
	}
}

func etherType(p classify.Packet) uint16 {
	if p.Home.Is4() {
		return unix.ETH_P_IP
	}
	return unix.ETH_P_IPV6
}

// ipPacket encodes a packet; id is IPv4's identification or IPv6's flow label.
func ipPacket(p classify.Packet, id uint16) []byte {
	from, to, sport, dport := p.Home, p.Far, p.HomePort, p.FarPort
	if p.Direction == classify.Down {
		from, to, sport, dport = to, from, dport, sport
	}
	b := make([]byte, p.Length)
	at := 20
	if p.Home.Is4() {
		b[0], b[1], b[8], b[9] = 0x45, p.DSCP<<2, 64, p.Protocol
		binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
		binary.BigEndian.PutUint16(b[4:], id)
		copy(b[12:], from.AsSlice())
		copy(b[16:], to.AsSlice())
		sum := uint32(0)
		for i := 0; i < 20; i += 2 {
			sum += uint32(binary.BigEndian.Uint16(b[i:]))
		}
		binary.BigEndian.PutUint16(b[10:], ^uint16(sum+sum>>16))
	} else {
		at = 40
		b[0], b[1] = 0x60|p.DSCP>>2, p.DSCP<<6
		binary.BigEndian.PutUint16(b[2:], id)
		binary.BigEndian.PutUint16(b[4:], uint16(len(b)-40))
		b[6], b[7] = p.Protocol, 64
		copy(b[8:], from.AsSlice())
		copy(b[24:], to.AsSlice())
	}
	th := b[at:]
	switch p.Protocol {
	case classify.TCP, classify.UDP:
		binary.BigEndian.PutUint16(th, sport)
		binary.BigEndian.PutUint16(th[2:], dport)
		binary.BigEndian.PutUint32(th[4:], p.Second)
	case classify.ICMP: // an echo request from the side that began
		th[0] = 8
		if p.Second&1 != 0 {
			th[0] = 0
		}
		binary.BigEndian.PutUint16(th[4:], uint16(p.Second>>1))
	case classify.ICMPv6:
		th[0] = 128 + byte(p.Second&1)
		binary.BigEndian.PutUint16(th[4:], uint16(p.Second>>1))
	}
	if p.Protocol == classify.TCP {
		th[12], th[13] = 5<<4, p.Flags
		if p.SACK {
			th[12] = 8 << 4
			copy(th[20:], []byte{1, 1, 5, 10})
		}
	}
	return b
}

// monotonic is the clock that nftables' limits read.
func monotonic(t *testing.T) unit.Instant {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		t.Fatal(err)
	}
	return unit.Instant(ts.Nano())
}

// A lawFlow is a connection of the walk and the expected state of connection
// tracking.
type lawFlow struct {
	packet   classify.Packet // a template
	byHome   bool            // who began it
	older    bool            // than the rules
	ct       *classify.Connection
	sequence uint32
	turns    int
	id       uint32 // of pings

	malformed bool // the last packet was; connection tracking ignores it
}

// next returns the flow's next packet.
func (f *lawFlow) next(rng *rand.Rand, size unit.Size) classify.Packet {
	p := f.packet
	reply := f.turns > 0 && rng.IntN(3) == 0 || f.turns == 1 && rng.IntN(4) > 0
	if p.Protocol == classify.TCP && !f.older && f.turns < 3 { // the handshake; without it connection tracking ignores what follows
		reply = f.turns == 1
	}
	p.Direction = classify.Up
	if f.byHome == reply {
		p.Direction = classify.Down
	}
	header := unit.Size(20)
	if !p.Home.Is4() {
		header = 40
	}
	p.DSCP = 0
	if rng.IntN(6) == 0 {
		p.DSCP = uint8(rng.IntN(64))
	}
	switch p.Protocol {
	case classify.TCP:
		switch {
		case f.turns == 0 && !f.older:
			p.Flags, size = classify.SYN, 60
		case f.turns == 1 && !f.older:
			p.Flags, size = classify.SYN|classify.ACK, 60
		case f.turns == 2 && !f.older:
			p.Flags, size = classify.ACK, 52
		case size < 130 && rng.IntN(4) > 0:
			p.Flags = classify.ACK
			p.SACK = rng.IntN(3) == 0
		default:
			p.Flags = classify.ACK | classify.PSH
		}
		header += 20
		if p.SACK {
			header += 12
		}
		p.Length = max(size, header)
		p.Second = f.sequence
		f.sequence += uint32(p.Length)
	case classify.UDP:
		p.Length = max(size, header+8)
		length := uint32(p.Length - header)
		if f.malformed = f.turns > 0 && rng.IntN(50) == 0; f.malformed {
			length++
		}
		p.Second = length<<16 | 1 + uint32(rng.IntN(1<<16-1)) // IPv6 drops UDP without a checksum
	case classify.ICMP, classify.ICMPv6:
		p.Length = max(size, header+16)
		p.Second = f.id << 1
		if reply {
			p.Second |= 1
		}
	default:
		p.Length = max(size, header+16)
	}
	f.turns++
	return p
}

// seen updates the connection's state with a packet.
func (f *lawFlow) seen(p classify.Packet) {
	c := f.ct
	c.ReplyPacket = f.byHome == (p.Direction == classify.Down)
	if c.ReplyPacket {
		c.Answered = true
	}
	if f.older {
		return // a connection without counters
	}
	if c.ReplyPacket {
		c.Replied++
	} else {
		c.Sent++
	}
	c.Bytes += p.Length
}

// aPolicy returns a random plan for a random line. Its limits are so low that a
// short walk exceeds them all.
func aPolicy(t *testing.T, rng *rand.Rand) plan.Plan {
	t.Helper()
	w, err := plan.ParseClasses("rules", []byte(rules))
	if err != nil {
		t.Fatal(err)
	}
	var keep []plan.Rule
	for _, r := range w.Rules {
		if rng.IntN(3) == 0 {
			r.From = min(r.From, 30*unit.KB)
			keep = append(keep, r)
		}
	}
	w.Rules, w.DSCP = keep, plan.DSCPPreference{TrustHome: rng.IntN(3) == 0, TrustFar: rng.IntN(3) == 0}
	p, err := plan.Make(plan.Line{Down: 30 * unit.MbitPerSecond, Up: 5 * unit.MbitPerSecond},
		plan.Capabilities{Language: linux.Language(), WAN: "wan0", LAN: "lan0", IFB: true, Hosts: map[string][]string{"nas": {"192.168.1.9", "fd00::9"}}},
		plan.Preferences{AQM: plan.CAKE, Side: []plan.Side{plan.SideIFB, plan.SideLAN}[rng.IntN(2)], Classes: w})
	if err != nil {
		t.Fatal(err)
	}
	b := &p.Classes.Behaviour
	b.SmallPacket = []unit.Size{64, 127, 200, 255, 511, 511}[rng.IntN(6)]
	b.FirstBytes, b.FirstUp = unit.Size(rng.IntN(6000)), unit.Size(rng.IntN(6000))
	b.HeavyBytes = max(b.FirstBytes, b.FirstUp) + unit.Size(rng.IntN(20000))
	b.LongBytes = b.HeavyBytes + unit.Size(rng.IntN(60000))
	b.HeavyOfHost, b.Peers, b.Names, b.Acks = 1+rng.IntN(4), 1+rng.IntN(3), 1+rng.IntN(6), rng.IntN(30)
	b.CalmPackets, b.CalmRate = 10+rng.IntN(100), unit.Rate(8000+rng.IntN(200_000))
	steady := func() unit.Rate { return unit.Rate(rng.IntN(6)*8000 + rng.IntN(2)*rng.IntN(400_000)) }
	b.Steady, b.SteadyUp = steady(), steady()
	b.SteadyOfHost, b.SteadyOfHostUp = b.Steady+steady(), b.SteadyUp+steady()
	b.CalmOfHost, b.CalmOfUp = unit.Rate(16000+rng.IntN(400_000)), unit.Rate(16000+rng.IntN(400_000))
	return p
}

// flows makes the connections of a walk: IPv4 and IPv6, every protocol, from
// and to machines of the home, some older than the rules.
func flows(rng *rand.Rand, n int) []*lawFlow {
	var out []*lawFlow
	ports := []uint16{53, 80, 443, 853, 5004, 8085, 19305, 6881}
	for i := range n {
		f := &lawFlow{byHome: rng.IntN(4) > 0, older: rng.IntN(8) == 0, id: uint32(i + 1), sequence: rng.Uint32(), ct: &classify.Connection{}}
		p := &f.packet
		p.Protocol = []uint8{classify.TCP, classify.TCP, classify.TCP, classify.UDP, classify.UDP, classify.UDP, classify.ICMP, classify.ESP}[rng.IntN(8)]
		host := []byte{2, 3, 7, 9}[rng.IntN(4)]
		p.MAC = fmt.Sprintf("02:00:00:00:00:%02x", host)
		if rng.IntN(3) == 0 {
			if p.Protocol == classify.ICMP {
				p.Protocol = classify.ICMPv6
			}
			far := netip.MustParseAddr([]string{"2001:db8::5", "2001:db9::1"}[rng.IntN(2)]).As16()
			far[14] = byte(i)
			p.Home, p.Far = netip.AddrFrom16([16]byte{0: 0xfd, 15: host}), netip.AddrFrom16(far)
		} else {
			p.Home, p.Far = netip.AddrFrom4([4]byte{192, 168, 1, host}), netip.AddrFrom4([4]byte{203, 0, byte(113 + rng.IntN(2)), byte(i + 1)})
		}
		if classify.HasPorts(p.Protocol) { // the far address differs, so several flows may share a port
			p.HomePort, p.FarPort = ports[rng.IntN(len(ports))], ports[rng.IntN(len(ports))]
			if p.Protocol == classify.UDP && rng.IntN(2) == 0 {
				p.HomePort = 6881 // BitTorrent's
			}
		}
		out = append(out, f)
	}
	return out
}

// datagrams returns one of the flows of UDP.
func datagrams(rng *rand.Rand, all []*lawFlow) *lawFlow {
	for {
		if f := all[rng.IntN(len(all))]; f.packet.Protocol == classify.UDP {
			return f
		}
	}
}

// neighbour returns another flow of datagrams of the same machine; f if it has none.
func neighbour(all []*lawFlow, f *lawFlow) *lawFlow {
	for _, g := range all {
		if g != f && g.packet.Home == f.packet.Home && g.packet.Protocol == classify.UDP {
			return g
		}
	}
	return f
}

// TestKernelDecidesAsTableInLab compares the rendered rules with the evaluator.
// On a real kernel every packet of a random walk gets the class that the
// evaluator computes, with all state that nftables keeps: meters, sets with
// timeouts, counters, marks, dropped acknowledgements, and the user's own
// rules.
func TestKernelDecidesAsTableInLab(t *testing.T) {
	if !labtest.Inside(t, labtest.Options{}) {
		return
	}
	seed := labtest.Seed(t)
	const bursts = 300
	worlds := 3
	if labtest.Long() {
		worlds = 20
	}
	met := map[string]int{}
	for i := range worlds {
		done := make(chan struct{})
		go func() { // a thread of its own, so a namespace of its own
			defer close(done)
			lawWorld(t, seed*1000+uint64(i), bursts, met)
		}()
		if <-done; t.Failed() {
			return
		}
	}
	t.Logf("what decided: %v", met)
	for code := classify.ByRule; code <= classify.Unprotected; code++ {
		if met[fmt.Sprint(code)] == 0 {
			t.Errorf("the walks never met reason %d", code)
		}
	}
	if met["dropped"] == 0 {
		t.Error("no acknowledgement was left out")
	}
}

// lawWorld runs a random walk through one plan's rules.
func lawWorld(t *testing.T, seed uint64, bursts int, met map[string]int) {
	rng := rand.New(rand.NewPCG(seed, 1))
	t.Logf("walk with seed %d", seed)
	p := aPolicy(t, rng)
	p.Classes.Varies = seed%2 == 0
	table, rules := nft.Render(p, "b10a:"), classify.Build(p.Policy())
	all := flows(rng, 60)
	w := newKernelWorld(t)
	for _, f := range all { // connections older than the rules have no counters
		if f.older {
			p := f.next(rng, 200)
			if f.seen(p); w.send(p) != 0 {
				t.Errorf("without rules %+v is not forwarded as it is", p)
			}
		}
	}
	w.load(table, p.Policy().DownByMark)
	memory := classify.NewMemory(rules, monotonic(t))
	memory.Tick = 10 * time.Millisecond
	packets := 0
	for i := range len(all) + bursts {
		f, most := all[i%len(all)], 1 // first one packet of each, like a swarm
		if i >= len(all) {
			f, most = all[rng.IntN(len(all))], []int{60, 60, 60, 60, 60, 240}[rng.IntN(6)]
		}
		call := i >= len(all) && rng.IntN(3) == 0
		if call {
			f = datagrams(rng, all)
		}
		turns := [2]*lawFlow{f, f}
		if rng.IntN(3) == 0 { // two flows of one machine at once
			turns[1] = neighbour(all, f)
		}
		size := unit.Size([]int{52, 60, 100, 130, 200, 300, 511, 512, 900, 1500, 1500}[rng.IntN(11)])
		sound := size
		if call { // small packets between its pictures
			size, sound = 1500, []unit.Size{60, 130, 200, 255, 300, 511}[rng.IntN(6)]
		}
		gap := []time.Duration{0, time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond}[rng.IntN(4)]
		for turn := range 1 + rng.IntN(most) {
			f := turns[turn%2]
			length := []unit.Size{size, sound}[rng.IntN(2)]
			packet := f.next(rng, min(length+unit.Size(rng.IntN(2)), 1500))
			fresh := *f.ct == classify.Connection{} && !f.older
			ct := f.ct
			if f.malformed {
				ct = &classify.Connection{Untracked: true}
				met["malformed"]++
			} else {
				f.seen(packet)
			}
			now := monotonic(t)
			before, d := *ct, rules.Explain(now, &packet, ct, memory)
			want := 0
			if d.Lane != nil {
				want = int(d.Lane.Tin)
			}
			if d.Drop {
				want = -1
				if met["dropped"]++; fresh { // it was not confirmed
					f.ct = &classify.Connection{}
				}
			}
			for _, why := range d.Why {
				met[fmt.Sprint(why.Code)]++
			}
			if got := w.send(packet); got != want {
				t.Errorf("seed %d, packet %d: %+v of a connection %+v (older: %v): the kernel's tin is %d, the table's %d by %v", seed, packets, packet, before, f.older, got, want, d.Why)
				return
			}
			packets++
			time.Sleep(gap)
		}
		if most > 1 {
			time.Sleep([]time.Duration{0, 0, 30 * time.Millisecond, 300 * time.Millisecond, 3 * time.Second, 11 * time.Second, 61 * time.Second}[rng.IntN(7)])
		}
	}
}
