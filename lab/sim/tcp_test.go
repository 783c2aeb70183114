package sim

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"unbloat/lab/aqm"
	"unbloat/unit"
)

// line returns a network with the lab's kind of modem.
func line(t testing.TB, down, up unit.Rate, rtt time.Duration, bufferDown, bufferUp unit.Size, seed uint64) *Network {
	t.Helper()
	n, err := New(Params{
		Up:       Bottleneck{Rate: up, Buffer: bufferUp, Burst: 1600},
		Down:     Bottleneck{Rate: down, Buffer: bufferDown, Burst: 1600},
		UpWire:   Wire{Delay: rtt / 2},
		DownWire: Wire{Delay: rtt / 2},
		Random:   rand.New(rand.NewPCG(seed, 1)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func addConn(t testing.TB, n *Network, p ConnParams) *Conn {
	t.Helper()
	c, err := n.AddConn(p)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func addStream(t testing.TB, n *Network, p StreamParams) *Stream {
	t.Helper()
	s, err := n.AddStream(p)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// between returns the goodput of a connection between two seconds, in bit/s.
func between(c *Conn, from, to int) float64 {
	_, bin, bytes := c.Goodput()
	per := int(time.Second / bin)
	var sum int64
	for i := from * per; i < to*per && i < len(bytes); i++ {
		sum += bytes[i]
	}
	return float64(sum) * 8 / float64(to-from)
}

// probes adds the usual stream of probes.
func probes(t testing.TB, n *Network) *Stream {
	return addStream(t, n, StreamParams{Direction: Up, Interval: 10 * time.Millisecond, Frame: 74, Echo: true})
}

// roundTrips returns the round trip times of the probes sent between two
// seconds.
func roundTrips(s *Stream, from, to int) []time.Duration {
	var out []time.Duration
	all := s.Sent()
	for _, d := range all {
		if d.Fate == Answered && d.Sent >= unit.Instant(from)*1e9 && d.Sent < unit.Instant(to)*1e9 {
			out = append(out, d.Back.Sub(d.Sent))
		}
	}
	return out
}

// One flow fills the link to within 1 % of the rate without headers, 3 % with
// BBR, which drains the queue for 0.2 s every ten seconds.
func TestOneFlowFillsTheLink(t *testing.T) {
	for _, cc := range Controls() {
		for _, d := range []Direction{Up, Down} {
			n := line(t, 20e6, 20e6, 30*time.Millisecond, 150e3, 150e3, 1)
			c := addConn(t, n, ConnParams{Direction: d, Control: cc})
			n.RunUntil(40e9)
			want, share := 20e6*1448.0/1514, 0.01
			if cc == BBR {
				share = 0.03
			}
			if got := between(c, 10, 40); math.Abs(got-want) > share*want {
				t.Errorf("%s %s: goodput %.2f Mbit/s, want %.2f ± %.0f %%", cc, d, got/1e6, want/1e6, 100*share)
			}
			if s := c.Stats(); s.Timeouts > 0 {
				t.Errorf("%s %s: %d retransmission timeouts", cc, d, s.Timeouts)
			}
		}
	}
}

// A full buffer adds its size divided by the rate.
func TestDelayIsBufferOverRate(t *testing.T) {
	n := line(t, 20e6, 1e6, 24*time.Millisecond, 1e6, 375e3, 1)
	addConn(t, n, ConnParams{Direction: Up})
	s := probes(t, n)
	n.RunUntil(40e9)
	var most time.Duration
	for _, d := range roundTrips(s, 5, 36) {
		most = max(most, d)
	}
	want := 24*time.Millisecond + unit.Rate(1e6).Time(375e3)
	if most > want || most < want-30*time.Millisecond {
		t.Errorf("longest round trip %v, want %v", most, want)
	}
}

// A queue that drops what waits longest delays by what it holds at most, whatever is
// offered; what comes is taken, and what was offered is sent, dropped or in it.
func TestHeadDrop(t *testing.T) {
	n := line(t, 20e6, 5e6, 24*time.Millisecond, 1e6, 375e3, 1)
	if err := n.SetBottleneck(Up, Bottleneck{Rate: 5e6, HeadDrop: 12, Burst: 1600}); err != nil {
		t.Fatal(err)
	}
	c := addConn(t, n, ConnParams{Direction: Up})
	s := probes(t, n)
	n.RunUntil(20e9)
	var most time.Duration
	for _, d := range roundTrips(s, 5, 18) {
		most = max(most, d)
	}
	if want := 24*time.Millisecond + unit.Rate(5e6).Time(13*1514); most > want {
		t.Errorf("longest round trip %v, want at most %v", most, want)
	}
	b := n.Bottleneck(Up)
	if b.Dropped == 0 || b.Offered != b.Sent+b.Dropped+uint64(b.Packets) || b.Packets > 12 || b.Backlog > 12*1514 {
		t.Errorf("%+v", b)
	}
	if lost := c.Stats().Lost; lost == 0 || uint64(lost) > b.Dropped {
		t.Errorf("the connection lost %d of %d", lost, b.Dropped)
	}
}

// A real link's queue adds the time of the frame itself; the lab's modem does
// not.
func TestIdleRoundTrip(t *testing.T) {
	for burst, want := range map[unit.Size]time.Duration{
		1600: 24 * time.Millisecond,
		0:    24*time.Millisecond + unit.Rate(1e6).Time(74) + unit.Rate(20e6).Time(74),
	} {
		n := line(t, 20e6, 1e6, 24*time.Millisecond, 1e6, 375e3, 1)
		for d, rate := range []unit.Rate{1e6, 20e6} {
			if err := n.SetBottleneck(Direction(d), Bottleneck{Rate: rate, Buffer: 1e6, Burst: burst}); err != nil {
				t.Fatal(err)
			}
		}
		s := probes(t, n)
		n.RunUntil(1e9)
		for _, d := range roundTrips(s, 0, 1) {
			if d != want {
				t.Fatalf("burst %d: round trip %v, want %v", burst, d, want)
			}
		}
	}
}

// Every lost segment is sent again once, and no other.
func TestNothingIsResentInVain(t *testing.T) {
	n := line(t, 20e6, 20e6, 30*time.Millisecond, 10e6, 10e6, 4)
	n.wires[Up][0].Loss = 0.002
	c := addConn(t, n, ConnParams{Direction: Up, Control: Reno})
	n.RunUntil(60e9)
	s := c.Stats()
	if s.Lost < 50 {
		t.Fatalf("only %d segments were lost", s.Lost)
	}
	if vain := s.Retransmits - s.Lost; vain > 2+s.Lost/50 || vain < -5 {
		t.Errorf("%d lost, %d sent again", s.Lost, s.Retransmits)
	}
	// Mathis et al.: rate = MSS / RTT × sqrt(3/2) / sqrt(loss); with an
	// acknowledgement for every second segment sqrt(3/4).
	want := 1448 * 8 / 0.030 * math.Sqrt(0.75*2/0.002) // Linux counts bytes, not acknowledgements
	if got := between(c, 10, 60); got < 0.7*want || got > 1.3*want {
		t.Errorf("goodput %.2f Mbit/s, Mathis says %.2f", got/1e6, want/1e6)
	}
}

// Jitter keeps the order, so no packet is taken for lost.
func TestJitterKeepsTheOrder(t *testing.T) {
	n := line(t, 20e6, 20e6, 30*time.Millisecond, 10e6, 10e6, 4)
	n.wires[Up][0].Jitter, n.wires[Down][0].Jitter = 10*time.Millisecond, 10*time.Millisecond
	c := addConn(t, n, ConnParams{Direction: Down, Segments: 5000})
	n.RunUntil(20e9)
	if s := c.Stats(); s.Delivered != 5000 || s.Lost > 0 || s.Retransmits > 2 {
		t.Errorf("%+v, want 5000 delivered, and only tail loss probes sent again", s)
	}
}

// With Reno the flow with the shorter round trip gets more. CUBIC is fairer
// only above Reno's range, so it only must not starve a flow at these rates.
func TestNearAndFar(t *testing.T) {
	for _, cc := range []Control{Reno, Cubic} {
		n := line(t, 50e6, 50e6, 20*time.Millisecond, 250e3, 250e3, 2)
		near := addConn(t, n, ConnParams{Direction: Down, Control: cc})
		far := addConn(t, n, ConnParams{Direction: Down, Control: cc, ExtraRTT: 80 * time.Millisecond})
		n.RunUntil(120e9)
		ratio := between(near, 20, 120) / between(far, 20, 120)
		if ratio < 1 || ratio > 12 {
			t.Errorf("%s: the near flow got %.1f times what the far one got", cc, ratio)
		}
	}
}

// Equal flows share a link equally in the long run, in a plain FIFO.
func TestEqualFlowsShare(t *testing.T) {
	n := line(t, 50e6, 50e6, 40*time.Millisecond, 250e3, 250e3, 2)
	var flows []*Conn
	for i := range 8 {
		flows = append(flows, addConn(t, n, ConnParams{Direction: Down, Control: Reno, Start: unit.Instant(i) * 10e6}))
	}
	n.RunUntil(120e9)
	var sum, squares float64
	for _, c := range flows {
		g := between(c, 20, 120)
		sum += g
		squares += g * g
	}
	if jain := sum * sum / (8 * squares); jain < 0.9 {
		t.Errorf("Jain's index %.3f, want at least 0.9", jain)
	}
}

// LEDBAT yields to another flow if the queue is long enough, and keeps its own
// queue below its target.
func TestLEDBATGivesWay(t *testing.T) {
	n := line(t, 20e6, 5e6, 30*time.Millisecond, 1e6, 300e3, 2)
	polite := addConn(t, n, ConnParams{Direction: Up, Control: LEDBAT})
	s := probes(t, n)
	n.RunUntil(20e9)
	for _, d := range roundTrips(s, 5, 20) {
		if d > 30*time.Millisecond+ledbatTarget+30*time.Millisecond {
			t.Fatalf("alone it makes the round trip %v", d)
		}
	}
	addConn(t, n, ConnParams{Direction: Up, Start: n.Now()})
	n.RunUntil(60e9)
	if got := between(polite, 30, 60); got > 1e6 {
		t.Errorf("beside another flow it takes %.2f Mbit/s of 5", got/1e6)
	}
}

// ECN signals congestion without losses.
func TestECN(t *testing.T) {
	n := line(t, 20e6, 20e6, 30*time.Millisecond, 1e6, 1e6, 2)
	err := n.Shape(Down, Shaping{Queue: func(drop aqm.DropFunc) (aqm.Queue, error) {
		p := aqm.DefaultFQCoDel(aqm.Linux73)
		p.CoDel.Drop = drop
		inner, err := aqm.NewFQCoDel(p)
		if err != nil {
			return nil, err
		}
		return aqm.NewTokenBucket(aqm.TokenBucketParams{Rate: 10e6, Burst: 3000}, inner)
	}})
	if err != nil {
		t.Fatal(err)
	}
	c := addConn(t, n, ConnParams{Direction: Down, ECN: true})
	n.RunUntil(30e9)
	s := c.Stats()
	if s.Lost > 0 || s.Retransmits > 0 || s.Marked < 10 {
		t.Errorf("%+v, want marks and no loss", s)
	}
	if got, want := between(c, 5, 30), 10e6*1448/1514*0.97; got < want {
		t.Errorf("goodput %.2f Mbit/s, want %.2f", got/1e6, want/1e6)
	}
}

// Merged acknowledgements use less of the uplink, and do not slow the download.
func TestMergeAcks(t *testing.T) {
	var sent [2]uint64
	for i, merge := range []bool{false, true} {
		n := line(t, 50e6, 50e6, 20*time.Millisecond, 500e3, 500e3, 2)
		err := n.Shape(Up, Shaping{MergeAcks: merge, Queue: func(drop aqm.DropFunc) (aqm.Queue, error) {
			inner, err := aqm.NewFIFO(aqm.FIFOParams{Packets: 1000, Drop: drop})
			if err != nil {
				return nil, err
			}
			return aqm.NewTokenBucket(aqm.TokenBucketParams{Rate: 500e3, Burst: 1514}, inner)
		}})
		if err != nil {
			t.Fatal(err)
		}
		c := addConn(t, n, ConnParams{Direction: Down})
		n.RunUntil(20e9)
		sent[i] = n.Bottleneck(Up).Sent
		if got := between(c, 5, 20); merge && got < 40e6 {
			t.Errorf("with merged acknowledgements the download gets %.1f Mbit/s", got/1e6)
		}
	}
	if sent[1] > sent[0] {
		t.Errorf("%d acknowledgements with merging, %d without", sent[1], sent[0])
	}
}
