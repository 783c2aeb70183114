package lab_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"unbloat/internal/cure/plan"
	"unbloat/lab"
	"unbloat/unit"
)

// costRouter builds router $1 between a home and a far end that drop all
// packets.
const costRouter = `set -e
a=a$1 r=r$1 z=z$1
for n in $a $r $z; do ip netns add $n; done
ip link add lan netns $r address 02:00:00:00:01:01 type veth peer name home netns $a address 02:00:00:00:01:02
ip link add wan netns $r address 02:00:00:00:02:01 type veth peer name far netns $z address 02:00:00:00:02:02
ip -n $a link set home up; ip -n $z link set far up
tc -n $a qdisc add dev home clsact; tc -n $a filter add dev home ingress matchall action drop
tc -n $z qdisc add dev far clsact; tc -n $z filter add dev far ingress matchall action drop
ip -n $r link set lo up; ip -n $r link set lan up; ip -n $r link set wan up
`

// costThrow builds the ends $1 of a line where nobody receives: what they send
// is dropped at once.
const costThrow = `set -e
for n in a$1 z$1; do ip netns add $n; done
ip -n a$1 link add home type dummy; ip -n z$1 link add far type dummy
ip -n a$1 link set home up; ip -n z$1 link set far up
`

// costForward makes router $1 forward with NAT, and plans its shaping with
// classes $2.
const costForward = `set -e
r=r$1
ip -n $r addr add 192.168.9.1/24 dev lan; ip -n $r addr add 198.51.100.1/24 dev wan
ip -n $r neigh add 192.168.9.2 lladdr 02:00:00:00:01:02 dev lan nud permanent
ip -n $r neigh add 198.51.100.2 lladdr 02:00:00:00:02:02 dev wan nud permanent
ip netns exec $r sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward; echo 0 > /proc/sys/net/ipv4/conf/all/rp_filter
  nft add table ip nat; nft "add chain ip nat post { type nat hook postrouting priority 100; }"; nft add rule ip nat post oifname wan masquerade
  echo 1 > /proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal; echo 0 > /proc/sys/net/netfilter/nf_conntrack_checksum'
ip netns exec $r ` + lab.GuestUnbloat + ` plan --wan wan --lan lan --down 2gbit --up 400mbit --classes $2 --json > /run/cost-$1.json
`

// TestForwardInGuest sends packets of many connections through the routers.
// measureCost runs it in a guest.
func TestForwardInGuest(t *testing.T) {
	turns, err := strconv.Atoi(os.Getenv(costInside))
	if err != nil {
		t.Skip("SKIPPED: this is what measureCost runs in its guest")
	}
	run := func(script string, args ...string) string {
		out, err := exec.Command("sh", append([]string{"-c", script, "sh"}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	run("nsenter -t 1 -n sh -c 'echo 65536 > /proc/sys/net/netfilter/nf_conntrack_buckets'") // as on a machine with more memory
	var lines [len(costRouters)]*packets
	for i, name := range costRouters {
		n := strconv.Itoa(i)
		if name == costNone {
			run(costThrow, n)
		} else {
			run(costRouter, n)
			run(costForward, n, map[string]string{costWith: "on", costWithout: "off"}[name])
			change := withoutRules
			if name == costWith {
				change = raiseLimits(os.Getenv(costOf))
			}
			changePlan(t, "/run/cost-"+n+".json", change)
			run("ip netns exec r$1 "+lab.GuestUnbloat+" apply --yes --state-dir /run/cost-$1 /run/cost-$1.json", n)
		}
		if os.Getenv(costTins) != "" && name == costWith { // the rules still run, but CAKE ignores their marks
			run("for d in wan ifb4wan; do ip netns exec r$1 tc qdisc change dev $d root handle b10a: cake besteffort; done", n)
		}
		lines[i] = newPackets(os.Getenv(costOf), opened(t, "a"+n, "home"), opened(t, "z"+n, "far"))
		lines[i].begin(t)
		lines[i].carry(t) // once, so that conntrack and the sets know each connection
	}
	forwarded := func(i int) (wan, lan int) {
		if costRouters[i] == costNone {
			return 0, 0
		}
		fmt.Sscan(run("ip netns exec r$1 cat /sys/class/net/wan/statistics/tx_packets /sys/class/net/lan/statistics/tx_packets", strconv.Itoa(i)), &wan, &lan)
		return wan, lan
	}
	var wan, lan [len(costRouters)]int
	for i := range lines {
		wan[i], lan[i] = forwarded(i)
	}
	n := 0
	for turn := range turns {
		for k := range costRouters {
			i := k
			if turn%2 == 1 {
				i = len(costRouters) - 1 - k
			}
			lines[i].round(t, 1) // fills the caches
			mark(t, n, costRouters[i])
			lines[i].carry(t)
			mark(t, n+1, costRouters[i])
			n += 2
		}
	}
	for i, name := range costRouters {
		w, l := forwarded(i)
		w, l = w-wan[i], l-lan[i]
		sent := turns * costFlows * (costRounds*3/4 + 1) // in each direction
		if through := min(w, l) >= sent; through == (name == costNone) {
			t.Errorf("%s: %d and %d packets were forwarded of %d sent each way", name, w, l, sent)
		}
	}
}

// withoutRules takes the filters for small packets out of a plan without classes.
func withoutRules(p *plan.Plan) { p.Up.PacketRules, p.Up.Tins = nil, p.Down.Tins }

// raiseLimits raises the limits of a plan's classes, so that the flows get the wanted
// class although they are sent slowly.
func raiseLimits(of string) func(p *plan.Plan) {
	return func(p *plan.Plan) {
		if b := &p.Classes.Behaviour; of == costQUIC || of == costMix { // busy, heavy, and not so many that they are bulk
			b.CalmRate, b.HeavyBytes, b.HeavyOfHost = 12*unit.KbitPerSecond, 1500, 1e6
		}
	}
}

// changePlan changes a plan that is in a file.
func changePlan(t *testing.T, file string, change func(p *plan.Plan)) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var p plan.Plan
	if err := json.Unmarshal(text, &p); err != nil {
		t.Fatal(err)
	}
	change(&p)
	if text, err = json.Marshal(p); err == nil {
		err = os.WriteFile(file, text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// mark tells the host that a slice begins or ends, and waits until the host has
// seen it. It mostly computes while it waits, so that the kernel's time is not
// used for it.
func mark(t *testing.T, n int, name string) {
	at := filepath.Join(filepath.Dir(lab.GuestUnbloat), fmt.Sprintf("mark-%d", n))
	err := os.WriteFile(at+".new", []byte(name), 0o644)
	if err == nil {
		err = os.Rename(at+".new", at)
	}
	if err != nil {
		t.Fatal(err)
	}
	seen := filepath.Join(filepath.Dir(at), fmt.Sprintf("seen-%d", n))
	for x := uint32(1); ; {
		for range 1 << 20 {
			x ^= x << 13
			x ^= x >> 17
			x ^= x << 5
		}
		if _, err := os.Stat(seen); err == nil && x != 0 {
			return
		}
	}
}

// packets are the prepared packets of the connections through one router.
type packets struct {
	home, far wire
	of        string     // the kind of traffic
	sent      int        // rounds so far
	data      [][]byte   // a full packet of each connection
	rounds    [2][]burst // without and with acknowledgements
}

// A burst is what several connections send at the same time, from both ends.
type burst struct{ homes, fars []message }

// burstOf is how many connections send at the same time.
const burstOf = 50

func newPackets(of string, home, far wire) *packets {
	p := &packets{home: home, far: far, of: of}
	payloads := func(i int) (data, answer int) {
		if p.kind(i) == costCalls {
			return 108, 108
		}
		return costFull, 0
	}
	for i := range costFlows {
		payload, _ := payloads(i)
		send := p.up
		if i%2 == 1 {
			send = p.down
		}
		p.data = append(p.data, send(i, ackFlag|pshFlag, payload))
	}
	for round := range p.rounds {
		p.rounds[round] = bursts(func(i int) (h, f [][]byte) {
			var acks [][]byte
			_, answer := payloads(i)
			switch {
			case round == 0:
			case i%2 == 0:
				acks = [][]byte{p.down(i, ackFlag, answer)}
			default:
				acks = [][]byte{p.up(i, ackFlag, answer)}
			}
			if i%2 == 0 {
				return p.data[i : i+1], acks
			}
			return acks, p.data[i : i+1]
		})
	}
	return p
}

// kind returns the kind of connection i.
func (p *packets) kind(i int) string {
	if p.of != costMix {
		return p.of
	}
	switch i / 2 % 10 {
	case 0:
		return costCalls
	case 1, 2, 3:
		return costQUIC
	}
	return costTCP
}

// bursts collects the packets that of returns for each connection.
func bursts(of func(i int) (homes, fars [][]byte)) (out []burst) {
	for i := 0; i < costFlows; i += burstOf {
		var b burst
		for k := i; k < i+burstOf; k++ {
			h, f := of(k)
			b.homes, b.fars = append(b.homes, messages(h)...), append(b.fars, messages(f)...)
		}
		out = append(out, b)
	}
	return out
}

// begin opens the connections.
func (p *packets) begin(t *testing.T) {
	p.send(t, bursts(func(i int) (h, f [][]byte) { return [][]byte{p.up(i, synFlag, 0)}, nil }))
	p.send(t, bursts(func(i int) (h, f [][]byte) { return nil, [][]byte{p.down(i, synFlag|ackFlag, 0)} }))
	p.send(t, bursts(func(i int) (h, f [][]byte) { return [][]byte{p.up(i, ackFlag, 0)}, nil }))
	if p.of == costTCP {
		return
	}
	for k := range 64 { // so that the rules do not look at all of them at the same time
		p.send(t, bursts(func(i int) (h, f [][]byte) {
			if p.kind(i) == costTCP || i/2%64 <= k {
				return nil, nil
			}
			return [][]byte{p.up(i, ackFlag, 0)}, [][]byte{p.down(i, ackFlag, 0)}
		}))
	}
}

// carry sends one slice: data, and acknowledgements every second round.
func (p *packets) carry(t *testing.T) {
	for round := range costRounds {
		p.round(t, round%2)
	}
}

// round sends a full packet of each connection, with or without
// acknowledgements. It then advances sequence numbers and checksums, by which
// the rules choose the packets that they look at.
func (p *packets) round(t *testing.T, which int) {
	p.send(t, p.rounds[which])
	p.sent++
	for i, f := range p.data {
		seq := f[14+20+4:]
		if p.kind(i) != costTCP { // a UDP checksum, which must not be 0
			binary.BigEndian.PutUint16(seq[2:], uint16(p.sent*40503+i)|1)
			continue
		}
		binary.BigEndian.PutUint32(seq, binary.BigEndian.Uint32(seq)+costFull)
	}
}

// send sends bursts at a pace that fits 300 Mbit/s.
func (p *packets) send(t *testing.T, bursts []burst) {
	for _, b := range bursts {
		p.home.send(t, b.homes)
		p.far.send(t, b.fars)
		time.Sleep(2 * time.Millisecond)
	}
}

const (
	synFlag = 2
	pshFlag = 8
	ackFlag = 16
)

func (p *packets) up(i int, flags byte, payload int) []byte {
	return p.frame(p.kind(i), [6]byte{2, 0, 0, 0, 1, 1}, [4]byte{192, 168, 9, 2}, [4]byte{198, 51, 100, 2}, uint16(10000+i), 443, flags, payload)
}

func (p *packets) down(i int, flags byte, payload int) []byte {
	return p.frame(p.kind(i), [6]byte{2, 0, 0, 0, 2, 1}, [4]byte{198, 51, 100, 2}, [4]byte{198, 51, 100, 1}, 443, uint16(10000+i), flags, payload)
}

// frame returns a TCP packet with timestamps, as Linux sends it, or a UDP
// packet of the same length.
func (p *packets) frame(kind string, mac [6]byte, src, dst [4]byte, sport, dport uint16, flags byte, payload int) []byte {
	b := make([]byte, 14+20+32+payload)
	copy(b, mac[:])
	copy(b[6:], []byte{2, 0, 0, 0, 9, 9, 8, 0})
	ip := b[14:]
	ip[0], ip[8], ip[9] = 0x45, 64, unix.IPPROTO_TCP
	if kind != costTCP {
		ip[9] = unix.IPPROTO_UDP
	}
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	copy(ip[12:], src[:])
	copy(ip[16:], dst[:])
	sum := uint32(0)
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum+sum>>16))
	tcp := ip[20:]
	binary.BigEndian.PutUint16(tcp, sport)
	binary.BigEndian.PutUint16(tcp[2:], dport)
	if kind != costTCP {
		binary.BigEndian.PutUint16(tcp[4:], uint16(len(tcp)))
		return b
	}
	tcp[12], tcp[13] = 8<<4, flags
	binary.BigEndian.PutUint16(tcp[14:], 65535)
	copy(tcp[20:], []byte{1, 1, 8, 10})
	return b
}

// A wire is a socket that sends frames out of one interface.
type wire int

// opened returns a wire on an interface of another namespace.
func opened(t *testing.T, node, device string) wire {
	t.Helper()
	type made struct {
		fd  int
		err error
	}
	done := make(chan made)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its namespace
		ns, err := os.Open(filepath.Join("/run/netns", node))
		if err == nil {
			err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
			ns.Close()
		}
		fd := -1
		if err == nil {
			fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
		}
		ifr, bad := unix.NewIfreq(device)
		if err == nil && bad == nil {
			err = unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, ifr)
		}
		if err == nil {
			err = unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: int(ifr.Uint32())})
		}
		if err == nil {
			err = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1)
		}
		done <- made{fd, err}
	}()
	m := <-done
	if m.err != nil {
		t.Fatalf("open %s in %s: %v", device, node, m.err)
	}
	return wire(m.fd)
}

// A message is the kernel's struct mmsghdr.
type message struct {
	header unix.Msghdr
	length uint32
	_      [4]byte
}

func messages(frames [][]byte) (out []message) {
	for _, f := range frames {
		iov := &unix.Iovec{Base: &f[0]}
		iov.SetLen(len(f))
		m := message{}
		m.header.Iov = iov
		m.header.SetIovlen(1)
		out = append(out, m)
	}
	return out
}

// send sends frames with one system call, since system calls are slow in a guest.
func (w wire) send(t *testing.T, m []message) {
	for len(m) > 0 {
		n, _, e := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(w), uintptr(unsafe.Pointer(&m[0])), uintptr(len(m)), 0, 0, 0)
		if e != 0 {
			t.Fatalf("send: %v", e)
		}
		m = m[n:]
	}
}
