package delay

import (
	"testing"
	"time"

	"unbloat/unit"
)

// A peer's clock tells how much longer a segment took than the quickest one, wherever it
// began and though it runs a little fast; one that counts no milliseconds is found out.
func TestPeerClock(t *testing.T) {
	for _, x := range []struct {
		name  string
		rate  float64 // ticks a second
		first uint32
		sure  bool
	}{
		{"milliseconds", 1000, 5, true},
		{"50 ppm fast, and about to wrap", 1000.05, ^uint32(0) - 1000, true},
		{"50 ppm slow", 999.95, 77, true},
		{"hundredths of a second", 100, 0, false},
		{"microseconds", 1e6, 0, false},
	} {
		var c peerClock
		const began = unit.Instant(time.Hour)
		for i := range 2000 {
			left := began.Add(time.Duration(i) * 50 * time.Millisecond)
			queue := time.Duration(0)
			if i%100 > 90 {
				queue = 25 * time.Millisecond
			}
			stamp := x.first + uint32(int64(left.Sub(began).Seconds()*x.rate))
			got, sure := c.behind(left.Add(20*time.Millisecond+queue), stamp)
			if i > 100 && sure != x.sure {
				t.Fatalf("%s: sure %t after %d segments", x.name, sure, i)
			}
			if off := got - queue; x.sure && (off < -3*time.Millisecond || off > 5*time.Millisecond) {
				t.Fatalf("%s: %v behind, the queue is %v, after %d segments", x.name, got, queue, i)
			}
		}
	}
}

// A passive sample says how much of its round trip is the queue towards us.
func TestPassiveWays(t *testing.T) {
	tr := NewTracker(TrackerConfig{})
	at := unit.Instant(time.Hour)
	home, far := datum(0, 0), *datum(0, 0)
	far.Src, far.Dst, far.SrcPort, far.DstPort = home.Dst, home.Src, home.DstPort, home.SrcPort
	var last Sample
	for i := range uint32(200) {
		queue := time.Duration(0)
		if i >= 100 {
			queue = 40 * time.Millisecond
		}
		out := *home
		out.HasStamp, out.TSval, out.Flags = true, 1000+8*i, FlagAck
		tr.Observe(at, true, &out)
		in := far
		in.HasStamp, in.TSval, in.TSecr, in.Flags = true, 70000+8*i+15, 1000+8*i, FlagAck
		in.Seq, in.Length = 1448*i, 1448
		back := at.Add(30*time.Millisecond + queue)
		tr.Observe(back, false, &in)
		tr.Collect(back, func(s Sample) { last = s })
		if at = at.Add(8 * time.Millisecond); i == 99 || i == 199 {
			if !last.OneWay || last.Down < queue-time.Millisecond || last.Down > queue+2*time.Millisecond || last.Down+last.Up != last.RTT {
				t.Errorf("with a queue of %v: %+v", queue, last)
			}
		}
	}
}
