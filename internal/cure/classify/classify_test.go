package classify_test

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"unbloat/internal/cure/classify"
	"unbloat/unit"
)

// aPolicy has the limits of a line of 30 and 5 Mbit/s.
func aPolicy() classify.Policy {
	var lanes []classify.Lane
	for i, c := range classify.AllClasses() {
		lanes = append(lanes, classify.Lane{Name: string(c), Class: c, Tin: []uint8{8, 6, 5, 1}[i]})
	}
	lanes = append(lanes, classify.Lane{Name: classify.AcksLane, Class: classify.Interactive, Tin: 7})
	return classify.Policy{Up: lanes, Down: lanes, Limits: classify.Limits{
		CalmPackets: 160, CalmRate: 200_000, CalmOfHost: 3_750_000, CalmOfUp: 625_000,
		Steady: 11_250_000, SteadyUp: 1_875_000, SteadyOfHost: 13_500_000, SteadyOfHostUp: 2_250_000,
		SmallPacket: 511, FirstBytes: 75_000, FirstUp: 16_000, HeavyBytes: 512_000, LongBytes: 75_000_000,
		HeavyOfHost: 48, Peers: 20, Names: 60, Acks: 1052, Flows: 8192,
	}}
}

func classifier(p classify.Policy) *classify.Classifier {
	return classify.New(p, classify.Setting{Major: 0xb10a, Places: classify.PlacesFor(p.Limits.Flows), Seed: 7})
}

const second = unit.Instant(time.Second)

// A stream is a flow from the home, with a clock of its own: of datagrams, and answered, if
// nothing else is said.
type stream struct {
	port  uint16
	sizes []unit.Size // of its packets, in turn
	gap   time.Duration
	from  unit.Instant
	first int // of the packets that were counted, how many went first
	of    int // so many were
	n     int
	next  unit.Instant
	codes map[classify.Code]int
	dscp  uint8
	proto uint8 // 0: UDP
	alone bool  // nobody answers
}

// walk walks the packets of streams of one machine through the table until an
// instant, and counts those after count.
func walk(c *classify.Classifier, until, count unit.Instant, streams ...*stream) {
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
			HomePort: s.port, FarPort: 443, DSCP: s.dscp, Length: s.sizes[s.n%len(s.sizes)]}
		if s.proto != 0 {
			p.Protocol, p.Flags = s.proto, classify.ACK|classify.PSH
		}
		if s.n%20 == 0 && !s.alone {
			back := p
			back.Direction, back.Length = classify.Down, 60
			c.Decide(s.next, &back)
		}
		d := c.Decide(s.next, &p)
		if s.codes == nil {
			s.codes = map[classify.Code]int{}
		}
		s.codes[d.Code]++
		if s.next >= count {
			s.of++
			if d.Lane != nil && (d.Lane.Class == classify.Interactive || d.Lane.Class == classify.Voice) {
				s.first++
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

// aCamera is a stream of 1.44 Mbit/s without sound.
func aCamera(port uint16) *stream {
	return &stream{port: port, sizes: []unit.Size{1200}, gap: 6667 * time.Microsecond}
}

// anUpload is one by QUIC: 4 Mbit/s of full packets.
func anUpload(port uint16) *stream {
	return &stream{port: port, sizes: []unit.Size{1480}, gap: 3 * time.Millisecond}
}

// A call goes first throughout beside uploads by QUIC of its machine, whichever begins
// first, and none of them does while it goes on, but for the half second that each is
// tried once.
func TestCallBesideUploads(t *testing.T) {
	for _, begins := range []unit.Instant{0, 20 * second} {
		c := classifier(aPolicy())
		call := aCall(5004)
		call.from = begins
		all := []*stream{call, anUpload(1), anUpload(2), anUpload(3), anUpload(4)}
		walk(c, begins+60*second, begins+5*second, all...)
		if call.first < call.of {
			t.Errorf("a call that begins after %v: %d of %d packets go first", begins, call.first, call.of)
		}
		for _, u := range all[1:] {
			if u.first > 0 {
				t.Errorf("a call that begins after %v: %d of %d packets of an upload go first", begins, u.first, u.of)
			}
		}
	}
}

// A stream without sound goes first from its first packet that is answered on, beside
// uploads that went on before.
func TestStreamWithoutSound(t *testing.T) {
	c := classifier(aPolicy())
	camera := aCamera(5004)
	camera.from = 20 * second
	all := []*stream{camera}
	for i := range uint16(16) { // together three times what the line carries
		u := anUpload(i + 1)
		u.gap *= 4
		all = append(all, u)
	}
	walk(c, 50*second, 20*second, all...)
	if camera.first < camera.of-1 {
		t.Errorf("%d of %d packets go first: %v", camera.first, camera.of, camera.codes)
	}
}

// An upload by QUIC alone goes first for no more than a second each time, and ever less
// often: 4 s, 8 s, 16 s, 32 s after it was found elastic.
func TestUploadIsElastic(t *testing.T) {
	c := classifier(aPolicy())
	u := anUpload(1)
	walk(c, 60*second, 0, u)
	if share := float64(u.first) / float64(u.of); share == 0 || share > 4*1./60 {
		t.Errorf("in a minute %.3f of its packets go first", share)
	}
}

// What was elastic is not tried again while a call of its machine goes on.
func TestElasticWaits(t *testing.T) {
	c := classifier(aPolicy())
	u, call := anUpload(1), aCall(5004)
	walk(c, 2*second, 0, u)
	call.from, u.from = 2*second, 8*second
	walk(c, 7*second, 0, call)
	u.first, u.of = 0, 0
	walk(c, 10*second, 8*second, u)
	if u.codes[classify.Waits] < u.of || u.first > 0 {
		t.Errorf("%v", u.codes)
	}
}

// Twenty streams of one machine, each just below the bound, go first for less than half a
// second's worth of the line together, and none is tried again while the others send.
func TestTwentyBelowTheBound(t *testing.T) {
	c := classifier(aPolicy())
	var all []*stream
	for i := range uint16(20) {
		all = append(all, &stream{port: i + 1, sizes: []unit.Size{1228}, gap: 5525 * time.Microsecond, from: unit.Instant(i) * second / 4000})
	}
	walk(c, 60*second, 0, all...)
	first := unit.Size(0)
	for _, s := range all {
		first += unit.Size(s.first) * 1228
	}
	if most := (5 * unit.MbitPerSecond).Bytes(time.Second / 2); first == 0 || first > most {
		t.Errorf("%s of them go first, of at most %s", first, most)
	}
}

// A key frame of 60 kB at once costs a stream nothing.
func TestKeyFrame(t *testing.T) {
	c := classifier(aPolicy())
	camera := aCamera(5004)
	for at := 5 * second; at < 30*second; at += 3 * second {
		walk(c, at, 0, camera)
		frame := &stream{port: 5004, sizes: []unit.Size{1200}, gap: time.Microsecond, n: 1, next: at}
		walk(c, at+50_000, 0, frame)
		if frame.first < frame.of {
			t.Fatalf("%d of %d packets of a key frame go first", frame.first, frame.of)
		}
	}
	if camera.first < camera.of-1 {
		t.Errorf("%d of %d packets go first: %v", camera.first, camera.of, camera.codes)
	}
}

// What a call has above its bound is normal, packet by packet; a stream without sound
// that is above it is elastic.
func TestAboveTheBound(t *testing.T) {
	for name, sizes := range map[string][]unit.Size{"a call": {190, 1248, 1248, 1248, 1248}, "a stream": {1248}} {
		s := &stream{port: 1, sizes: sizes, gap: 3500 * time.Microsecond}
		walk(classifier(aPolicy()), 20*second, 5*second, s)
		share := float64(s.first) / float64(s.of)
		if call := name == "a call"; call && (share < 0.2 || share > 0.95) || !call && share > 0.2 {
			t.Errorf("%s at a third above its bound: %.2f of its packets go first: %v", name, share, s.codes)
		}
	}
}

// A light flow of small packets is voice, and loses that within a second after it began to
// send too much.
func TestLight(t *testing.T) {
	c := classifier(aPolicy())
	call := &stream{port: 1, sizes: []unit.Size{200}, gap: 20 * time.Millisecond}
	walk(c, 30*second, second, call)
	if call.codes[classify.LightSmall] < call.of {
		t.Errorf("%v", call.codes)
	}
	call.gap, call.codes = time.Millisecond, nil
	walk(c, 35*second, 31*second, call)
	if call.codes[classify.LightSmall] > 1000 {
		t.Errorf("a flood: %v", call.codes)
	}
}

// Fifty flows, each like a call, of one machine gain nothing before others.
func TestCrowd(t *testing.T) {
	c := classifier(aPolicy())
	var all []*stream
	for i := range uint16(50) {
		all = append(all, &stream{port: i + 1, sizes: []unit.Size{200}, gap: 20 * time.Millisecond, from: unit.Instant(i) * second / 2500})
	}
	walk(c, 20*second, 5*second, all...)
	for _, s := range all {
		if share := float64(s.first) / float64(s.of); share > 0.2 {
			t.Fatalf("of one of fifty calls %.2f goes first: %v", share, s.codes)
		}
	}
}

// Every packet of a direction with classes has a class, whatever it is. A policy for one
// direction gives none in the other.
func TestEveryPacketHasAClass(t *testing.T) {
	const seed = 7
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, seed))
	met := map[classify.Code]bool{}
	for range 50 {
		policy := aPolicy()
		policy.Limits.SmallPacket, policy.Limits.Flows = unit.Size(64+rng.IntN(1437)), 64
		policy.Limits.Acks = rng.IntN(2) * 20
		if rng.IntN(3) == 0 {
			policy.Down = nil
		}
		c := classifier(policy)
		for i := range 2000 {
			p := classify.Packet{Direction: []classify.Direction{classify.Up, classify.Down}[rng.IntN(2)], Protocol: []uint8{classify.TCP, classify.UDP, classify.ICMP, classify.ESP, classify.SCTP}[rng.IntN(5)],
				Home: netip.AddrFrom4([4]byte{10, 0, 0, byte(rng.IntN(5))}), Far: netip.AddrFrom4([4]byte{192, 0, 2, byte(rng.IntN(100))}),
				HomePort: uint16(rng.IntN(3)), FarPort: uint16(rng.IntN(60)), Length: unit.Size(28 + rng.IntN(1473)), Flags: uint8(rng.IntN(64))}
			d := c.Decide(unit.Instant(i)*unit.Instant(time.Millisecond), &p)
			met[d.Code] = true
			if known := p.Direction == classify.Up || policy.Down != nil; known != (d.Lane != nil || d.Drop) {
				t.Fatalf("%+v: %+v", p, d)
			}
			if d.Drop && (p.Protocol != classify.TCP || p.Direction != classify.Up || p.Length >= classify.AckBelow) {
				t.Fatalf("%+v is left out", p)
			}
		}
	}
}

// Every reason has a name, for whoever reads it as JSON.
func TestCodeNames(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range classify.Codes() {
		if n := c.Name(); n == "" || seen[n] {
			t.Errorf("reason %d has the name %q, which is empty or of another", c, n)
		}
		seen[c.Name()] = true
	}
}

// The first rule that fits decides: by protocol, ports of either end, addresses, marks,
// bytes, and what is known of machines and domains.
func TestMatch(t *testing.T) {
	p := classify.Packet{Direction: classify.Up, Protocol: classify.UDP, Home: netip.MustParseAddr("10.0.0.2"), Far: netip.MustParseAddr("192.0.2.1"), HomePort: 5004, FarPort: 3478, DSCP: 46}
	range1 := func(n uint16) []classify.PortRange { return []classify.PortRange{{From: n, To: n}} }
	for name, x := range map[string]struct {
		rule classify.Rule
		fits bool
	}{
		"everything":         {classify.Rule{}, true},
		"another protocol":   {classify.Rule{Protocol: "tcp"}, false},
		"the other way":      {classify.Rule{Direction: classify.Down}, false},
		"a port of either":   {classify.Rule{Port: range1(5004)}, true},
		"the far port":       {classify.Rule{FarPort: range1(3478)}, true},
		"not the far port":   {classify.Rule{FarPort: range1(5004)}, false},
		"the machine":        {classify.Rule{Home: []string{"10.0.0.0/24"}}, true},
		"another machine":    {classify.Rule{Home: []string{"10.0.1.0/24"}}, false},
		"by MAC":             {classify.Rule{Home: []string{"02:00:00:00:00:01"}}, true},
		"by domain":          {classify.Rule{Domain: []string{"example.org"}}, false},
		"the mark":           {classify.Rule{DSCP: []string{"ef"}}, true},
		"another mark":       {classify.Rule{DSCP: []string{"cs1"}}, false},
		"after much":         {classify.Rule{From: 1000}, false},
		"the first":          {classify.Rule{Below: 1000}, true},
		"the first of fewer": {classify.Rule{Below: 500}, false},
	} {
		got := classify.Match([]classify.Rule{{Protocol: "gre"}, x.rule}, &p, 500, func(_ int, far bool) bool { return !far })
		if want := map[bool]int{true: 1, false: -1}[x.fits]; got != want {
			t.Errorf("%s: rule %d, want %d", name, got, want)
		}
	}
}
