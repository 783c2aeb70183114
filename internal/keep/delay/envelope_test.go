package delay

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"unbloat/unit"
)

// Law: whatever the offset of the two clocks and the difference of their speeds,
// what lies above the line is the queue's delay to within the resolution, once a
// few minutes are over, if a quarter of the packets meets no queue. With fewer
// than one packet a second it takes the whole window, and is less exact.
func TestEnvelopeLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		offset := time.Duration(rapid.Int64Range(-int64(13*time.Hour), int64(13*time.Hour)).Draw(t, "offset"))
		skew := rapid.Float64Range(-300e-6, 300e-6).Draw(t, "skew")
		apart := time.Duration(rapid.IntRange(100, 3000).Draw(t, "apart")) * ms
		grain := rapid.SampledFrom([]time.Duration{1, ms}).Draw(t, "grain")
		var e Envelope
		began := unit.Instant(1.8e18)
		for at := began; at.Sub(began) < 12*time.Minute; at = at.Add(apart) {
			queue := time.Duration(0)
			if random.IntN(4) > 0 { // else idle
				queue = time.Duration(random.ExpFloat64() * float64(80*ms))
			}
			since := at.Sub(began)
			apparent := 20*ms + offset + time.Duration(skew*float64(since)) + queue
			apparent = apparent / grain * grain
			got := e.Add(at, apparent)
			if got < 0 {
				t.Fatalf("%v below the line", got)
			}
			slack, begin := 2*grain+ms, 2*time.Minute
			if apart > time.Second {
				slack, begin = slack+15*ms, EnvelopeWindow
			}
			if since < begin {
				continue
			}
			if d := (got - queue).Abs(); d > slack {
				t.Fatalf("after %v: %v above the line, the queue is %v; skew %v, found %v", since, got, queue, skew, e.Skew())
			}
		}
		if grain == 1 && apart < time.Second && math.Abs(e.Skew()-skew) > 20e-6 {
			t.Fatalf("skew %v, found %v", skew, e.Skew())
		}
	})
}

// A queue that stands for minutes still shows, and does not bend the line for
// longer than the window.
func TestEnvelopeOfLongLoad(t *testing.T) {
	var e Envelope
	at := unit.Instant(time.Hour)
	add := func(d time.Duration) time.Duration {
		at = at.Add(200 * ms)
		return e.Add(at, d)
	}
	for range 5 * 180 {
		add(30 * ms)
	}
	for range 5 * 120 {
		if got := add(130 * ms); got < 99*ms {
			t.Fatalf("%v above the line after %v", got, at)
		}
	}
	for range 5 * 30 {
		if got := add(30 * ms); got > ms {
			t.Fatalf("%v above the line, and there is no queue", got)
		}
	}
}

func BenchmarkEnvelope(b *testing.B) {
	var e Envelope
	at := unit.Instant(time.Hour)
	for b.Loop() {
		at = at.Add(130 * ms)
		e.Add(at, 30*ms)
	}
	b.ReportAllocs()
}
