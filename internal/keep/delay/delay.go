// Package delay measures how long packets take over a line, for the controller
// that follows it. It is pure: packets, answers and instants come in, samples
// come out; package steer drives it with sockets.
//
// There are four sources:
//
//   - Tracker reads the TCP timestamps of other people's connections on the WAN.
//     It sends nothing.
//   - Prober sends few and small probes to reflectors: ICMP echo or ICMP
//     timestamp to public resolvers of several operators, and UDP to an
//     unbloat serve.
//   - The first hop is one of the Prober's reflectors: an echo with a hop limit.
//   - Envelope takes clock skew out of one-way times.
//
// Losses finds out in the same segments what the line loses.
//
// Each sample says where it comes from. Which reflector is asked when, what is
// normal for a source, whether it can be believed, and what several of them say
// together is the controller's business; Pace says how often the budget allows
// it to ask.
package delay

import (
	"net/netip"
	"time"

	"unbloat/unit"
)

// A Kind says how a sample was taken.
type Kind uint8

// Kinds of samples.
const (
	Echo     Kind = iota + 1 // ICMP echo: round trip only
	Stamp                    // ICMP timestamp: each way too, in whole milliseconds
	FirstHop                 // ICMP echo that ends at the provider's first router
	Native                   // UDP to an unbloat serve: each way too
	Passive                  // TCP timestamps of a connection on the line
)

// String names the kind in one word.
func (k Kind) String() string {
	switch k {
	case Echo:
		return "echo"
	case Stamp:
		return "stamp"
	case FirstHop:
		return "firsthop"
	case Native:
		return "native"
	case Passive:
		return "passive"
	}
	return "unknown"
}

// A Way says in which direction a passive connection moved the data that was timed.
type Way uint8

// Ways. A round trip crosses the line both ways, whichever way the data go; the
// way says which queue the connection itself helps to fill.
const (
	NoWay Way = iota // neither: a probe, or the opening of a connection
	Up               // towards the provider
	Down             // from the provider
)

// A Sample is one measurement of a source.
type Sample struct {
	At     unit.Instant // when the answer came
	Kind   Kind
	Index  int        // of the Prober's target; of passive samples -1
	Source netip.Addr // who answered; of passive samples the peer's network (/24 or /48)
	Way    Way        // of passive samples

	// RTT is the round trip: of passive samples without our own queues, of probes
	// with them, where packets so small and so few do not wait for long.
	RTT time.Duration
	// OneWay says that Up and Down are set: how much longer each way took than
	// the quickest packet of the last minutes, skew of the clocks taken out. Of passive
	// samples Up has all of the round trip that is not the queue down.
	OneWay   bool
	Up, Down time.Duration
}

// ID returns a number that tells the sample's source from others and stays the
// same as long as the address: a hash.
func (s *Sample) ID() uint32 {
	const prime = 16777619 // of FNV
	h := uint32(2166136261)
	for _, b := range s.Source.As16() {
		h = (h ^ uint32(b)) * prime
	}
	return h
}
