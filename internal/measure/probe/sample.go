package probe

import (
	"time"

	"unbloat/unit"
)

// A Sample is the life of one probe. Instants of the client's clock and of the
// server's clock have different origins; only differences within one clock, or
// changes of a difference across both, mean anything.
type Sample struct {
	Seq            uint32
	Count          uint32       // requests the server had received when it answered
	Scheduled      unit.Instant // client's clock
	Sent           unit.Instant // client's clock
	Received       unit.Instant // client's clock; zero: no answer (yet)
	ServerReceived unit.Instant // server's clock
	ServerSent     unit.Instant // server's clock
	Fate           Fate
}

// Fate says what became of a probe.
type Fate uint8

// Fates. A probe without an answer is Open until a later answer (or the
// server's final count) says on which side it was lost.
const (
	Open     Fate = iota
	Answered      // a reply arrived
	LostUp        // the server never received it
	LostDown      // the server answered, but the answer never arrived
	Lost          // on either way: this protocol does not tell
)

// RTT returns the round trip without the time the server kept the probe. Only
// for an Answered sample.
func (s *Sample) RTT() time.Duration {
	return s.Received.Sub(s.Sent) - s.ServerSent.Sub(s.ServerReceived)
}

// OneWay reports whether the server reported when it received and answered, so
// that Up and Down mean something. Only for an Answered sample.
func (s *Sample) OneWay() bool { return s.ServerReceived != 0 && s.ServerSent != 0 }

// Up returns the apparent one-way time towards the server: true time plus the
// unknown offset between the two clocks.
func (s *Sample) Up() time.Duration { return s.ServerReceived.Sub(s.Sent) }

// Down returns the apparent one-way time from the server: true time less the
// unknown offset between the two clocks.
func (s *Sample) Down() time.Duration { return s.Received.Sub(s.ServerSent) }

// Lateness returns how long after its schedule the probe left.
func (s *Sample) Lateness() time.Duration { return s.Sent.Sub(s.Scheduled) }

// ClockOffset estimates the server's clock less the client's from the samples:
// the one with the shortest round trip has met the least queueing, and half of
// its round trip is taken for each way (as NTP does, RFC 5905 section 8). It
// returns false if no sample was answered.
func ClockOffset(samples []Sample) (time.Duration, bool) {
	best, offset, ok := time.Duration(0), time.Duration(0), false
	for i := range samples {
		s := &samples[i]
		if s.Fate != Answered || !s.OneWay() {
			continue
		}
		if rtt := s.RTT(); !ok || rtt < best {
			best, offset, ok = rtt, (s.Up()-s.Down())/2, true
		}
	}
	return offset, ok
}

// store keeps samples in chunks, so that a long session neither moves nor
// reallocates what it has: one allocation every chunkLen probes.
type store struct {
	chunks [][]Sample
	n      int
}

const chunkLen = 1024

func (t *store) add(s Sample) {
	if t.n%chunkLen == 0 {
		t.chunks = append(t.chunks, make([]Sample, 0, chunkLen))
	}
	last := len(t.chunks) - 1
	t.chunks[last] = append(t.chunks[last], s)
	t.n++
}

func (t *store) at(i int) *Sample { return &t.chunks[i/chunkLen][i%chunkLen] }

// from returns the index of the first sample sent at or after when.
func (t *store) from(when unit.Instant) int {
	lo, hi := 0, t.n
	for lo < hi {
		mid := (lo + hi) / 2
		if t.at(mid).Sent.Before(when) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// trim forgets the samples but keeps their number, for senders that need no answers.
func (t *store) trim() {
	if t.n%chunkLen == 0 && len(t.chunks) > 0 {
		t.chunks[len(t.chunks)-1] = nil
	}
}
