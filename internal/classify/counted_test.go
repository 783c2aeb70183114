package classify

import (
	"net/netip"
	"testing"
	"time"

	"unbloat/unit"
)

// By counters that are read each second a call is voice, a video call interactive
// within its bound, an upload by QUIC above it neither, and a machine's calm flows
// are none once they have too much together. What was carried before the first
// reading counts for nothing, and what is silent for long has no class.
func TestCounted(t *testing.T) {
	lanes := func() []Lane {
		return []Lane{{"voice", Voice, 8}, {"interactive", Interactive, 6}, {"normal", Normal, 5}, {"bulk", Bulk, 1}, {AcksLane, Interactive, 7}}
	}
	c := NewCounted(Policy{Up: lanes(), Down: lanes(), Limits: Limits{CalmPackets: 160, CalmRate: 200e3, CalmOfHost: 3750e3, CalmOfUp: 625e3,
		Steady: 11e6, SteadyUp: 1875e3, SteadyOfHost: 13e6, SteadyOfHostUp: 2250e3, SmallPacket: 511, HeavyBytes: 512 * unit.KB, LongBytes: 75 * unit.MB,
		HeavyOfHost: 48, Peers: 20, Names: 60, Flows: 8192}})
	type sender struct {
		protocol  uint8
		home, far string
		up, down  Count // a second
	}
	flow := func(s sender, seconds uint64) CountedFlow {
		times := func(n Count) Count { return Count{n.Packets * seconds, n.Bytes * unit.Size(seconds)} }
		return CountedFlow{Protocol: s.protocol, Home: netip.MustParseAddrPort(s.home), Far: netip.MustParseAddrPort(s.far), Opened: Up, Up: times(s.up), Down: times(s.down)}
	}
	senders := []sender{
		{UDP, "192.168.1.5:5004", "198.51.100.1:3478", Count{50, 10_000}, Count{50, 10_000}},
		{UDP, "192.168.1.6:5004", "198.51.100.1:3478", Count{170, 180_000}, Count{170, 180_000}},
		{UDP, "192.168.1.7:5004", "198.51.100.1:443", Count{400, 500_000}, Count{100, 6000}},
		{TCP, "192.168.1.5:40000", "198.51.100.1:443", Count{300, 450_000}, Count{150, 7800}},
		{UDP, "192.168.1.5:6000", "198.51.100.1:9000", Count{50, 10_000}, Count{}}, // nobody answers it
	}
	var crowd []sender
	for i := range 50 {
		crowd = append(crowd, sender{UDP, netip.AddrPortFrom(netip.MustParseAddr("192.168.1.8"), uint16(7000+i)).String(), "198.51.100.1:3478", Count{50, 10_000}, Count{50, 10_000}})
	}
	senders = append(senders, crowd...)
	at, seconds := unit.Instant(0), uint64(100)
	read := func(moving bool) (up map[string]Class) {
		var all []CountedFlow
		for _, s := range senders {
			all = append(all, flow(s, seconds), flow(s, seconds)) // twice, as a router with two states for each shows it
		}
		c.Read(at, all)
		at = at.Add(time.Second)
		if moving {
			seconds++
		}
		up = map[string]Class{}
		c.Each(func(f FlowID, d Direction, class Class) bool {
			if d == Up {
				up[f.Home.String()] = class
			}
			return true
		})
		return up
	}
	if got := read(true); len(got) > 0 {
		t.Errorf("after one reading: %v", got)
	}
	var got map[string]Class
	for range 15 {
		got = read(true)
	}
	for home, want := range map[string]Class{"192.168.1.5:5004": Voice, "192.168.1.6:5004": Interactive, "192.168.1.7:5004": "", "192.168.1.5:40000": "", "192.168.1.5:6000": ""} {
		if got[home] != want {
			t.Errorf("%s is %q, not %q", home, got[home], want)
		}
	}
	voices := 0
	for _, s := range crowd {
		if got[s.home] == Voice {
			voices++
		}
	}
	if voices > 0 {
		t.Errorf("%d of the fifty are voice", voices)
	}
	for range 25 {
		got = read(false)
	}
	if len(got) > 0 {
		t.Errorf("after 25 s of silence: %v", got)
	}
	c.Read(at, nil)
	if len(c.flows) > 0 {
		t.Error("what is gone is remembered")
	}
}
