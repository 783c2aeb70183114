package tune

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/probe"
	"unbloat/unit"
)

// loaded returns a phase of 5 s whose probes, one each 20 ms, have the given round
// trip; 0: no answer.
func loaded(rtt func(at time.Duration) time.Duration) *phases.RawPhase {
	raw := &phases.RawPhase{From: unit.Instant(2 * time.Second), To: unit.Instant(7 * time.Second)}
	for at := unit.Instant(0); at.Before(raw.To); at = at.Add(20 * time.Millisecond) {
		s := probe.Sample{Sent: at}
		if d := rtt(at.Sub(raw.From)); d > 0 {
			s.Received, s.Fate = at.Add(d), probe.Answered
		}
		raw.Samples = append(raw.Samples, s)
	}
	return raw
}

// The burst with which a phase's flows start is left out; what lasts, comes back or
// grows is not.
func TestAfterStart(t *testing.T) {
	ms := time.Millisecond
	for name, c := range map[string]struct {
		rtt  func(at time.Duration) time.Duration
		want time.Duration // left out
	}{
		"steady": {func(time.Duration) time.Duration { return 25 * ms }, 0},
		"a burst that drains": {func(at time.Duration) time.Duration {
			return max(25*ms, 325*ms-at/5) // in 1.5 s
		}, 1460 * ms},
		"its probes are lost": {func(at time.Duration) time.Duration {
			if at < 700*ms {
				return 0
			}
			return 25 * ms
		}, 680 * ms},
		"a burst that takes too long": {func(at time.Duration) time.Duration { return max(25*ms, 425*ms-at/6) }, 0},
		"a queue that stands":         {func(time.Duration) time.Duration { return 325 * ms }, 0},
		"a queue that grows":          {func(at time.Duration) time.Duration { return 25*ms + max(0, at)/10 }, 0},
		"a burst that comes back": {func(at time.Duration) time.Duration {
			if at%time.Second < 300*ms {
				return 125 * ms
			}
			return 25 * ms
		}, 0},
	} {
		raw := loaded(c.rtt)
		from := raw.From
		afterStart(raw)
		if got := raw.From.Sub(from).Truncate(20 * ms); got != c.want {
			t.Errorf("%s: %v is left out, want %v", name, got, c.want)
		}
	}
}

// Whatever the delay is, no more than longestStart is left out, and no second half.
func TestAfterStartLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rtts := rapid.SliceOfN(rapid.IntRange(0, 400), 400, 400).Draw(t, "ms")
		raw := loaded(func(at time.Duration) time.Duration {
			return time.Duration(rtts[int((at+2*time.Second)/(20*time.Millisecond))]) * time.Millisecond
		})
		from, to := raw.From, raw.To
		raw.To = raw.From.Add(time.Duration(rapid.IntRange(1, 5000).Draw(t, "length")) * time.Millisecond)
		half := raw.To.Sub(from) / 2
		afterStart(raw)
		if cut := raw.From.Sub(from); cut < 0 || cut > min(longestStart, half) {
			t.Fatalf("%v of %v is left out", cut, to.Sub(from))
		}
	})
}
