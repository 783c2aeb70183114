package flows_test

import (
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"unbloat/internal/keep/flows"
	"unbloat/unit"
)

func ap(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

func home(a netip.Addr) bool {
	return netip.MustParsePrefix("192.168.1.0/24").Contains(a) || netip.MustParsePrefix("2001:db8:1::/64").Contains(a)
}

var start = time.Unix(1_800_000_000, 0)

// Rates are what has come since the reading before; what is new has come since then,
// and what was there at the first reading has no rate yet.
func TestTracker(t *testing.T) {
	x := flows.NewTracker()
	read := func(at time.Duration, of ...flows.Flow) flows.Table {
		x.Begin(start.Add(at), netip.MustParseAddr("192.168.1.7"))
		for _, f := range of {
			x.Add(f)
			x.Add(f) // pf has two states of each
		}
		return x.End()
	}
	call := flows.Flow{Protocol: 17, Home: ap("192.168.1.7:5004"), Far: ap("198.51.100.1:5004"), Up: 1000, Down: 2000, Mark: 1}
	load := flows.Flow{Protocol: 6, Home: ap("192.168.1.7:5005"), Far: ap("198.51.100.2:443"), Up: 1 << 40, Down: 1 << 33, Mark: 4}
	other := flows.Flow{Protocol: 6, Home: ap("192.168.1.8:5005"), Far: ap("198.51.100.2:443"), Up: 7, Down: 7, Mark: 2}
	got := read(0, call, load, other)
	if len(got.Machines) != 2 || got.Flows != 3 || got.Machines[0].Down != 0 || !got.Counted || got.Crowded {
		t.Errorf("%+v", got)
	}
	call.Up, call.Down = call.Up+12_500, call.Down+25_000
	load.Down += 5_000_000_000 / 8 * 2 // more than 32 bits can count, in all
	fresh := flows.Flow{Protocol: 6, Home: ap("192.168.1.8:5006"), Far: ap("198.51.100.2:443"), Up: 250, Down: 0, Mark: 2}
	got = read(2*time.Second, call, load, other, fresh)
	a, b := got.Machines[0], got.Machines[1]
	if a.Address.String() != "192.168.1.7" || a.Down != 5_000_100_000 || a.Up != 50_000 || a.Flows != 2 {
		t.Errorf("%+v", a)
	}
	if b.Address.String() != "192.168.1.8" || b.Up != 1000 || b.Flows != 2 {
		t.Errorf("%+v", b)
	}
	all := x.Focused()
	if len(all) != 2 || all[0].Far != load.Far || all[0].DownRate != 5_000_000_000 || all[1].UpRate != 50_000 {
		t.Errorf("%+v", all)
	}
	got = read(4*time.Second, call)
	if len(got.Machines) != 1 || got.Machines[0].Down != 0 || got.Flows != 1 {
		t.Errorf("the others have ended: %+v", got)
	}
	if got = read(6 * time.Second); len(got.Machines) != 0 || got.Counted {
		t.Errorf("all have ended: %+v", got)
	}
}

// Law: rates of machines add up to what all flows have carried, in whatever order the
// kernel lists them, and flows that come and go.
func TestTrackerLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := flows.NewTracker()
		carried := map[int]unit.Size{}
		for turn := range rapid.IntRange(2, 5).Draw(t, "turns") {
			here := rapid.SliceOfDistinct(rapid.IntRange(0, 20), rapid.ID[int]).Draw(t, "flows")
			var want [3]unit.Size
			x.Begin(start.Add(time.Duration(turn)*time.Second), netip.Addr{})
			for k := range carried {
				if !slices.Contains(here, k) {
					delete(carried, k) // it has ended; one of the same ends is another
				}
			}
			for _, k := range here {
				more := unit.Size(rapid.IntRange(0, 1<<31).Draw(t, "bytes"))
				carried[k] += more
				if turn > 0 {
					want[k%3] += more
				}
				x.Add(flows.Flow{Protocol: 6, Home: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 168, 1, byte(k % 3)}), uint16(k+1)), Far: ap("198.51.100.1:1"), Down: carried[k]})
			}
			for _, m := range x.End().Machines {
				if w := want[m.Address.As4()[3]] * 8; unit.Rate(w)-m.Down > 20 || m.Down-unit.Rate(w) > 20 {
					t.Fatalf("turn %d: %+v, want %d", turn, m, w)
				}
			}
		}
	})
}

// 100,000 flows and more take bounded memory; those beyond are said to be there.
func TestManyFlows(t *testing.T) {
	memory := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := memory()
	x := flows.NewTracker()
	fill(x, 0, 100_000)
	if got := x.End(); got.Flows != 100_000 || len(got.Machines) != 250 || got.Crowded {
		t.Errorf("%d flows of %d machines, crowded: %v", got.Flows, len(got.Machines), got.Crowded)
	}
	used := memory() - before
	t.Logf("100,000 flows take %d kB", used/1000)
	const most = 8 << 20
	if used > most {
		t.Errorf("%d bytes, at most %d", used, most)
	}
	fill(x, 1, 3*flows.MostFlows)
	if got := x.End(); got.Flows != 3*flows.MostFlows || !got.Crowded {
		t.Errorf("%d flows, crowded: %v", got.Flows, got.Crowded)
	}
	used = memory() - before
	if used > 2*most {
		t.Errorf("%d bytes, at most %d", used, 2*most)
	}
	fill(x, 2, 10)
	x.End()
	runtime.KeepAlive(x)
}

// fill gives a tracker n flows of 250 machines.
func fill(x *flows.Tracker, turn, n int) {
	x.Begin(start.Add(time.Duration(turn)*time.Second), netip.MustParseAddr("192.168.1.7"))
	for i := range n {
		far := netip.AddrFrom4([4]byte{198, 51, byte(i >> 16), byte(i >> 8)})
		x.Add(flows.Flow{Protocol: 17, Home: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 168, 1, byte(i % 250)}), 5000), Far: netip.AddrPortFrom(far, uint16(i&0xff)+1),
			Up: unit.Size(turn * i), Down: unit.Size(turn * i * 10)})
	}
}

func BenchmarkTracker100000(b *testing.B) {
	x := flows.NewTracker()
	turn := 0
	b.ReportAllocs()
	for b.Loop() {
		fill(x, turn, 100_000)
		x.End()
		turn++
	}
}

const states = `all tcp 203.0.113.2:61234 (192.168.1.5:52345) -> 198.51.100.9:443       ESTABLISHED:ESTABLISHED
   [1234 + 65535] wscale 7  [5678 + 65535] wscale 7
   age 00:01:02, expires in 23:59:59, 10:8 pkts, 1234:5678 bytes, rule 12
em1 tcp 198.51.100.9:443 <- 192.168.1.5:52345       ESTABLISHED:ESTABLISHED
   [1234 + 65535] wscale 7  [5678 + 65535] wscale 7
   age 00:01:02, expires in 23:59:59, 10:8 pkts, 1234:5678 bytes, rule 3
all udp 192.168.1.80:53 (203.0.113.2:5353) <- 198.51.100.7:4444       MULTIPLE:SINGLE
   age 00:00:05, expires in 00:00:25, 1:2 pkts, 62:178 bytes, rule 72
all icmp 203.0.113.2:1 (192.168.1.6:5) -> 1.1.1.1:8       0:0
   age 00:00:01, expires in 00:00:09, 1:0 pkts, 84:0 bytes
all ipv6-icmp fe80::1 <- fe80::2       0:0
   age 00:00:01, expires in 00:00:09, 1:1 pkts, 72:72 bytes
all tcp 2001:db8:1::7[50000] -> 2001:db8:9::1[443]       ESTABLISHED:ESTABLISHED
   age 00:00:01, expires in 00:00:09, 3:4 pkts, 300:4000 bytes, rule 1
all carp 224.0.0.18 <- 192.168.1.1       NO_TRAFFIC:SINGLE
   age 00:00:01, expires in 00:00:09, 3:0 pkts, 300:0 bytes
all tcp 192.168.1.1:22 <- 192.168.1.5:40000       ESTABLISHED:ESTABLISHED
`

// pf's states are read as FreeBSD and OpenBSD print them, with NAT and redirections,
// of both versions of IP.
func TestStates(t *testing.T) {
	var got []string
	flows.States(states, home, func(f flows.Flow) {
		got = append(got, fmt.Sprintf("%d %s %s up %d down %d packets %d %v", f.Protocol, f.Home, f.Far, f.Up, f.Down, f.Packets, f.Answered))
	})
	want := []string{
		"6 192.168.1.5:52345 198.51.100.9:443 up 1234 down 5678 packets 18 true",
		"6 192.168.1.5:52345 198.51.100.9:443 up 1234 down 5678 packets 18 true",
		"17 192.168.1.80:53 198.51.100.7:4444 up 178 down 62 packets 3 true",
		"1 192.168.1.6:0 1.1.1.1:0 up 84 down 0 packets 1 false",
		"6 [2001:db8:1::7]:50000 [2001:db8:9::1]:443 up 300 down 4000 packets 7 true",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func FuzzStates(f *testing.F) {
	f.Add(states)
	f.Fuzz(func(t *testing.T, text string) {
		flows.States(text, home, func(f flows.Flow) {
			if !home(f.Home.Addr()) || home(f.Far.Addr()) || f.Up < 0 || f.Down < 0 {
				t.Errorf("%+v", f)
			}
		})
	})
}

// Leases of every server are read, and a machine cannot give itself a name that
// breaks a page.
func TestLeases(t *testing.T) {
	long := strings.Repeat("ä", 80)
	for server, c := range map[string]struct {
		text string
		want flows.Leases
	}{
		"dnsmasq": {"1795432176 02:00:00:00:00:07 192.168.1.7 laptop 01:02:00:00:00:00:07\n1795432176 02:00:00:00:00:08 192.168.1.8 * *\nduid 00:01:00:01\n1795432176 1234 2001:db8:1::7 laptop 00:01\n0 02:00:00:00:00:09 192.168.1.9 " + long + " *\n",
			flows.Leases{addr("192.168.1.7"): {"laptop", "02:00:00:00:00:07"}, addr("192.168.1.8"): {"", "02:00:00:00:00:08"}, addr("2001:db8:1::7"): {"laptop", ""}, addr("192.168.1.9"): {strings.Repeat("ä", 31), "02:00:00:00:00:09"}}},
		"isc": {"# comment\nlease 192.168.1.7 {\n  starts 1 2026/11/23 10:00:00;\n  hardware ethernet 02:00:00:00:00:07;\n  client-hostname \"old\";\n}\nlease 192.168.1.7 {\n  hardware ethernet 02:00:00:00:00:07;\n  client-hostname \"my laptop\";\n}\n",
			flows.Leases{addr("192.168.1.7"): {"my laptop", "02:00:00:00:00:07"}}},
		"isc of IPv6": {"ia-na \"x\" {\n  cltt 1;\n  iaaddr 2001:db8:1::7 {\n    binding state active;\n  }\n}\n",
			flows.Leases{addr("2001:db8:1::7"): {}}},
		"kea": {"address,hwaddr,client_id,valid_lifetime,expire,subnet_id,fqdn_fwd,fqdn_rev,hostname,state,user_context\n192.168.1.7,02:00:00:00:00:07,,3600,1,1,0,0,laptop.lan.,0,\n192.168.1.8,02:00:00:00:00:08,,3600,1,1,0,0,gone,2,\n192.168.1.9,02:00:00:00:00:09,,3600,1,1,0,0,a&#x2cb,0,\n",
			flows.Leases{addr("192.168.1.7"): {"laptop.lan", "02:00:00:00:00:07"}, addr("192.168.1.9"): {"a,b", "02:00:00:00:00:09"}}},
		"nonsense": {"\x00\xff{}\n\n lease\nlease x {\n}\n", flows.Leases{}},
	} {
		got := flows.Leases{}
		got.Read(c.text)
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: %v, want %v", server, got, c.want)
		}
	}
	got := flows.Leases{}
	got.Read("1 02:00:00:00:00:07 192.168.1.7 a\x1b[31m\u202e<script> x\n")
	if name := got[addr("192.168.1.7")].Name; name != "a[31m<script>" {
		t.Errorf("%q", name)
	}
	var many strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&many, "1 02:00:00:00:00:07 10.0.%d.%d x y\n", i/256, i%256)
	}
	if got.Read(many.String()); len(got) > 4096 {
		t.Errorf("%d leases", len(got))
	}
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }
