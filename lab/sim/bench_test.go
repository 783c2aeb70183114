package sim

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"unbloat/lab/aqm"
	"unbloat/testkit/await"
	"unbloat/unit"
)

// shapeBoth puts HTB and fq_codel before and behind the modem.
func shapeBoth(tb testing.TB, n *Network, down, up unit.Rate) {
	tb.Helper()
	for d, rate := range []unit.Rate{up, down} {
		err := n.Shape(Direction(d), Shaping{Queue: func(drop aqm.DropFunc) (aqm.Queue, error) {
			p := aqm.DefaultFQCoDel(aqm.Linux73)
			p.CoDel.Drop = drop
			inner, err := aqm.NewFQCoDel(p)
			if err != nil {
				return nil, err
			}
			return aqm.NewTokenBucket(aqm.TokenBucketParams{Bucket: aqm.HTB, Rate: rate, Burst: 3000}, inner)
		}})
		if err != nil {
			tb.Fatal(err)
		}
	}
}

// cpuTime returns the processor time that this process has used. Unlike the
// elapsed time it does not grow while other processes run.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkMinute simulates minutes without and with shaping. TestMinuteAlone holds what
// one may cost.
func BenchmarkMinute(b *testing.B) {
	for _, shaped := range []bool{false, true} {
		b.Run(fmt.Sprintf("shaped=%v", shaped), func(b *testing.B) {
			b.ReportAllocs()
			best := time.Hour // of processor time: other processes disturb the other runs
			for b.Loop() {
				began := cpuTime()
				b.ReportMetric(float64(minute(b, shaped)), "packets/op")
				best = min(best, cpuTime()-began)
			}
			b.ReportMetric(best.Seconds(), "cpu-s/op")
		})
	}
}

// minute simulates a minute of four downloads and four uploads at 100/20 Mbit/s, and returns
// how many packets were sent.
func minute(tb testing.TB, shaped bool) uint64 {
	tb.Helper()
	n := line(tb, 100e6, 20e6, 20*time.Millisecond, 2.5e6, 1e6, 1)
	if shaped {
		shapeBoth(tb, n, 90e6, 19e6)
	}
	for i := range 8 {
		addConn(tb, n, ConnParams{Direction: Direction(i % 2)})
	}
	_, _ = n.AddStream(StreamParams{Direction: Up, Interval: 10 * time.Millisecond, Frame: 74, Echo: true})
	n.RunUntil(60e9)
	return n.Bottleneck(Up).Sent + n.Bottleneck(Down).Sent
}

// A minute that is simulated costs half a second at most.
func TestMinuteAlone(t *testing.T) {
	for _, shaped := range []bool{false, true} {
		t.Run(fmt.Sprintf("shaped=%v", shaped), func(t *testing.T) {
			await.Costs(t, 500*time.Millisecond, func() {
				if n := minute(t, shaped); n < 400_000 { // 100 Mbit/s have 500,000 and their acknowledgements
					t.Errorf("%d packets in a minute", n)
				}
			})
		})
	}
}

// BenchmarkFlows measures how the cost of a packet depends on the number of
// flows. Every flow has 1 Mbit/s of the line, so that each does the same work:
// on a line of the same rate for all, ten thousand flows would mostly have
// timeouts. The numbers of flows take turns, many times a second, since other
// load can double the time of the same work from one second to the next. Each
// turn is compared with its neighbours.
func BenchmarkFlows(b *testing.B) {
	for _, shaped := range []bool{false, true} {
		b.Run(fmt.Sprintf("shaped=%v", shaped), func(b *testing.B) { flowCosts(b, shaped) })
	}
}

// flowCosts measures the cost of a packet with 10 to 10 000 flows.
func flowCosts(b *testing.B, shaped bool) {
	numbers := []int{10, 100, 1000, 10000}
	var nets []*Network
	for _, flows := range numbers {
		rate := unit.Rate(flows) * unit.MbitPerSecond
		room := rate.Bytes(100 * time.Millisecond)
		n := line(b, rate, rate, 50*time.Millisecond, room, room, 1)
		if shaped {
			shapeBoth(b, n, rate.Scale(0.95), rate.Scale(0.95))
		}
		for i := range flows {
			addConn(b, n, ConnParams{Direction: Down, Start: unit.Instant(i) * unit.Instant(time.Second) / unit.Instant(flows)})
		}
		n.RunUntil(3e9) // until all memory is allocated
		nets = append(nets, n)
	}
	costs := make([][]float64, len(numbers)) // ns per packet
	turns := 0
	for b.Loop() {
		for range 25 {
			turns++
			for i, n := range nets {
				costs[i] = append(costs[i], costOf(n, unit.Instant(400e9/int64(numbers[i]))))
			}
		}
	}
	for i, flows := range numbers {
		ratios := make([]float64, turns)
		for t := range ratios {
			ratios[t] = costs[i][t] / costs[0][t]
		}
		slices.Sort(costs[i])
		slices.Sort(ratios)
		b.ReportMetric(costs[i][turns/2], fmt.Sprintf("ns/packet-%d", flows))
		b.ReportMetric(ratios[turns/2], fmt.Sprintf("times-%d", flows))
	}
}

// costOf continues a network and returns the processor time per packet, in ns.
func costOf(n *Network, d unit.Instant) float64 {
	sent := func() uint64 { return n.Bottleneck(Down).Sent + n.Bottleneck(Up).Sent }
	before, began := sent(), cpuTime()
	n.RunUntil(n.Now() + d)
	return float64((cpuTime() - began).Nanoseconds()) / float64(sent()-before)
}
