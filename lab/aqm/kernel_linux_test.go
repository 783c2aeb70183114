package aqm_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"unbloat/lab/aqm"
	"unbloat/testkit/labtest"
	"unbloat/unit"
)

// These tests give the same packets to a real kernel's queue, in the lab's
// virtual time, and to package aqm, and compare the fate of each packet.
//
// Frames leave one end of a veth pair, which has the queue under test. The
// sender reads the clock for each. The kernel stamps them at the other end,
// where they arrive at the instant in which they are dequeued.

// linkRate is the rate of the queue's link, and kernelSeconds how long packets
// are sent.
const (
	linkRate      = 5 * unit.MbitPerSecond
	kernelSeconds = 20
)

// An arrival is a frame that is sent. Its number is its index in the list.
type arrival struct {
	at   unit.Instant // kernel's monotonic time of sending
	flow int
	size int
	ect  bool
	dscp uint8
}

// A departure is a frame that left the queue.
type departure struct {
	id int
	at unit.Instant
	ce bool
}

// arrivals draws flows that come and go: calls, full packets at steady rates,
// and bursts. Together they send about one and a half times the rate.
func arrivals(seed uint64, flows int) []arrival {
	random := rand.New(rand.NewPCG(seed, 7))
	var out []arrival
	for f := range flows {
		size := []int{214, 1514, 1514, 600, 1514, 100}[f%6]
		share := []float64{0.02, 0.5, 0.25, 0.1, 0.4, 0.02}[f%6] * 9 / float64(flows)
		gap := float64(size) * 8 / (share * float64(linkRate)) * 1e9
		on, dscp := true, []uint8{46, 0, 8, 34, 0, 0}[f%6]
		for at, turn := 0.0, random.Float64()*2e9; at < kernelSeconds*1e9; at += gap * (0.5 + random.Float64()) {
			for at > turn {
				on, turn = !on, turn+(0.3+random.ExpFloat64())*1e9
			}
			if !on && share > 0.05 {
				continue
			}
			burst := 1
			if f%6 == 4 && random.IntN(10) == 0 {
				burst = 1 + random.IntN(30)
			}
			for range burst {
				out = append(out, arrival{at: unit.Instant(at), flow: f, size: size, ect: f%2 == 1, dscp: dscp})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b arrival) int { return int(a.at - b.at) })
	return out
}

// frame returns an Ethernet frame with a UDP datagram that contains its number.
func frame(a arrival, id int) []byte {
	b := make([]byte, a.size)
	copy(b, []byte{2, 0, 0, 0, 9, 2, 2, 0, 0, 0, 9, 1, 8, 0})
	ip := b[14:]
	ip[0], ip[1], ip[8], ip[9] = 0x45, a.dscp<<2, 64, syscall.IPPROTO_UDP
	if a.ect {
		ip[1] |= 2
	}
	binary.BigEndian.PutUint16(ip[2:], uint16(a.size-14))
	copy(ip[12:], []byte{10, 9, 0, byte(host(a.flow))})
	copy(ip[16:], []byte{10, 9, 1, byte(1 + a.flow)})
	sum := uint32(0)
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum+sum>>16))
	udp := ip[20:]
	binary.BigEndian.PutUint16(udp, uint16(10000+a.flow))
	binary.BigEndian.PutUint16(udp[2:], 9)
	binary.BigEndian.PutUint16(udp[4:], uint16(a.size-34))
	binary.BigEndian.PutUint32(udp[8:], uint32(id))
	return b
}

// host returns which of three machines sends a flow.
func host(flow int) int { return 1 + flow%3 }

// Constants of linux/socket.h and linux/time.h that package syscall lacks.
const (
	soSndBufForce, soRcvBufForce, soPriority, soTimestampNS = 32, 33, 12, 35
	clockRealtime, clockMonotonic, timerAbstime             = 0, 1, 1
)

func read(t *testing.T, clock uintptr) unit.Instant {
	var ts syscall.Timespec
	if _, _, e := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clock, uintptr(unsafe.Pointer(&ts)), 0); e != 0 {
		t.Fatal(e)
	}
	return unit.Instant(ts.Nano())
}

func packetSocket(t *testing.T, dev string, protocol uint16, options map[int]int) int {
	t.Helper()
	i, err := net.InterfaceByName(dev)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := syscall.Socket(syscall.AF_PACKET, syscall.SOCK_RAW, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	for o, v := range options {
		if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, o, v); err != nil {
			t.Fatalf("socket option %d = %d: %v", o, v, err)
		}
	}
	if err := syscall.Bind(fd, &syscall.SockaddrLinklayer{Protocol: protocol, Ifindex: i.Index}); err != nil {
		t.Fatal(err)
	}
	return fd
}

func run(t *testing.T, command string) {
	t.Helper()
	argv := strings.Fields(command)
	if out, err := exec.CommandContext(t.Context(), argv[0], argv[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", command, err, out)
	}
}

// throughKernel sends the arrivals through the qdiscs that the commands make,
// and sets the time of each arrival. It returns the frames that left, in order.
// If buckets is not 0, flow f is put into the bucket f modulo buckets of the
// qdisc with handle 10, instead of the one by the kernel's own hash.
func throughKernel(t *testing.T, list []arrival, buckets int, commands ...string) []departure {
	t.Helper()
	run(t, "ip link add qa address 02:00:00:00:09:01 type veth peer name qb address 02:00:00:00:09:02")
	defer run(t, "ip link del qa")
	for _, dev := range []string{"qa", "qb"} {
		run(t, "ip link set "+dev+" addrgenmode none arp off up")
	}
	for _, c := range commands {
		run(t, c)
	}
	in := packetSocket(t, "qb", 0x0300, map[int]int{soRcvBufForce: 1 << 29, soTimestampNS: 1}) // ETH_P_ALL
	out := map[int]int{}
	for _, a := range list {
		if _, ok := out[a.flow]; !ok {
			options := map[int]int{soSndBufForce: 1 << 29}
			if buckets > 0 {
				options[soPriority] = 0x10<<16 | (a.flow%buckets + 1)
			}
			out[a.flow] = packetSocket(t, "qa", 0, options)
		}
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	before, wall, after := read(t, clockMonotonic), read(t, clockRealtime), read(t, clockMonotonic)
	offset := wall - (before+after)/2 // both readings take the same time
	begin := after + 1e9
	sleepUntil := func(at unit.Instant) {
		ts := syscall.NsecToTimespec(int64(at))
		for {
			_, _, e := syscall.Syscall6(syscall.SYS_CLOCK_NANOSLEEP, clockMonotonic, timerAbstime, uintptr(unsafe.Pointer(&ts)), 0, 0, 0)
			if e != syscall.EINTR {
				return
			}
		}
	}
	for id := range list {
		b := frame(list[id], id)
		sleepUntil(begin + list[id].at)
		list[id].at = read(t, clockMonotonic)
		if _, err := syscall.Write(out[list[id].flow], b); err != nil && err != syscall.ENOBUFS { // ENOBUFS: dropped at once
			t.Fatalf("send frame %d: %v", id, err)
		}
	}
	sleepUntil(read(t, clockMonotonic) + 10e9) // for the packets that still wait
	return received(t, in, offset)
}

// received reads the frames that arrived, with the kernel's time stamps.
func received(t *testing.T, in int, offset unit.Instant) []departure {
	t.Helper()
	var out []departure
	b, oob := make([]byte, 2048), make([]byte, 128)
	for {
		n, k, _, _, err := syscall.Recvmsg(in, b, oob, syscall.MSG_DONTWAIT)
		if err == syscall.EAGAIN {
			return out
		}
		if err != nil || n < 14+20+12 {
			t.Fatalf("receive: %d bytes, %v", n, err)
		}
		controls, err := syscall.ParseSocketControlMessage(oob[:k])
		if err != nil || len(controls) != 1 || len(controls[0].Data) < 16 {
			t.Fatalf("no stamp: %v, %v", controls, err)
		}
		stamp := controls[0].Data
		at := unit.Instant(int64(binary.NativeEndian.Uint64(stamp))*1e9 + int64(binary.NativeEndian.Uint64(stamp[8:])))
		out = append(out, departure{int(binary.BigEndian.Uint32(b[14+20+8:])), at - offset, b[15]&3 == 3})
	}
}

// packetOf returns an arrival as a packet of package aqm.
func packetOf(a arrival, id int) aqm.Packet {
	p := aqm.Packet{ID: uint64(id), Size: unit.Size(a.size), Flow: uint32(a.flow), DSCP: a.dscp,
		Source: uint32(host(a.flow)), Destination: uint32(1000 + a.flow)}
	if a.ect {
		p.ECN = aqm.ECT
	}
	return p
}

// throughQueue gives the arrivals to a queue, and dequeues at the times at
// which the kernel did. A frame that arrived at such a time is enqueued after
// the dequeue, unless it is the one that left: the kernel's dequeue was due
// before the sender had read the clock.
func throughQueue(q aqm.Queue, list []arrival, kernel []departure) []departure {
	var out []departure
	next := 0
	for _, d := range kernel {
		for ; next < len(list) && (list[next].at < d.at || next <= d.id); next++ {
			q.Enqueue(list[next].at, packetOf(list[next], next))
		}
		if p, ok := q.Dequeue(d.at); ok {
			out = append(out, departure{int(p.ID), d.at, p.ECN == aqm.CE})
		}
	}
	for ; next < len(list); next++ {
		q.Enqueue(list[next].at, packetOf(list[next], next))
	}
	return out
}

// agree counts the packets with the same fate, mark and place in the order.
func agree(list []arrival, kernel, ours []departure) (same int, first string) {
	fate := func(out []departure) []departure {
		all := make([]departure, len(list)) // place in the order by id, from 1; 0: dropped
		for place, d := range out {
			all[d.id] = departure{place + 1, d.at, d.ce}
		}
		return all
	}
	a, b := fate(kernel), fate(ours)
	for id := range list {
		if a[id].id == b[id].id && a[id].ce == b[id].ce {
			same++
		} else if first == "" {
			first = fmt.Sprintf("packet %d of flow %d at %d: kernel %+v, aqm %+v", id, list[id].flow, list[id].at, a[id], b[id])
		}
	}
	return same, first
}

func marks(out []departure) (n int) {
	for _, d := range out {
		if d.ce {
			n++
		}
	}
	return n
}

// besideCake is the guest that the tests share.
func besideCake() labtest.Options {
	return labtest.Options{With: "TestAgainstKernelCoDel|TestAgainstKernelCake"}
}

// sch_codel and sch_fq_codel of the lab's kernel drop, mark and order packets
// as package aqm does: at least 99.9 % have the same fate.
func TestAgainstKernelCoDel(t *testing.T) {
	if !labtest.Inside(t, besideCake()) {
		return
	}
	codel := func(change func(*aqm.CoDelParams)) func() (aqm.Queue, error) {
		return func() (aqm.Queue, error) {
			p := aqm.DefaultCoDel(aqm.Linux73)
			change(&p)
			return aqm.NewCoDel(p)
		}
	}
	fqCodel := func(change func(*aqm.FQCoDelParams)) func() (aqm.Queue, error) {
		return func() (aqm.Queue, error) {
			p := aqm.DefaultFQCoDel(aqm.Linux73)
			change(&p)
			return aqm.NewFQCoDel(p)
		}
	}
	for seed, c := range []struct {
		qdisc          string
		flows, buckets int
		make           func() (aqm.Queue, error)
		byDay          bool // most of its parameters are not the usual ones
	}{
		{"codel", 4, 1, codel(func(p *aqm.CoDelParams) {}), false},
		{"codel ecn limit 60", 6, 1, codel(func(p *aqm.CoDelParams) { p.ECN, p.Packets = true, 60 }), true},
		{"fq_codel", 9, 1024, fqCodel(func(p *aqm.FQCoDelParams) {}), false},
		{"fq_codel noecn flows 8 quantum 300 target 15ms interval 60ms", 20, 8, fqCodel(func(p *aqm.FQCoDelParams) {
			p.CoDel.ECN, p.Flows, p.Quantum = false, 8, 300
			p.CoDel.Target, p.CoDel.Interval = 15*time.Millisecond, 60*time.Millisecond
		}), true},
		{"fq_codel limit 40 ce_threshold 30ms", 12, 1024, fqCodel(func(p *aqm.FQCoDelParams) {
			p.CoDel.Packets, p.CoDel.CEThreshold = 40, 30*time.Millisecond
		}), false},
	} {
		if !c.byDay && !labtest.Long() {
			continue
		}
		t.Run(strings.ReplaceAll(c.qdisc, " ", "_"), func(t *testing.T) {
			q, err := c.make()
			if err != nil {
				t.Fatal(err)
			}
			list := arrivals(uint64(seed), c.flows)
			kernel := throughKernel(t, list, c.buckets,
				"tc qdisc add dev qa root handle 1: htb default 1",
				fmt.Sprintf("tc class add dev qa parent 1: classid 1:1 htb rate %dbit burst 1600 cburst 1600", int64(linkRate)),
				"tc qdisc add dev qa parent 1:1 handle 10: "+c.qdisc)
			ours := throughQueue(q, list, kernel)
			same, first := agree(list, kernel, ours)
			t.Logf("seed %d: %d of %d packets agree (%.3f %%); kernel dropped %d and marked %d, aqm %d and %d",
				seed, same, len(list), 100*float64(same)/float64(len(list)), len(list)-len(kernel), marks(kernel), len(list)-len(ours), marks(ours))
			if float64(same) < 0.999*float64(len(list)) {
				t.Errorf("fewer than 99.9 %% agree; first: %s", first)
			}
			if len(list)-len(kernel) < 50 {
				t.Errorf("the kernel dropped only %d: nothing was tested", len(list)-len(kernel))
			}
		})
	}
}

// cakeSeeds is the number of seeds with which package aqm's CAKE is run. CAKE
// uses random numbers (in BLUE, and to round shared quanta), and so does the
// kernel's: in ingress mode, with several bulk flows per host, they alone
// change a flow's throughput by 2.5 %. So the kernel's single run is compared
// with the nearest of ours.
const cakeSeeds = 10

// The lab kernel's sch_cake and package aqm's drop the same number of packets
// and give each flow the same throughput, within 2 %.
func TestAgainstKernelCake(t *testing.T) {
	if !labtest.Inside(t, besideCake()) {
		return
	}
	for seed, c := range []struct {
		qdisc string
		flows int
		set   func(*aqm.CakeParams)
		byDay bool
	}{
		{"besteffort flows", 9, func(p *aqm.CakeParams) { p.Tins, p.Isolation = aqm.BestEffort, aqm.IsolateFlows }, false},
		{"besteffort triple-isolate ingress rtt 50ms", 12, func(p *aqm.CakeParams) {
			p.Tins, p.Ingress = aqm.BestEffort, true
			p.Interval, p.Target = 50*time.Millisecond, 2500*time.Microsecond
		}, false},
		{"diffserv4 dual-srchost overhead 44 atm", 12, func(p *aqm.CakeParams) {
			p.Tins, p.Isolation = aqm.Diffserv4, aqm.DualSource
			p.Framing = aqm.Framing{Replaced: 14, Overhead: 44, Cells: aqm.ATM}
		}, true},
	} {
		if !c.byDay && !labtest.Long() {
			continue
		}
		t.Run(strings.ReplaceAll(c.qdisc, " ", "_"), func(t *testing.T) {
			list := arrivals(uint64(seed)+100, c.flows)
			kernel := throughKernel(t, list, 0, fmt.Sprintf("tc qdisc add dev qa root cake bandwidth %dbit %s", int64(linkRate), c.qdisc))
			dropped, byFlow := len(list)-len(kernel), bytesByFlow(list, kernel, c.flows)
			t.Logf("%d packets; the kernel dropped %d and marked %d; bytes of each flow %v", len(list), dropped, marks(kernel), byFlow)
			drops := make([]int, 0, cakeSeeds)
			bytes := make([][]int, c.flows)
			for k := range uint64(cakeSeeds) {
				p := aqm.DefaultCake(linkRate)
				p.Seed = k
				c.set(&p)
				q, err := aqm.NewCake(p)
				if err != nil {
					t.Fatal(err)
				}
				ours := byItself(q, list)
				same, _ := agree(list, kernel, ours)
				drops = append(drops, len(list)-len(ours))
				for f, b := range bytesByFlow(list, ours, c.flows) {
					bytes[f] = append(bytes[f], b)
				}
				if k == 0 {
					t.Logf("aqm dropped %d and marked %d; %.2f %% have the same fate and place", drops[0], marks(ours), 100*float64(same)/float64(len(list)))
				}
			}
			if dropped < 200 || !near(dropped, drops) {
				t.Errorf("drops: %d in the kernel, %v in aqm", dropped, drops)
			}
			for f := range bytes {
				if !near(byFlow[f], bytes[f]) {
					t.Errorf("flow %d: %d bytes through the kernel, %v through aqm", f, byFlow[f], bytes[f])
				}
			}
		})
	}
}

// byItself gives the arrivals to a queue that shapes.
func byItself(q aqm.Queue, list []arrival) []departure {
	var out []departure
	until := func(end unit.Instant) {
		now := unit.Instant(0)
		for {
			at, ok := q.Next(now)
			if !ok || at > end {
				return
			}
			now = at
			if p, ok := q.Dequeue(now); ok {
				out = append(out, departure{int(p.ID), now, p.ECN == aqm.CE})
			} else {
				now++
			}
		}
	}
	for id, a := range list {
		until(a.at - 1)
		q.Enqueue(a.at, packetOf(a, id))
		until(a.at)
	}
	until(list[len(list)-1].at + 20e9)
	return out
}

// near reports whether one of the counts is within 2 % of want.
func near(want int, got []int) bool {
	return slices.ContainsFunc(got, func(g int) bool { return max(want-g, g-want)*50 <= want })
}

func bytesByFlow(list []arrival, out []departure, flows int) []int {
	bytes := make([]int, flows)
	for _, d := range out {
		bytes[list[d.id].flow] += list[d.id].size
	}
	return bytes
}
