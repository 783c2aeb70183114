// Package path finds where on the path to a host latency and loss start. It has
// mtr's figures of every hop, idle and under load, and the link that causes the
// increase. It is pure: the Tracer decides when to send which probe, and receives
// the answers; Walk runs it with sockets.
//
// The way of a probe: Tracer.Poll → Codec.Append → socket → Codec.Parse →
// Tracer.Receive → Tracer.Hops → Judge → Result → Write (text) or JSON.
package path

import (
	"net/netip"
	"time"
)

// A Phase is the part of a trace to which a probe belongs, by when it was sent.
type Phase uint8

// Phases. Probes of Uncounted discover hops but are in no figure: they leave
// while a load starts.
const (
	Uncounted Phase = iota
	Idle
	Loaded
	Marked // each probe carries one of Config.Marks
	nPhases
)

// SeqSpace is the number of sequence numbers: 0 to SeqSpace-1, then from the
// beginning. It is small enough for one UDP port a number.
const SeqSpace = 4096

// Bounds of a Config, and its defaults.
const (
	// DefaultInterval is what Linux's routers answer without end: they send one
	// "time exceeded" a second to each host, and six in a burst (icmp_ratelimit
	// and XRLIM_BURST_FACTOR of the kernel). Faster probing would show loss that
	// is only the limit.
	DefaultInterval = time.Second
	MinInterval     = 200 * time.Millisecond
	DefaultMaxHops  = 30
	MaxMaxHops      = 64
	// MaxUnknown is how many silent hops in a row are probed beyond the last that answers.
	MaxUnknown = 8
	// Grace is how long after its sending the answer to a probe still counts:
	// queues of several seconds are what this program is for.
	Grace = 10 * time.Second
)

// A Config says how a path is traced. Zero values take the defaults.
type Config struct {
	Interval time.Duration // between two probes to the same hop
	MaxHops  int
	Marks    []uint8 // traffic classes of the probes of Marked, in turn
}

func (c Config) withDefaults() Config {
	if c.Interval <= 0 {
		c.Interval = DefaultInterval
	}
	c.Interval = max(c.Interval, MinInterval)
	if c.MaxHops <= 0 {
		c.MaxHops = DefaultMaxHops
	}
	c.MaxHops = min(c.MaxHops, MaxMaxHops)
	return c
}

// A Probe is to be sent at once, passing at most TTL hops.
type Probe struct {
	Seq   uint16 // below SeqSpace
	TTL   int    // from 1
	Class uint8  // traffic class: DSCP and ECN
}

// A Kind says what an answer means.
type Kind uint8

// Kinds of answers.
const (
	Exceeded Kind = iota + 1 // a router on the way: the probe's hops were used up (RFC 792, RFC 4443 section 3.3)
	Arrived                  // the destination itself
	Refused                  // the path ends here: a router reports the destination unreachable
)

// A Reply is an answer to a probe.
type Reply struct {
	Seq  uint16
	Kind Kind
	From netip.Addr
	Why  string // of Refused: what was said
	// Quoted says that Class is the traffic class with which the probe came there.
	Quoted bool
	Class  uint8
}

// A Hop is one step of the path, as far as it is known.
type Hop struct {
	TTL         int
	Addrs       []netip.Addr // who answered there, most answers first; empty: nobody
	Destination bool         // the destination answered here
	Refusal     string       // why the path ends here before the destination
	Idle        Stats
	Loaded      Stats
	// Quoted has, of each traffic class that was sent, how often the hop quoted which.
	Quoted map[uint8]map[uint8]int
}

// Addr returns the hop's usual address; the zero Addr if it is silent.
func (h Hop) Addr() netip.Addr {
	if len(h.Addrs) == 0 {
		return netip.Addr{}
	}
	return h.Addrs[0]
}

// Stats are the figures of one hop in one phase.
type Stats struct {
	Sent int             // with those under way
	Lost int             // no answer came within Grace
	RTTs []time.Duration // of those answered, in the order they were sent
}

// Loss returns the share of probes lost, 0–1, of those whose fate is known.
func (s Stats) Loss() float64 {
	if known := s.Lost + len(s.RTTs); known > 0 {
		return float64(s.Lost) / float64(known)
	}
	return 0
}
