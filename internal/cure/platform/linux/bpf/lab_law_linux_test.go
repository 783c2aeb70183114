package bpf_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"unbloat/internal/cure/classify"
	"unbloat/internal/cure/platform/linux/bpf"
	"unbloat/testkit/await"
	"unbloat/testkit/labtest"
	"unbloat/unit"
)

const (
	lawPackets = 120_000 // with UNBLOAT_LONG a million
	lawMajor   = 0xb10a
	lawChecked = 250_000 // of the million at which a kernel refuses a program
)

// A seen is struct __sk_buff as a test run takes and returns it.
type seen struct {
	Len, PktType, Mark, QueueMapping, Protocol, VLANPresent, VLANTCI, VLANProto uint32
	Priority, IngressIfindex, Ifindex, TCIndex                                  uint32
	CB                                                                          [5]uint32
	Rest                                                                        [32]uint32
}

// lawPolicy is a random one, with limits so low that a short walk exceeds them all.
func lawPolicy(rng *rand.Rand) classify.Policy {
	var lanes []classify.Lane
	for i, c := range classify.AllClasses() {
		lanes = append(lanes, classify.Lane{Name: string(c), Class: c, Tin: []uint8{8, 6, 5, 1}[i]})
	}
	lanes = append(lanes, classify.Lane{Name: classify.AcksLane, Class: classify.Interactive, Tin: 7})
	l := classify.Limits{
		CalmPackets: 10 + rng.IntN(100), CalmRate: unit.Rate(8000 + rng.IntN(200_000)),
		CalmOfHost: unit.Rate(16000 + rng.IntN(400_000)), CalmOfUp: unit.Rate(16000 + rng.IntN(400_000)),
		SmallPacket: []unit.Size{64, 127, 200, 255, 511, 511}[rng.IntN(6)],
		FirstBytes:  unit.Size(rng.IntN(6000)), FirstUp: unit.Size(rng.IntN(6000)),
		HeavyOfHost: 1 + rng.IntN(4), Peers: 1 + rng.IntN(3), Names: 1 + rng.IntN(6), Acks: rng.IntN(30), Flows: 64,
	}
	if rng.IntN(4) > 0 { // the bucket of a steady flow holds 64 kB at least
		l.Steady, l.SteadyUp = unit.Rate(100_000+rng.IntN(600_000)), unit.Rate(rng.IntN(2)*(100_000+rng.IntN(600_000)))
		l.SteadyOfHost, l.SteadyOfHostUp = unit.Rate(100_000+rng.IntN(900_000)), unit.Rate(100_000+rng.IntN(900_000))
	}
	l.HeavyBytes = max(l.FirstBytes, l.FirstUp) + unit.Size(rng.IntN(20000))
	l.LongBytes = l.HeavyBytes + unit.Size(rng.IntN(60000))
	if rng.IntN(2) == 0 { // most flows are not bulk
		l.LongBytes, l.HeavyOfHost = 100*unit.MB, 100
	}
	return classify.Policy{Up: lanes, Down: lanes, Named: rng.IntN(3) == 0, Limits: l,
		Trust: classify.Trust{TrustHome: rng.IntN(4) == 0, TrustFar: rng.IntN(4) == 0}}
}

// A lawFlow is one connection of the walk.
type lawFlow struct {
	packet classify.Packet // a template
	fromUs bool            // the home began
	oneWay bool            // nobody answers
	turns  int
}

func lawFlows(rng *rand.Rand, n int) []*lawFlow {
	ports := []uint16{53, 80, 443, 853, 5004, 6881, 6881, 6881, 19305}
	var out []*lawFlow
	for i := range n {
		f := &lawFlow{fromUs: rng.IntN(4) > 0, oneWay: rng.IntN(6) == 0}
		p := &f.packet
		p.Protocol = []uint8{classify.TCP, classify.TCP, classify.TCP, classify.UDP, classify.UDP, classify.UDP, classify.ICMP, classify.ESP}[rng.IntN(8)]
		host := byte(2 + rng.IntN(6))
		if rng.IntN(3) == 0 {
			if p.Protocol == classify.ICMP {
				p.Protocol = classify.ICMPv6
			}
			p.Home, p.Far = netip.AddrFrom16([16]byte{0: 0xfd, 15: host}), netip.AddrFrom16([16]byte{0: 0x20, 1: 1, 14: byte(i >> 8), 15: byte(i)})
		} else {
			p.Home, p.Far = netip.AddrFrom4([4]byte{192, 168, 1, host}), netip.AddrFrom4([4]byte{203, 0, byte(i >> 8), byte(i)})
		}
		if p.Protocol == classify.TCP || p.Protocol == classify.UDP {
			p.HomePort, p.FarPort = ports[rng.IntN(len(ports))], ports[rng.IntN(len(ports))]
		}
		p.Machine = uint16(host) // used where machines are numbered
		out = append(out, f)
	}
	return out
}

// next returns the flow's next packet.
func (f *lawFlow) next(rng *rand.Rand, size unit.Size, numbered bool) classify.Packet {
	p := f.packet
	back := !f.oneWay && (f.turns > 0 && rng.IntN(3) == 0 || f.turns == 1 && rng.IntN(4) > 0)
	f.turns++
	p.Direction = classify.Up
	if f.fromUs == back {
		p.Direction = classify.Down
	}
	if p.Direction == classify.Down || !numbered {
		p.Machine = 0 // it is learned, or nobody's
	}
	if rng.IntN(6) == 0 {
		p.DSCP = uint8(rng.IntN(64))
	}
	header := unit.Size(20)
	if !p.Home.Is4() {
		header = 40
	}
	switch p.Protocol {
	case classify.TCP:
		p.Flags = uint8(rng.IntN(64))
		if rng.IntN(3) > 0 {
			p.Flags = classify.ACK
		}
		header += 20
		if p.SACK = rng.IntN(3) == 0; p.SACK {
			header += 12
		}
	case classify.UDP:
		header += 8
	}
	p.Length = max(size, header)
	return p
}

// frame encodes a packet as far as its headers go; the IP header tells its length.
func frame(p classify.Packet) []byte {
	b := make([]byte, 14, 128)
	from, to, sport, dport := p.Home, p.Far, p.HomePort, p.FarPort
	if p.Direction == classify.Down {
		from, to, sport, dport = to, from, dport, sport
	}
	ip := make([]byte, 20)
	if p.Home.Is4() {
		binary.BigEndian.PutUint16(b[12:], 0x0800)
		ip[0], ip[1], ip[8], ip[9] = 0x45, p.DSCP<<2, 64, p.Protocol
		binary.BigEndian.PutUint16(ip[2:], uint16(p.Length))
		copy(ip[12:], from.AsSlice())
		copy(ip[16:], to.AsSlice())
	} else {
		binary.BigEndian.PutUint16(b[12:], 0x86dd)
		ip = make([]byte, 40)
		ip[0], ip[1] = 0x60|p.DSCP>>2, p.DSCP<<6
		binary.BigEndian.PutUint16(ip[4:], uint16(p.Length-40))
		ip[6], ip[7] = p.Protocol, 64
		copy(ip[8:], from.AsSlice())
		copy(ip[24:], to.AsSlice())
	}
	b = append(b, ip...)
	th := make([]byte, 32)
	binary.BigEndian.PutUint16(th, sport)
	binary.BigEndian.PutUint16(th[2:], dport)
	switch p.Protocol {
	case classify.TCP:
		th[12], th[13] = 5<<4, p.Flags
		if p.SACK {
			th[12] = 8 << 4
			copy(th[20:], []byte{1, 1, 5, 10})
		}
	case classify.UDP:
		th = th[:8]
	}
	return append(b, th...)
}

// TestProgramDecidesAsTableInLab compares the BPF program with package classify. On a real kernel each packet of random walks gets the same lane
// for the same reason: with meters, crowds, swarms, marks, acknowledgements that
// are left out, tables that are full, and machines by address or by number.
func TestProgramDecidesAsTableInLab(t *testing.T) {
	await.NotShort(t)
	if !labtest.Inside(t, labtest.Options{}) {
		return
	}
	packets, worlds := lawPackets, uint64(8)
	if labtest.Long() {
		packets, worlds = 1_000_000, 20
	}
	seed := labtest.Seed(t)
	met := map[string]int{}
	for i := range worlds {
		lawWorld(t, seed*1000+i, packets/int(worlds), met)
		if t.Failed() {
			return
		}
	}
	t.Logf("what decided: %v", met)
	for _, code := range classify.Codes() {
		if met[fmt.Sprint(code)] == 0 {
			t.Errorf("the walks never met reason %d", code)
		}
	}
	for _, what := range []string{"dropped", "numbered"} {
		if met[what] == 0 {
			t.Errorf("the walks never met %s", what)
		}
	}
}

// lawWorld walks random packets through one table.
func lawWorld(t *testing.T, seed uint64, packets int, met map[string]int) {
	rng := rand.New(rand.NewPCG(seed, 1))
	t.Logf("walk with seed %d", seed)
	policy := lawPolicy(rng)
	policy.Varies = seed%2 == 1
	places := classify.Places{Flows: 4 << rng.IntN(5), Machines: 1 << rng.IntN(4), Ports: 1 << rng.IntN(5)}
	setting := classify.Setting{Major: lawMajor, Places: places, Seed: rng.Uint32(), Numbered: rng.IntN(2) == 0}
	spec, err := bpf.Prepared(policy, setting)
	if err != nil {
		t.Fatal(err)
	}
	var o bpf.Objects
	if err := spec.LoadAndAssign(&o, &ebpf.CollectionOptions{Programs: ebpf.ProgramOptions{LogLevel: ebpf.LogLevelStats}}); err != nil {
		var refused *ebpf.VerifierError
		if errors.As(err, &refused) {
			t.Logf("%+v", refused)
		}
		t.Fatalf("load the program: %v", err)
	}
	defer o.Close()
	for _, p := range []*ebpf.Program{o.Up, o.Down} {
		var n int
		_, stats, _ := strings.Cut(p.VerifierLog, "processed ")
		if _, err := fmt.Sscan(stats, &n); err != nil || n > lawChecked {
			t.Errorf("to load it the kernel walked more than %d instructions, or did not say: %s", lawChecked, p.VerifierLog)
		}
	}
	table := classify.New(policy, setting)
	flows := lawFlows(rng, 200)
	now := unit.Instant(time.Hour)
	set := func() {
		if err := errors.Join(o.ClockOfTest.Put(uint32(0), classify.Tick(now)), o.ClockOfTest.Put(uint32(1), classify.Moment(now))); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	walk := func(p classify.Packet) bool {
		in := seen{Mark: uint32(p.Machine)}
		program := o.Up
		if p.Direction == classify.Down {
			program = o.Down
		}
		named := uint32(0x100 | rng.IntN(256)) // as nftables' rules may have left it
		if rng.IntN(3) > 0 {
			named = 0
		}
		if p.Direction == classify.Up {
			in.Priority = lawMajor<<16 | named
			if named > 0 {
				p.Named, p.NamedDown = uint8(named&15), uint8(named>>4&15)
			}
			if rng.IntN(4) == 0 { // another shaper's
				in.Priority, p.Named, p.NamedDown = (lawMajor+1)<<16|named, 0, 0
			}
		} else {
			in.Mark = rng.Uint32()
		}
		d := table.Decide(now, &p)
		var out seen
		got, err := program.Run(&ebpf.RunOptions{Data: frame(p), Context: in, ContextOut: &out})
		if err != nil {
			t.Fatalf("run the program: %v", err)
		}
		code := d.Code
		want := uint32(0)
		if d.Lane != nil && !d.Drop {
			want = lawMajor<<16 | uint32(d.Lane.Tin)
		}
		gotTin := out.Priority
		if got == 0 {
			gotTin = 0
		}
		if gotTin != want || out.CB[0] != uint32(code) || want != 0 && got>>16 != wantHost(p) {
			t.Errorf("seed %d, packet %d: %+v: the program says priority %x, reason %d, classid %x; the table %x by %d", seed, n, p, gotTin, out.CB[0], got, want, code)
			return false
		}
		met[fmt.Sprint(code)]++
		if d.Drop {
			met["dropped"]++
		}
		if p.Machine != 0 {
			met["numbered"]++
		}
		n++
		return true
	}
	for n < packets {
		if n >= len(flows) && rng.IntN(8) == 0 && !lawCalls(rng, flows, &now, set, walk, setting.Numbered) {
			return
		}
		f, most := flows[n%len(flows)], 1 // first one packet of each, like a swarm
		if n >= len(flows) {
			f, most = flows[rng.IntN(len(flows))], []int{60, 60, 300}[rng.IntN(3)]
			now = now.Add([]time.Duration{0, 0, 0, time.Second / 4, 3 * time.Second, 11 * time.Second, 61 * time.Second, 400 * time.Second}[rng.IntN(8)])
		}
		beside := f // another of its machine, now and then, so that one waits for the other
		for range 20 {
			if g := flows[rng.IntN(len(flows))]; most > 1 && g.packet.Home == f.packet.Home && g.packet.Protocol == f.packet.Protocol {
				beside = g
			}
		}
		size := unit.Size([]int{29, 52, 60, 100, 130, 200, 300, 511, 512, 900, 1500, 1500}[rng.IntN(12)])
		gap := []time.Duration{0, 10 * time.Millisecond, 30 * time.Millisecond}[rng.IntN(3)]
		for range 1 + rng.IntN(most) {
			if gap > 0 || n < 2*len(flows) || most > 1 {
				set()
			}
			if rng.IntN(4) == 0 {
				f, beside = beside, f
			}
			length := min(size+unit.Size(rng.IntN(2)), 1500)
			if n%3 == 0 && rng.IntN(6) == 0 { // sound between pictures
				length = min(size, 130)
			}
			if p := f.next(rng, length, setting.Numbered); !walk(p) {
				return
			}
			now = now.Add(gap)
		}
	}
}

// lawCalls has a flow of datagrams take more than its bound, then one of its machine that
// speaks, and then the first again. It reports false if a packet was decided otherwise.
func lawCalls(rng *rand.Rand, flows []*lawFlow, now *unit.Instant, set func(), walk func(classify.Packet) bool, numbered bool) bool {
	var two []*lawFlow
	for _, f := range flows[rng.IntN(len(flows)/2):] {
		if f.packet.Protocol == classify.UDP && !f.oneWay && (len(two) == 0 || two[0].packet.Home == f.packet.Home) && len(two) < 2 && f.packet.FarPort > 1000 && f.packet.HomePort != 6881 {
			two = append(two, f)
		}
	}
	if len(two) < 2 {
		return true
	}
	direction := []classify.Direction{classify.Up, classify.Down}[rng.IntN(2)]
	burst := func(f *lawFlow, speaks bool) bool {
		for i := range 160 {
			p := f.packet
			p.Direction, p.Length = direction, 1500
			if i%40 == 0 { // an answer
				p.Direction = map[classify.Direction]classify.Direction{classify.Up: classify.Down, classify.Down: classify.Up}[direction]
			}
			if p.Direction == classify.Down || !numbered {
				p.Machine = 0
			}
			if speaks && i%4 == 1 {
				p.Length = 180
			} else if i%9 == 5 {
				p.Length = 90
			}
			if set(); !walk(p) {
				return false
			}
			*now = now.Add(10 * time.Millisecond)
		}
		return true
	}
	return burst(two[0], false) && burst(two[1], true) && burst(two[1], true) && func() bool { *now = now.Add(2 * time.Second); return true }() && burst(two[0], false) && burst(two[0], true)
}

// wantHost is CAKE's host: the machine's number; all ones say nothing of it.
func wantHost(p classify.Packet) uint32 {
	if p.Machine != 0 {
		return uint32(p.Machine)
	}
	return 0xffff
}
