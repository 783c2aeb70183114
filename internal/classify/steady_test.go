package classify_test

import (
	"net/netip"
	"testing"
	"time"

	"unbloat/internal/classify"
	"unbloat/unit"
)

// A stream is a flow of datagrams from the home, with a clock of its own.
type stream struct {
	port    uint16
	c       classify.Connection
	sizes   []unit.Size // of its packets, in turn
	gap     time.Duration
	first   int       // of its packets, how many were interactive
	ahead   unit.Size // their bytes
	n       int
	next    unit.Instant
	from    unit.Instant
	counted int
	decided func(p *classify.Packet, lane *classify.Lane) // told of each; nil: nobody
}

// uploads walks the packets of streams of one machine through the table until an
// instant, and counts those after count.
func uploads(table *classify.Table, m *classify.Memory, until, count unit.Instant, streams ...*stream) {
	for {
		var s *stream
		for _, x := range streams {
			if x.next = max(x.next, x.from); s == nil || x.next < s.next {
				s = x
			}
		}
		if s.next >= until {
			return
		}
		p := classify.Packet{Direction: classify.Up, Protocol: classify.UDP, Home: netip.MustParseAddr("10.0.0.2"), Far: netip.MustParseAddr("192.0.2.1"),
			HomePort: s.port, FarPort: 443, Length: s.sizes[s.n%len(s.sizes)], Second: uint32(s.n%32) << 11}
		s.c.Sent, s.c.Replied, s.c.Answered, s.c.Bytes = s.c.Sent+1, s.c.Replied+1, true, s.c.Bytes+p.Length
		d := table.Decide(s.next, &p, &s.c, m)
		if s.decided != nil {
			s.decided(&p, d.Lane)
		}
		if s.next >= count {
			s.counted++
			if d.Lane != nil && d.Lane.Class == classify.Interactive {
				s.first, s.ahead = s.first+1, s.ahead+p.Length
			}
		}
		s.n++
		s.next = s.next.Add(s.gap)
	}
}

// aCall is a video call of 1.3 Mbit/s: sound between its pictures.
func aCall(port uint16) *stream {
	return &stream{port: port, sizes: []unit.Size{190, 1248, 1248}, gap: 5500 * time.Microsecond}
}

// anUpload is one by QUIC: 4 Mbit/s of full packets.
func anUpload(port uint16) *stream {
	return &stream{port: port, sizes: []unit.Size{1480}, gap: 3 * time.Millisecond}
}

// varies is a policy of a line that does.
func varies(p classify.Policy) classify.Policy {
	p.Varies = true
	return p
}

// steadyPolicy has the limits of a line of 30 and 5 Mbit/s.
func steadyPolicy() classify.Policy {
	p := aPolicy()
	p.Limits = classify.Limits{
		CalmPackets: 160, CalmRate: 200_000, CalmOfHost: 3_750_000, CalmOfUp: 625_000,
		Steady: 11_250_000, SteadyUp: 1_875_000, SteadyOfHost: 13_500_000, SteadyOfHostUp: 2_250_000,
		SmallPacket: 511, FirstBytes: 75_000, FirstUp: 16_000, HeavyBytes: 512_000, LongBytes: 75_000_000,
		HeavyOfHost: 48, Peers: 20, Names: 60, Acks: 1052, Flows: 8192,
	}
	return p
}

const second = unit.Instant(time.Second)

// A call keeps its class beside uploads by QUIC of its machine, whichever begins
// first, and none of them has it while the call goes on.
func TestCallBesideUploads(t *testing.T) {
	for _, begins := range []unit.Instant{0, 20 * second} {
		table := classify.Build(steadyPolicy())
		m := classify.NewMemory(table, 0)
		call := aCall(5004)
		call.from = begins
		all := []*stream{call, anUpload(1), anUpload(2), anUpload(3), anUpload(4)}
		uploads(table, m, begins+60*second, begins+5*second, all...)
		if call.first < call.counted {
			t.Errorf("a call that begins after %v: %d of %d packets go first", begins, call.first, call.counted)
		}
		for _, u := range all[1:] {
			if u.first > 0 {
				t.Errorf("a call that begins after %v: %d of %d packets of an upload go first", begins, u.first, u.counted)
			}
		}
	}
}

// An upload by QUIC alone is tried, for 3 s at most, and loses the class for
// longer from the second time on.
func TestUploadIsTried(t *testing.T) {
	table := classify.Build(steadyPolicy())
	m := classify.NewMemory(table, 0)
	u := anUpload(1)
	uploads(table, m, 60*second, 0, u)
	if share := float64(u.first) / float64(u.counted); share == 0 || share > 3*3./60 {
		t.Errorf("in a minute %.3f of its packets go first", share)
	}
}

// A call that finds its rate by taking more, again and again, keeps the class for what is
// within the bound, and has all of it again at once when it takes less.
func TestCallTakesMore(t *testing.T) {
	policy := steadyPolicy()
	table := classify.Build(policy)
	m := classify.NewMemory(table, 0)
	call := aCall(5004)
	usual := call.gap
	for n := range 5 {
		now := unit.Instant(n) * 20 * second
		call.gap, call.first, call.counted, call.ahead = usual/3, 0, 0, 0 // 3.9 Mbit/s
		uploads(table, m, now+6*second, now+3*second, call)
		if share := float64(call.ahead) * 8 / 3 / float64(policy.Limits.SteadyUp); share < 0.9 || share > 1.05 {
			t.Errorf("time %d: what goes first is %.3f of the bound", n, share)
		}
		call.gap, call.first, call.counted = usual, 0, 0
		uploads(table, m, now+20*second, now+7*second, call)
		if call.first < call.counted {
			t.Errorf("time %d: %d of %d packets go first below the bound", n, call.first, call.counted)
		}
	}
}

// An upload that goes first as the machine's only one does not keep the class by
// a call that begins: it takes more than the bound, and does not speak.
func TestCallBeginsInTrial(t *testing.T) {
	table := classify.Build(steadyPolicy())
	m := classify.NewMemory(table, 0)
	u := anUpload(1)
	u.gap *= 2 // 2 Mbit/s: it takes a while to be above the bound
	uploads(table, m, 6*second, 3*second, u)
	if u.first == 0 {
		t.Fatal("the upload is not tried")
	}
	call := aCall(5004)
	call.from = 6 * second
	u.gap, u.first, u.counted = u.gap/2, 0, 0
	uploads(table, m, 60*second, 10*second, u, call)
	if u.first > 0 || call.first < call.counted {
		t.Errorf("%d packets of the upload go first, and %d of the call's %d", u.first, call.first, call.counted)
	}
}

// A call that was above the bound for a moment has its class again soon, on a line that
// varies.
func TestCallComesBack(t *testing.T) {
	table := classify.Build(varies(steadyPolicy()))
	m := classify.NewMemory(table, 0)
	call := aCall(5004)
	call.gap /= 3 // 3.9 Mbit/s
	uploads(table, m, 3*second, 2*second, call)
	if call.first > 0 {
		t.Errorf("%d of %d packets go first above the bound", call.first, call.counted)
	}
	call.gap, call.first, call.counted = 3*call.gap, 0, 0
	uploads(table, m, 30*second, 9*second, call)
	if call.first < call.counted {
		t.Errorf("%d of %d packets go first once it is below the bound again", call.first, call.counted)
	}
}

// A call that finds its rate by taking more, again and again, has its class again soon
// each time: there is no minute for what speaks. So it is on a line that varies.
func TestCallTakesMoreAgain(t *testing.T) {
	table := classify.Build(varies(steadyPolicy()))
	m := classify.NewMemory(table, 0)
	call := aCall(5004)
	usual := call.gap
	var now unit.Instant
	for n := range 5 {
		call.gap = usual / 3
		uploads(table, m, now+3*second, now+2*second, call)
		if call.first > 0 {
			t.Errorf("time %d: %d of %d packets go first above the bound", n, call.first, call.counted)
		}
		call.gap, call.first, call.counted = usual, 0, 0
		uploads(table, m, now+20*second, now+8*second, call)
		if call.first < call.counted {
			t.Errorf("time %d: %d of %d packets go first below the bound", n, call.first, call.counted)
		}
		now, call.first, call.counted = now+20*second, 0, 0
	}
}

// Twenty flows of one machine, each just below the bound and with small packets
// as a call has, gain nothing together.
func TestManySteady(t *testing.T) {
	table := classify.Build(steadyPolicy())
	m := classify.NewMemory(table, 0)
	var all []*stream
	for k := range 20 {
		s := aCall(uint16(5000 + k))
		s.gap = 4000 * time.Microsecond
		all = append(all, s)
	}
	uploads(table, m, 60*second, 0, all...)
	bytes := unit.Size(0)
	for _, s := range all {
		bytes += s.ahead
	}
	if rate := float64(bytes) * 8 / 60; rate > 1.1*2_250_000 {
		t.Errorf("together %.0f bit/s of them go first", rate)
	}
}

// What a crowd's connection carries is not counted again and again because it is
// steady in the other direction: none becomes bulk.
func TestCrowdIsNotBulk(t *testing.T) {
	table := classify.Build(steadyPolicy())
	m := classify.NewMemory(table, 0)
	call := aCall(5004)
	now := unit.Instant(0)
	for k := range 20_000 {
		now += unit.Instant(2 * time.Millisecond)
		for _, d := range []classify.Direction{classify.Up, classify.Down} {
			p := classify.Packet{Direction: d, Protocol: classify.UDP, Home: netip.MustParseAddr("10.0.0.2"), Far: netip.MustParseAddr("192.0.2.1"),
				HomePort: call.port, FarPort: 443, Length: 600, Second: uint32(k%32) << 11}
			if d == classify.Down {
				p.Length = call.sizes[k%3]
				if k%3 > 0 && k%2 > 0 {
					continue
				}
				call.c.Replied++
			} else if call.c.Sent++; k%20 > 0 {
				continue
			}
			call.c.ReplyPacket, call.c.Answered, call.c.Bytes = d == classify.Down, true, call.c.Bytes+p.Length
			if c := table.Decide(now, &p, &call.c, m).Lane.Class; c == classify.Bulk {
				t.Fatalf("after %v it is bulk", time.Duration(now))
			}
			for f := range 30 { // the crowd: calm flows of the machine
				if k%10 > 0 {
					break
				}
				q := classify.Packet{Direction: classify.Up, Protocol: classify.UDP, Home: p.Home, Far: p.Far, HomePort: uint16(7000 + f), FarPort: 443, Length: 600}
				table.Decide(now, &q, &classify.Connection{Answered: true, Sent: 1, Replied: 1}, m)
			}
		}
	}
}

// The sound of a call that takes more than the bound goes first all the same, and
// its pictures do not.
func TestSoundOvertakes(t *testing.T) {
	table := classify.Build(varies(steadyPolicy()))
	m := classify.NewMemory(table, 0)
	call := aCall(5004)
	call.sizes = []unit.Size{190, 1248, 1248, 1248, 1248, 1248, 1248}
	call.gap /= 3 // 4.4 Mbit/s
	uploads(table, m, 3*second, 3*second, call)
	var sound, first, pictures int
	call.decided = func(p *classify.Packet, lane *classify.Lane) {
		if p.Length > 511 {
			if lane.Class == classify.Interactive {
				pictures++
			}
			return
		}
		if sound++; lane.Class == classify.Voice {
			first++
		}
	}
	uploads(table, m, 9*second/2, 3*second, call)
	if sound < 100 || first < sound*9/10 || pictures > 0 {
		t.Errorf("of %d packets of sound %d go first, and %d of pictures", sound, first, pictures)
	}
}

// Twenty flows of one machine, each just below the bound and without a voice, go first for
// no longer than it takes to find out.
func TestManySilent(t *testing.T) {
	table := classify.Build(steadyPolicy())
	m := classify.NewMemory(table, 0)
	var all []*stream
	for k := range 20 {
		all = append(all, &stream{port: uint16(5000 + k), sizes: []unit.Size{1228}, gap: time.Second / 181, from: unit.Instant(k) * second / 50})
	}
	uploads(table, m, 60*second, 0, all...)
	bytes := unit.Size(0)
	for _, s := range all {
		bytes += s.ahead
	}
	if rate := float64(bytes) * 8 / 60; rate > 100_000 {
		t.Errorf("together %.0f bit/s of them go first", rate)
	}
}

// The sound of a call that takes more than the bound goes first all the same, and
// of its pictures what is within it.
func TestSoundWithinBound(t *testing.T) {
	table := classify.Build(steadyPolicy())
	m := classify.NewMemory(table, 0)
	call := aCall(5004)
	call.sizes = []unit.Size{190, 1248, 1248, 1248, 1248, 1248, 1248}
	call.gap /= 3 // 4.4 Mbit/s
	uploads(table, m, 3*second, 3*second, call)
	var sound, first, pictures, ahead int
	call.decided = func(p *classify.Packet, lane *classify.Lane) {
		goes := lane.Class == classify.Voice || lane.Class == classify.Interactive
		if p.Length <= 511 {
			if sound++; goes {
				first++
			}
		} else if pictures++; goes {
			ahead++
		}
	}
	uploads(table, m, 6*second, 3*second, call)
	if share := float64(ahead) / float64(pictures); first < sound || share < 0.35 || share > 0.45 {
		t.Errorf("of %d packets of sound %d go first, and %.3f of the pictures", sound, first, share)
	}
}
