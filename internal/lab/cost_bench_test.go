package lab_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"unbloat/internal/lab"
	"unbloat/internal/lab/labtest"
)

// What the cost of the classes is measured with: costFlows TCP connections of one
// machine behind NAT, half of them uploads and half downloads; in each of
// costTurns turns costRounds full packets of each, and an acknowledgement for
// every second, are forwarded without the rules, with them, and not at all.
const (
	costFlows  = 1000
	costRounds = 30
	costTurns  = 12
	costInside = "UNBLOAT_COST"
)

// BenchmarkClasses is what the classes cost: the processor time that a router
// takes to forward 1000 connections through CAKE both ways with NAT, with the
// rules and without, each less what it takes to hand it the same packets for
// somebody else. %-more is what to compare with 15. The machine's other work can only make a
// turn dearer, so the cheapest of several counts.
func BenchmarkClasses(b *testing.B) {
	if os.Getenv(costInside) != "" {
		forwardInGuest(b)
		return
	}
	kernel, err := lab.FindKernel(lab.Virtual)
	if err != nil {
		b.Skipf("SKIPPED: %v", err)
	}
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	s := labtest.Home()
	g := lab.Guest{Engine: kernel.Engine, Scenario: s, Case: s.Cases[0].Name, Node: lab.NodeRouter, Binary: labtest.Binary(b),
		Command: []string{self, "-test.run", "^$", "-test.bench", "^BenchmarkClasses$", "-test.benchtime", "1x", "-test.v"},
		Env:     []string{costInside + "=1"}}
	spent := map[string][]float64{}
	for b.Loop() {
		ctx, stop := context.WithCancel(b.Context())
		watched := make(chan error, 1)
		go func() { watched <- watchPhases(ctx, spent) }()
		r, _, err := lab.Boot(b.Context(), kernel, g, nil)
		stop()
		if err := <-watched; err != nil {
			b.Fatal(err)
		}
		if err != nil {
			b.Fatal(err)
		}
		if c := r.Commands[0]; c.ExitCode != 0 || len(spent["with"]) == 0 {
			b.Fatalf("exit code %d, %d turns:\n%s", c.ExitCode, len(spent["with"]), c.Output)
		}
	}
	b.Logf("µs a packet, in turns: %v", spent)
	aside := slices.Min(spent["aside"])
	without, with := slices.Min(spent["without"])-aside, slices.Min(spent["with"])-aside
	more := 100 * (with/without - 1)
	b.ReportMetric(without, "µs/packet-without")
	b.ReportMetric(with, "µs/packet-with")
	b.ReportMetric(more, "%-more")
}

// watchPhases follows the guest's phases, which it marks in the folder that it
// shares, and adds to spent the µs of processor time that each took a packet.
func watchPhases(ctx context.Context, spent map[string][]float64) error {
	var began time.Duration
	pid, dir := 0, ""
	for n := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Millisecond):
		}
		if dir == "" {
			pid, dir = guestProcess()
			continue
		}
		name, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("phase-%d", n)))
		if err != nil {
			continue
		}
		at, err := treeTime(pid)
		if err != nil {
			return err
		}
		if n%2 == 1 {
			spent[string(name)] = append(spent[string(name)], float64((at-began).Microseconds())/(costFlows*costRounds*1.5))
		}
		if began, err = treeTime(pid); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("seen-%d", n)), nil, 0o644); err != nil {
			return err
		}
		n++
	}
}

// mark tells the host that a phase begins or ends, and waits until it has seen it.
func mark(b *testing.B, n int, name string) {
	at := filepath.Join(filepath.Dir(lab.GuestBinary), fmt.Sprintf("phase-%d", n))
	err := os.WriteFile(at+".new", []byte(name), 0o644)
	if err == nil {
		err = os.Rename(at+".new", at)
	}
	if err != nil {
		b.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(filepath.Dir(at), fmt.Sprintf("seen-%d", n))); err == nil {
			return
		}
	}
}

// guestProcess returns the guest among this process's children, and the folder
// that it shares.
func guestProcess() (pid int, dir string) {
	for _, child := range children(os.Getpid()) {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", child))
		for arg := range strings.SplitSeq(string(line), "\x00") {
			if d, ok := strings.CutPrefix(arg, "uml_dir="); ok {
				return child, d
			}
		}
	}
	return 0, ""
}

func children(pid int) (out []int) {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, t := range tasks {
		text, _ := os.ReadFile(t)
		for w := range strings.FieldsSeq(string(text)) {
			n, _ := strconv.Atoi(w)
			out = append(out, n)
		}
	}
	return out
}

// treeTime is the processor time of a process and those that it started, as far
// as they live.
func treeTime(pid int) (sum time.Duration, err error) {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if len(tasks) == 0 {
		return 0, fmt.Errorf("the processor time of process %d cannot be read: %v", pid, err)
	}
	for _, t := range tasks {
		text, _ := os.ReadFile(t)
		var ns int64
		fmt.Sscan(string(text), &ns)
		sum += time.Duration(ns)
	}
	for _, child := range children(pid) {
		if more, err := treeTime(child); err == nil {
			sum += more
		}
	}
	return sum, nil
}

// costRouter builds a router between a home and a far end that only takes
// packets, and plans its shaping with classes and without.
const costRouter = `set -e
for n in a r z; do ip netns add $n; done
ip link add lan netns r address 02:00:00:00:01:01 type veth peer name home netns a address 02:00:00:00:01:02
ip link add wan netns r address 02:00:00:00:02:01 type veth peer name far netns z address 02:00:00:00:02:02
ip -n a link set home up; ip -n z link set far up
ip -n r link set lo up; ip -n r link set lan up; ip -n r link set wan up
ip -n r addr add 192.168.9.1/24 dev lan; ip -n r addr add 198.51.100.1/24 dev wan
ip -n r neigh add 192.168.9.2 lladdr 02:00:00:00:01:02 dev lan nud permanent
ip -n r neigh add 198.51.100.2 lladdr 02:00:00:00:02:02 dev wan nud permanent
ip netns exec r sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward; echo 0 > /proc/sys/net/ipv4/conf/all/rp_filter
  nft add table ip nat; nft "add chain ip nat post { type nat hook postrouting priority 100; }"; nft add rule ip nat post oifname wan masquerade
  echo 1 > /proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal; echo 0 > /proc/sys/net/netfilter/nf_conntrack_checksum'
for c in on off; do
  ip netns exec r ` + lab.GuestBinary + ` plan --wan wan --lan lan --down 2gbit --up 2gbit --classes $c --json > /run/cost-$c.json
done
`

// forwardInGuest sends the packets of the connections through the router.
func forwardInGuest(b *testing.B) {
	run := func(script string) string {
		out, err := exec.Command("sh", "-c", script).CombinedOutput()
		if err != nil {
			b.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	run(costRouter)
	time.Sleep(2 * time.Second) // the links settle
	p := packets{b: b, home: opened(b, "a", "home"), far: opened(b, "z", "far"), router: 1}
	shape := func(classes string) {
		run("ip netns exec r " + lab.GuestBinary + " apply --yes --state-dir /run/cost /run/cost-" + classes + ".json")
	}
	shape("on")
	p.begin()
	forwarded := func() (wan, lan int) {
		fmt.Sscan(run("ip netns exec r cat /sys/class/net/wan/statistics/tx_packets /sys/class/net/lan/statistics/tx_packets"), &wan, &lan)
		return wan, lan
	}
	n := 0
	for range costTurns {
		for _, name := range []string{"aside", "without", "with"} {
			shape(map[bool]string{true: "on", false: "off"}[name == "with"])
			p.router = 1
			if name == "aside" {
				p.router = 9 // nobody's
			}
			wan, lan := forwarded()
			mark(b, n, name)
			p.carry()
			mark(b, n+1, name)
			n += 2
			wan2, lan2 := forwarded()
			want := costFlows * costRounds * 3 / 4
			if through := wan2-wan >= want && lan2-lan >= want; through == (name == "aside") {
				b.Fatalf("%s: %d and %d packets were forwarded, and %d are sent each way", name, wan2-wan, lan2-lan, want)
			}
		}
	}
}

// packets are those of the connections.
type packets struct {
	b         *testing.B
	home, far wire
	router    byte // the last byte of the MAC addresses that they are for
}

func (p *packets) up(i int, flags byte, payload int) []byte {
	return frame([6]byte{2, 0, 0, 0, 1, p.router}, [4]byte{192, 168, 9, 2}, [4]byte{198, 51, 100, 2}, uint16(10000+i), 443, flags, payload)
}

func (p *packets) down(i int, flags byte, payload int) []byte {
	return frame([6]byte{2, 0, 0, 0, 2, p.router}, [4]byte{198, 51, 100, 2}, [4]byte{198, 51, 100, 1}, 443, uint16(10000+i), flags, payload)
}

// turn sends what each connection sends in a turn, from both ends.
func (p *packets) turn(of func(i int) (homes, fars [][]byte)) {
	for i := 0; i < costFlows; i += 50 {
		var homes, fars [][]byte
		for k := i; k < i+50; k++ {
			h, f := of(k)
			homes, fars = append(homes, h...), append(fars, f...)
		}
		p.home.send(p.b, homes)
		p.far.send(p.b, fars)
		time.Sleep(2 * time.Millisecond) // as much as passes at 300 Mbit/s
	}
}

const (
	synFlag = 2
	pshFlag = 8
	ackFlag = 16
)

// begin opens the connections.
func (p *packets) begin() {
	p.turn(func(i int) (h, f [][]byte) { return [][]byte{p.up(i, synFlag, 0)}, nil })
	p.turn(func(i int) (h, f [][]byte) { return nil, [][]byte{p.down(i, synFlag|ackFlag, 0)} })
	p.turn(func(i int) (h, f [][]byte) { return [][]byte{p.up(i, ackFlag, 0)}, nil })
}

// carry sends the data and the acknowledgements of one turn.
func (p *packets) carry() {
	for round := range costRounds {
		p.turn(func(i int) (h, f [][]byte) {
			if i%2 == 0 {
				h = [][]byte{p.up(i, ackFlag|pshFlag, 1448)}
			} else {
				f = [][]byte{p.down(i, ackFlag|pshFlag, 1448)}
			}
			switch {
			case round%2 == 0:
			case i%2 == 0:
				f = [][]byte{p.down(i, ackFlag, 0)}
			default:
				h = [][]byte{p.up(i, ackFlag, 0)}
			}
			return h, f
		})
	}
}

// frame is one packet of TCP with timestamps, as Linux sends them.
func frame(mac [6]byte, src, dst [4]byte, sport, dport uint16, flags byte, payload int) []byte {
	p := make([]byte, 14+20+32+payload)
	copy(p, mac[:])
	copy(p[6:], []byte{2, 0, 0, 0, 9, 9, 8, 0})
	ip := p[14:]
	ip[0], ip[8], ip[9] = 0x45, 64, unix.IPPROTO_TCP
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
	tcp[12], tcp[13] = 8<<4, flags
	binary.BigEndian.PutUint16(tcp[14:], 65535)
	copy(tcp[20:], []byte{1, 1, 8, 10})
	return p
}

// A wire sends frames out of one interface.
type wire int

// opened returns the way out of an interface of another namespace.
func opened(b *testing.B, node, device string) wire {
	b.Helper()
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
		b.Fatalf("open %s in %s: %v", device, node, m.err)
	}
	return wire(m.fd)
}

// send hands over frames with one system call: a guest's are dear.
func (w wire) send(b *testing.B, frames [][]byte) {
	type message struct {
		header unix.Msghdr
		length uint32
		_      [4]byte
	}
	var messages []message
	for _, f := range frames {
		iov := &unix.Iovec{Base: &f[0]}
		iov.SetLen(len(f))
		m := message{}
		m.header.Iov = iov
		m.header.SetIovlen(1)
		messages = append(messages, m)
	}
	for len(messages) > 0 {
		n, _, e := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(w), uintptr(unsafe.Pointer(&messages[0])), uintptr(len(messages)), 0, 0, 0)
		if e != 0 {
			b.Fatalf("send: %v", e)
		}
		messages = slices.Delete(messages, 0, int(n))
	}
}
