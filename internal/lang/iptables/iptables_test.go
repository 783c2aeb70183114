package iptables_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"unbloat/internal/classify"
	"unbloat/internal/lang/iptables"
	"unbloat/internal/plan"
	fake "unbloat/internal/platform/fake/iptables"
	"unbloat/unit"
)

// aPlan returns a plan with classes for 30/5 Mbit/s, with the limits scaled down by
// little, so that few packets meet each of them.
func aPlan(little int64, rules ...plan.Rule) plan.Plan {
	shares := []plan.Share{{Class: plan.Voice, Tin: 8}, {Class: plan.Interactive, Tin: 6}, {Class: plan.Normal, Tin: 5}, {Class: plan.Bulk, Tin: 1}}
	of := func(r unit.Rate) unit.Rate { return max(r/unit.Rate(little), 8000) }
	return plan.Plan{Platform: "clearos", WAN: "wan", LAN: "lan",
		Up: &plan.Shaper{Device: "wan", AQM: plan.FQCoDel}, Down: &plan.Shaper{Device: "lan", AQM: plan.FQCoDel},
		Classes: &plan.Classes{Up: shares, Down: shares, Rules: rules, Behaviour: plan.Behaviour{
			CalmPackets: int(max(160/little, 2)), CalmRate: of(200_000), CalmOfHost: of(400_000), CalmOfUp: of(400_000),
			Steady: of(11_250_000), SteadyUp: of(1_875_000), SteadyOfHost: of(13_500_000), SteadyOfHostUp: of(2_250_000),
			SmallPacket: 511, FirstBytes: unit.Size(75_000 / little), FirstUp: unit.Size(16_000 / little), HeavyBytes: unit.Size(512_000 / little),
			LongBytes: unit.Size(75_000_000 / little / little), HeavyOfHost: int(max(48/little, 2)), Peers: int(max(20/little, 2)), Names: int(max(60/little, 2)), Flows: 8192}}}
}

// standIn returns a table with the rules of a plan.
func standIn(t *testing.T, p plan.Plan) *fake.Table {
	t.Helper()
	table := fake.New()
	if err := table.Restore(iptables.Render(p, "b10a:").Restored()); err != nil {
		t.Fatalf("%v\n%s", err, iptables.Render(p, "b10a:").Restored())
	}
	return table
}

// someRules are rules of each kind that can be written.
func someRules() []plan.Rule {
	return []plan.Rule{
		{Class: plan.Voice, Protocol: "udp", FarPort: []plan.PortRange{{From: 19302, To: 19309}}},
		{Class: plan.Bulk, Port: []plan.PortRange{{From: 1024, To: 1030}}},
		{Class: plan.Interactive, Home: []string{"192.168.0.3", "192.168.0.4"}, Far: []string{"203.0.113.0/30"}},
		{Class: plan.Interactive, DSCP: []string{"ef", "af41"}},
		{Class: plan.Normal, Protocol: "tcp", HomePort: []plan.PortRange{{From: 5000, To: 5000}}, Below: 4000},
		{Class: plan.Bulk, Direction: plan.DirectionUp, Protocol: "esp"},
	}
}

// TestRulesDecideAlike walks random packets through the table of rules over Hashes
// and through what is rendered of it, as the stand-in reads it. Both give each the
// same class, and leave the same mark on its connection.
func TestRulesDecideAlike(t *testing.T) {
	packets := 60_000
	if os.Getenv("UNBLOAT_LONG") != "" {
		packets = 2_000_000
	}
	for _, seed := range []uint64{1, 2, 3, 4} {
		little := []int64{1, 4, 20, 60}[seed-1]
		p := aPlan(little)
		if seed%2 == 0 {
			p = aPlan(little, someRules()...)
		}
		if seed == 4 { // no steady flows
			p.Classes.Behaviour.Steady, p.Classes.Behaviour.SteadyUp = 0, 0
		}
		if seed == 3 {
			p.Classes.Behaviour.SteadyUp = 16_000
		}
		t.Logf("seed %d, limits 1/%d", seed, little)
		random := rand.New(rand.NewPCG(seed, 15))
		table, rendered := classify.Build(iptables.Policy(p)), standIn(t, p)
		memory := classify.NewHashes(table)
		walks := newWalks(random)
		met := map[classify.Code]int{}
		for range packets / 4 {
			now, packet, mine, theirs := walks.next()
			got := table.Explain(now, &packet, mine, memory)
			shown := walks.shown(packet)
			out := rendered.Walk(time.Duration(now), "POSTROUTING", &shown, theirs)
			want := ""
			if got.Lane != nil {
				want = fmt.Sprintf("b10a:%x", 0x10+int(got.Lane.Tin))
			}
			if out.Class != want || out.Drop || mine.Mark != theirs.Mark {
				t.Fatalf("seed %d at %d ns: %+v %+v: class %q and mark %#x, by the rules %q and %#x (%v)", seed, now, packet, *mine, out.Class, theirs.Mark, want, mine.Mark, got.Why)
			}
			for _, w := range got.Why {
				met[w.Code]++
			}
		}
		codes := []classify.Code{classify.Names, classify.Unanswered, classify.Acknowledges, classify.First,
			classify.CalmTCP, classify.CalmSmall, classify.CalmLarge, classify.Ordinary, classify.Unprotected}
		if seed == 3 {
			codes = append(codes, classify.Busy, classify.BusySmall, classify.Swarm, classify.Crowd, classify.Steady, classify.TookMore, classify.Waits, classify.WasBulk, classify.Long, classify.ManyNames)
		}
		if seed%2 == 0 {
			codes = append(codes, classify.ByRule)
		}
		for _, c := range codes {
			if met[c] == 0 {
				t.Errorf("seed %d: no packet met %d: %v", seed, c, met)
			}
		}
	}
}

// walks draws packets of a few flows, some of them busy.
type walks struct {
	random *rand.Rand
	now    unit.Instant
	mine   map[classify.FlowID]*classify.Connection
	theirs map[classify.FlowID]*fake.Connection
	opened map[classify.FlowID]classify.Direction
	flow   classify.Packet
	left   int
}

func newWalks(r *rand.Rand) *walks {
	return &walks{random: r, now: unit.Instant(time.Hour), mine: map[classify.FlowID]*classify.Connection{}, theirs: map[classify.FlowID]*fake.Connection{}, opened: map[classify.FlowID]classify.Direction{}}
}

func (w *walks) next() (unit.Instant, classify.Packet, *classify.Connection, *fake.Connection) {
	r := w.random
	if w.left--; w.left < 0 {
		w.left = []int{0, 0, 0, 5, 40, 300}[r.IntN(6)]
		w.flow = classify.Packet{
			Protocol: []uint8{classify.TCP, classify.TCP, classify.UDP, classify.UDP, classify.UDP, classify.ICMP, classify.ESP}[r.IntN(7)],
			Home:     netip.AddrFrom4([4]byte{192, 168, 0, byte(2 + r.IntN(4))}), Far: netip.AddrFrom4([4]byte{203, 0, 113, byte(r.IntN(6))}),
			HomePort: []uint16{5000, 6881, 1026, uint16(40000 + r.IntN(6))}[r.IntN(4)], FarPort: []uint16{53, 443, 443, 443, 19305, uint16(2000 + r.IntN(60))}[r.IntN(6)],
		}
		if w.flow.Protocol == classify.ICMP || w.flow.Protocol == classify.ESP {
			w.flow.HomePort, w.flow.FarPort = 0, 0
		}
		if r.IntN(30) == 0 {
			w.now = w.now.Add(time.Duration(r.IntN(40_000)) * time.Millisecond)
		}
	}
	w.now = w.now.Add(time.Duration(r.IntN([]int{2, 30, 400}[r.IntN(3)]*1000)) * time.Microsecond)
	p := w.flow
	p.Direction = []classify.Direction{classify.Up, classify.Down}[r.IntN(2)]
	p.Length = unit.Size([]int{40, 60, 127, 128, 200, 511, 512, 1200, 1500}[r.IntN(9)])
	p.Flags = []uint8{classify.ACK, classify.ACK, classify.ACK | classify.PSH, classify.SYN}[r.IntN(4)]
	if p.Protocol != classify.TCP {
		p.Flags = 0
	}
	if r.IntN(40) == 0 {
		p.DSCP = uint8(r.IntN(64))
	}
	id := classify.FlowID{Protocol: p.Protocol, Home: netip.AddrPortFrom(p.Home, p.HomePort), Far: netip.AddrPortFrom(p.Far, p.FarPort)}
	mine, theirs := w.mine[id], w.theirs[id]
	if mine == nil || r.IntN(2000) == 0 { // a new one, perhaps with the same ends
		mine, theirs = &classify.Connection{}, &fake.Connection{}
		w.mine[id], w.theirs[id], w.opened[id] = mine, theirs, p.Direction
	}
	if mine.ReplyPacket = p.Direction != w.opened[id]; mine.ReplyPacket {
		mine.Replied++
		mine.Answered, theirs.Replied = true, true
	} else {
		mine.Sent++
	}
	mine.Bytes += p.Length
	theirs.Packets++
	theirs.Bytes += uint64(p.Length)
	return w.now, p, mine, theirs
}

// shown is a packet as iptables sees it.
func (w *walks) shown(p classify.Packet) fake.Packet {
	home, far := netip.AddrPortFrom(p.Home, p.HomePort), netip.AddrPortFrom(p.Far, p.FarPort)
	out := fake.Packet{Out: "wan", In: "lan", Protocol: p.Protocol, Source: home, Destination: far, Length: int(p.Length), Flags: p.Flags, DSCP: p.DSCP}
	if p.Direction == classify.Down {
		out.Out, out.In, out.Source, out.Destination = "lan", "wan", far, home
	}
	return out
}

// realIptables runs a command of the machine's iptables in a network namespace of its own.
func realIptables(t *testing.T, stdin string, script string) (string, error) {
	t.Helper()
	for _, tool := range []string{"unshare", "iptables-legacy-restore"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("SKIPPED: no %s here (make setup-test installs it): %v", tool, err)
		}
	}
	if out, err := exec.Command("unshare", "-n", "iptables-legacy", "-t", "mangle", "-S").CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: no iptables in a network namespace here (needs root, and a kernel with the table mangle of iptables): %v: %s", err, out)
	}
	cmd := exec.Command("unshare", "-n", "sh", "-c", script)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestRulesLoadInIptables: the real iptables-restore takes the rules of plans, and
// lists them as Listed reads them. It is of version 1.8, in the form that kernels
// of 3.10 have too (legacy).
func TestRulesLoadInIptables(t *testing.T) {
	for name, p := range map[string]plan.Plan{"usual": aPlan(1), "rules": aPlan(1, someRules()...), "low": aPlan(60)} {
		set := iptables.Render(p, "b10a:")
		out, err := realIptables(t, set.Restored(), "iptables-legacy-restore --noflush && iptables-legacy -t mangle -S")
		if err != nil {
			t.Errorf("%s: %v: %s", name, err, out)
			continue
		}
		if got := iptables.Listed(out); got != set.Digest() {
			t.Errorf("%s: listed as %q, wanted %q\n%s", name, got, set.Digest(), out)
		}
		if got := iptables.Listed(standIn(t, p).List()); got != set.Digest() {
			t.Errorf("%s: the stand-in lists %q, wanted %q", name, got, set.Digest())
		}
	}
}

// TestStandInIsAsStrict gives rules that are wrong, and some that are right, to the
// real iptables and to the stand-in. What that takes the real one takes. It refuses
// what the real one refuses, and what versions of 1.4.21 and 3.10 do besides.
func TestStandInIsAsStrict(t *testing.T) {
	for _, rule := range strictRules() {
		text := "*mangle\n:x - [0:0]\n:y - [0:0]\n" + rule + "\nCOMMIT\n"
		out, err := realIptables(t, text, "iptables-legacy-restore --noflush")
		ours := fake.New().Restore(text)
		if older := slices.Contains(olderRefuse(), rule); older && ours == nil || !older && (err == nil) != (ours == nil) {
			t.Errorf("%s: really %v (%s), the stand-in %v", rule, err, strings.TrimSpace(out), ours)
		}
	}
}

// olderRefuse are rules that version 1.8 on a newer kernel takes and 1.4.21 on 3.10
// does not, or that nobody means.
func olderRefuse() []string {
	const meter = " --hashlimit-mode srcip --hashlimit-name m"
	return []string{
		"-A x -g x", "-A x -j x", // as soon as a packet can come there
		"-A x -m length --length 5:4",                        // fits no packet
		"-A x -m hashlimit --hashlimit-upto 10001/s" + meter, // revision 2 counts finer, and has longer names and bursts
		"-A x -m hashlimit --hashlimit-upto 1/s --hashlimit-mode srcip --hashlimit-name name4567890123456",
		"-A x -m hashlimit --hashlimit-upto 1/s --hashlimit-burst 10001" + meter,
		"-A x -j CLASSIFY --set-class 1ffff:1", // cut to 16 bits
	}
}

func strictRules() []string {
	const meter = " --hashlimit-mode srcip --hashlimit-name m"
	return []string{
		"-A x -p tcp -g y", "-A x -g nowhere", "-A x -p tcp -j y -j y", "-A x -g x", "-A x -j x",
		"-A POSTROUTING -o wan -j x", "-A POSTROUTING -i wan -j x", "-A PREROUTING -o wan -j x", "-A POSTROUTING -o aninterface12345 -j x",
		"-A x -p tcp -m tcp --tcp-flags FIN,SYN,RST,PSH,ACK,URG ACK -m length --length 0:127 -g y", "-A x -m tcp --tcp-flags SYN SYN -g y", "-A x -p tcp -m tcp --tcp-flags FIN,WHAT ACK",
		"-A x -m length --length 128:65535", "-A x -m length --length 5:4", "-A x -m length --length 65536", "-A x -m length",
		"-A x -p udp -m multiport --dports 53,853", "-A x -m multiport --dports 53", "-A x -p icmp -m multiport --dports 53",
		"-A x -p udp -m multiport --dports 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15", "-A x -p udp -m multiport --dports 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16",
		"-A x -p udp -m multiport --sports 1:2,3:4,5:6,7:8,9:10,11:12,13:14,15", "-A x -p udp -m multiport --sports 1:2,3:4,5:6,7:8,9:10,11:12,13:14,15:16",
		"-A x -m connmark --mark 0x1000000/0x41000000", "-A x -m connmark ! --mark 0x0/0x1000000", "-A x -m connmark --mark what", "-A x -m connmark",
		"-A x -m connbytes --connbytes 1:16000 --connbytes-dir both --connbytes-mode bytes", "-A x -m connbytes --connbytes 512001: --connbytes-dir both --connbytes-mode packets",
		"-A x -m connbytes --connbytes 5:4 --connbytes-dir both --connbytes-mode bytes", "-A x -m connbytes --connbytes 1:2 --connbytes-dir neither --connbytes-mode bytes",
		"-A x -m conntrack --ctstate NEW", "-A x -m conntrack ! --ctstatus SEEN_REPLY", "-A x -m conntrack --ctstatus WHAT", "-A x -m conntrack",
		"-A x -m dscp --dscp 0x2e", "-A x -m dscp --dscp 64",
		"-A x -m recent --rcheck --seconds 10 --name l --rsource", "-A x -m recent --set --name l --rdest", "-A x -m recent --name l", "-A x -m recent --rcheck --seconds 0 --name l",
		"-A x -m recent --set --rcheck --name l",
		"-A x -m hashlimit --hashlimit-upto 6/min --hashlimit-burst 1" + meter, "-A x -m hashlimit --hashlimit-above 160/sec --hashlimit-burst 81" + meter,
		"-A x -m hashlimit --hashlimit-upto 25000b/s" + meter, "-A x -m hashlimit --hashlimit-upto 0b/s" + meter, "-A x -m hashlimit --hashlimit-upto 1/s --hashlimit-above 1/s" + meter,
		"-A x -m hashlimit --hashlimit-upto 10001/s" + meter, "-A x -m hashlimit --hashlimit-upto 1/fortnight" + meter, "-A x -m hashlimit --hashlimit-upto 1/s --hashlimit-mode srcip",
		"-A x -m hashlimit --hashlimit-upto 1/s --hashlimit-mode home --hashlimit-name m", "-A x -m hashlimit --hashlimit-upto 1/s --hashlimit-mode srcip --hashlimit-name name4567890123456",
		"-A x -m hashlimit --hashlimit-upto 1/s --hashlimit-burst 10001" + meter, "-A x -m hashlimit --hashlimit-upto 1/s --hashlimit-burst 0" + meter, "-A x -m hashlimit" + meter,
		"-A x -m whatever", "-A x -j CLASSIFY --set-class b10a:18", "-A x -j CLASSIFY --set-class b10a", "-A x -j CLASSIFY", "-A x -j CLASSIFY --set-class 1ffff:1",
		"-A PREROUTING -j CLASSIFY --set-class b10a:18", "-A x -j CONNMARK --set-xmark 0x4000000/0x44000000", "-A x -j CONNMARK --set-xmark what", "-A x -j CONNMARK", "-A x -j WHATEVER",
		"-A x -s 192.168.0.3 -d 203.0.113.0/30 -g y", "-A x -s 2001:db8::1 -g y", "-A nowhere -p tcp", "-A x -p what", "-A x -p tcp -p udp", "-A x --dport 53", "-A x -p udp --dport 53", "-A x -p udp --syn",
	}
}
