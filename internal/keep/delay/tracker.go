package delay

import (
	"net/netip"
	"time"

	"unbloat/unit"
)

// A Tracker finds round trips in the TCP segments that cross the WAN. It looks
// where a socket filter on the WAN's interface does: uploads pass there after
// they left our queue, downloads before they enter ours. So what it finds is the
// delay of the line and of the way behind it, without our own queue:
//
//   - Data out, acknowledgement in (Up): the segment that an acknowledgement ends
//     at has triggered it. The time between them is the queue of the modem, the
//     way there and back, and the provider's queue for the acknowledgement.
//   - Acknowledgement out, data in (Down): the first data that echo the stamp of
//     an acknowledgement were sent in answer to it, if the sender had more to
//     send. The time is that of the acknowledgement's way, and the provider's
//     queue, where the data wait.
//   - SYN out, SYN and ACK in, and the other way round: answered by the kernel at
//     once. These give the delay of an idle line.
//
// Stamps and sequence numbers together keep out what is no round trip: the
// answer to a segment that was sent again, acknowledgements that waited for a
// second segment, and data that the server had not got yet.
//
// All memory is taken in NewTracker; a segment allocates nothing. A Tracker is
// for one goroutine.
type Tracker struct {
	flows []flow
	nets  []network
	mask  uint32
	seed  uint32
	gap   time.Duration
	stats TrackerStats
}

// TrackerStats count what a Tracker has seen since it was made.
type TrackerStats struct {
	Segments uint64 // with stamps, or that end a connection
	Matched  uint64 // answers that gave a round trip
	Refused  uint64 // answers that may have waited at the peer
	Evicted  uint64 // connections forgotten because the table was full
}

// TrackerConfig bounds a Tracker. Zero values take the defaults.
type TrackerConfig struct {
	Flows    int    // connections at once; 512, rounded up to a power of two
	Networks int    // peers' networks at once; 64
	Seed     uint32 // of the hash table
}

const (
	marksPerFlow = 12 // segments of one connection that wait for their answer
	ways         = 4  // of the hash table's associativity
	// markSpacing is the least time between two marks of a connection.
	markSpacing = 2 * time.Millisecond
	// soon is less than any timer of delayed acknowledgements (RFC 5681: at most
	// 500 ms; systems use 25 ms and more).
	soon = 20 * time.Millisecond
	// diceFactor gives a generator of 8 bits its full period.
	diceFactor = 141
	// markAge is how long an answer may take.
	markAge = 10 * time.Second
	// networkAge is how long a network without samples keeps its place.
	networkAge = 10 * time.Minute
	// leastGap is the pause in a download that does not make its next segment
	// suspect. See continuous.
	leastGap = 10 * time.Millisecond
)

type markKind uint8

const (
	markSyn markKind = iota + 1
	markData
	markAck
)

// A mark is a segment that left, and whose answer is waited for.
type mark struct {
	at         unit.Instant
	tsval      uint32
	start, end uint32 // sequence numbers: of the first byte, and behind the last
	kind       markKind
	followed   bool // more data left soon after it
}

// A flow is one connection, as seen from our side.
type flow struct {
	local, remote netip.AddrPort
	seen          unit.Instant // zero: free
	marked        unit.Instant
	dataIn        unit.Instant // when data last came in
	highest       uint32       // sequence number behind all that was sent
	acked         uint32       // last acknowledgement that came in
	tsval         uint32       // newest stamp sent
	clock         peerClock
	hasHighest    bool
	hasAcked      bool
	hasTSval      bool
	skip          uint8 // segments to pass over before the next mark
	dice          uint8 // a congruential generator, for skip
	n             int
	marks         [marksPerFlow]mark // the first n, oldest first
}

// A network is what peers of one /24 or /48 have in common: the way to them.
type network struct {
	prefix netip.Addr
	seen   unit.Instant
	way    [2]waySample
}

// A waySample is the least round trip since the last Collect.
type waySample struct {
	rtt    time.Duration
	behind time.Duration // of it, the queue towards us
	parted bool          // that is known
	at     unit.Instant
	n      int
	syn    bool
}

// NewTracker returns a tracker.
func NewTracker(c TrackerConfig) *Tracker {
	const flows, networks = 512, 64
	if c.Flows <= 0 {
		c.Flows = flows
	}
	if c.Networks <= 0 {
		c.Networks = networks
	}
	size := ways
	for size < c.Flows {
		size *= 2
	}
	return &Tracker{flows: make([]flow, size), nets: make([]network, c.Networks), mask: uint32(size/ways - 1), seed: c.Seed, gap: leastGap}
}

// Stats returns the counters.
func (t *Tracker) Stats() TrackerStats { return t.stats }

// Sampled tells the tracker that it sees only the segments whose stamps fall
// into every so many (Gate.Period), because the line is fast.
func (t *Tracker) Sampled(period time.Duration) { t.gap = leastGap + period }

// Reset forgets all connections and networks: after the WAN's address or route
// has changed, nothing that was under way is answered.
func (t *Tracker) Reset() {
	clear(t.flows)
	clear(t.nets)
}

// Observe takes in a segment that crossed the WAN's interface at an instant, out
// towards the provider or in.
func (t *Tracker) Observe(at unit.Instant, out bool, s *Segment) {
	ends := s.Flags&FlagRst != 0
	if !s.HasStamp && !ends {
		return
	}
	t.stats.Segments++
	local, remote := netip.AddrPortFrom(s.Src, s.SrcPort), netip.AddrPortFrom(s.Dst, s.DstPort)
	if !out {
		local, remote = remote, local
	}
	f := t.find(local, remote, at, out && !ends)
	if f == nil {
		return
	}
	if ends {
		*f = flow{}
		return
	}
	f.seen = at
	if out {
		f.leave(at, s)
		return
	}
	t.arrive(f, at, s)
}

// find returns a connection, made if wanted, or nil.
func (t *Tracker) find(local, remote netip.AddrPort, at unit.Instant, add bool) *flow {
	set := t.flows[int(hash(t.seed, local, remote)&t.mask)*ways:][:ways]
	oldest := &set[0]
	for i := range set {
		f := &set[i]
		if f.seen != 0 && f.remote == remote && f.local == local {
			return f
		}
		if f.seen < oldest.seen {
			oldest = f
		}
	}
	if !add {
		return nil
	}
	if oldest.seen != 0 && at.Sub(oldest.seen) < markAge {
		t.stats.Evicted++
	}
	*oldest = flow{local: local, remote: remote, seen: at}
	return oldest
}

func hash(seed uint32, from, to netip.AddrPort) uint32 {
	const prime = 16777619 // of FNV
	h := uint32(2166136261) ^ seed
	for _, p := range [2]netip.AddrPort{from, to} {
		b := p.Addr().As16()
		for i := 0; i < len(b); i += 4 {
			h = (h ^ (uint32(b[i])<<24 | uint32(b[i+1])<<16 | uint32(b[i+2])<<8 | uint32(b[i+3]))) * prime
			h ^= h >> 15
		}
		h = (h ^ uint32(p.Port())) * prime
	}
	return h ^ h>>16
}

// after says that a comes after b, as sequence numbers and stamps do that wrap.
func after(a, b uint32) bool { return int32(a-b) > 0 }

// leave takes in a segment that left.
func (f *flow) leave(at unit.Instant, s *Segment) {
	m := mark{at: at, tsval: s.TSval, start: s.Seq, end: s.Seq + s.Length}
	fresh := !f.hasTSval || after(s.TSval, f.tsval)
	switch {
	case s.Flags&FlagSyn != 0: // a new connection, whatever had these ports before
		*f = flow{local: f.local, remote: f.remote, seen: at}
		m.end++
		m.kind = markSyn
		f.highest, f.hasHighest = m.end, true
	case s.Length > 0:
		again := f.hasHighest && !after(m.end, f.highest)
		if !again {
			m.kind = markData
			if last := f.n - 1; last >= 0 && at.Sub(f.marks[last].at) <= soon {
				f.marks[last].followed = true
			}
			f.highest, f.hasHighest = m.end, true
		}
	case s.Flags&FlagFin == 0 && fresh:
		m.kind = markAck
	}
	if fresh {
		f.tsval, f.hasTSval = s.TSval, true
	}
	if m.kind == 0 || f.n > 0 && at.Sub(f.marked) < markSpacing && m.kind != markSyn {
		return
	}
	if m.kind == markData && f.skip > 0 {
		f.skip--
		return
	}
	if f.n == len(f.marks) {
		if at.Sub(f.marks[0].at) <= markAge {
			return // enough are under way; as they are answered, others take their places
		}
		f.drop(1)
	}
	f.marks[f.n] = m
	f.n++
	f.marked = at
}

// drop forgets the n oldest marks.
func (f *flow) drop(n int) {
	copy(f.marks[:], f.marks[n:f.n])
	f.n -= n
}

// arrive takes in a segment that came.
func (t *Tracker) arrive(f *flow, at unit.Instant, s *Segment) {
	if s.Flags&FlagAck == 0 {
		return
	}
	behind, parted := f.clock.behind(at, s.TSval)
	keep := 0
	for i := range f.n {
		m := &f.marks[i]
		rtt := at.Sub(m.at)
		matched, over := m.answered(s)
		switch {
		case matched && rtt > 0 && rtt <= markAge:
			if f.waited(m, at, rtt, s, t.gap) {
				t.stats.Refused++
			} else {
				t.file(f.remote.Addr(), m.kind, waySample{rtt: rtt, at: at, behind: min(behind, rtt), parted: parted})
			}
		case !matched && !over && rtt <= markAge:
			f.marks[keep] = *m
			keep++
		case over && m.kind == markData:
			// The peer acknowledges every second segment, or every so many. Marks
			// that keep their distance might always fall between.
			f.dice = f.dice*diceFactor + 3
			f.skip = f.dice >> 5
		}
	}
	f.n = keep
	if s.Length > 0 {
		f.dataIn = at
	}
	f.acked, f.hasAcked = s.Ack, true
}

// answered says whether s is the answer to a mark, or comes after it.
func (m *mark) answered(s *Segment) (matched, over bool) {
	switch m.kind {
	case markAck:
		return s.Length > 0 && s.TSecr == m.tsval, after(s.TSecr, m.tsval)
	case markSyn:
		return s.Ack == m.end && s.TSecr == m.tsval, after(s.Ack, m.end) || after(s.TSecr, m.tsval)
	default:
		// A stamp after the mark's belongs to a segment that was sent again.
		return s.Ack == m.end && !after(s.TSecr, m.tsval), !after(m.end, s.Ack)
	}
}

// waited says that an answer may have waited at the peer.
func (f *flow) waited(m *mark, at unit.Instant, rtt time.Duration, s *Segment, gap time.Duration) bool {
	switch m.kind {
	case markAck:
		// The sender may have had nothing to send when the acknowledgement came. It
		// waited at most as long as it was silent. A quarter of the whole is the
		// error allowed: on slow lines segments are far apart.
		return f.dataIn == 0 || at.Sub(f.dataIn) > max(gap, rtt/4)
	case markData:
		// A single segment may be acknowledged only when the peer's timer ends, or
		// with the peer's own data, unless a second one came before.
		alone := !f.hasAcked || s.Ack-f.acked <= m.end-m.start
		return alone && !m.followed
	}
	return false
}

// file enters a round trip.
func (t *Tracker) file(remote netip.Addr, kind markKind, x waySample) {
	t.stats.Matched++
	n := t.network(x.at, Network(remote))
	w := &n.way[0]
	if kind == markAck {
		w = &n.way[1]
	}
	if w.n == 0 || x.rtt < w.rtt {
		x.n, x.syn = w.n, kind == markSyn
		*w = x
	}
	w.n++
	n.seen = x.at
}

// network returns the place of a network, made if it has none.
func (t *Tracker) network(at unit.Instant, prefix netip.Addr) *network {
	oldest := &t.nets[0]
	for i := range t.nets {
		n := &t.nets[i]
		if n.prefix == prefix {
			return n
		}
		if n.seen < oldest.seen {
			oldest = n
		}
	}
	*oldest = network{prefix: prefix, seen: at}
	return oldest
}

// Network returns the network that an address is taken to share its way with:
// the /24 of IPv4, the /48 of IPv6, by its first address.
func Network(a netip.Addr) netip.Addr {
	if a = a.Unmap(); a.Is4() {
		b := a.As4()
		b[3] = 0
		return netip.AddrFrom4(b)
	}
	b := a.As16()
	clear(b[6:])
	return netip.AddrFrom16(b)
}

// Collect hands over what was found since the last Collect: of each network and
// way the least round trip, since all that disturbs the measurement makes it
// longer. Called every 50 to 200 ms, it loses nothing of a queue.
func (t *Tracker) Collect(now unit.Instant, receive func(Sample)) {
	for i := range t.nets {
		n := &t.nets[i]
		for k := range n.way {
			w := &n.way[k]
			if w.n == 0 {
				continue
			}
			s := Sample{At: w.at, Kind: Passive, Index: -1, Source: n.prefix, RTT: w.rtt, Way: Up}
			if s.OneWay = w.parted; w.parted {
				s.Down, s.Up = w.behind, w.rtt-w.behind
			}
			if k == 1 {
				s.Way = Down
			}
			if w.syn {
				s.Way = NoWay
			}
			*w = waySample{}
			receive(s)
		}
		if n.seen != 0 && now.Sub(n.seen) > networkAge {
			*n = network{}
		}
	}
}

// A Gate decides how few segments the kernel hands over, so that the
// processor's price stays the same on a fast line: only those whose stamps fall
// into two of every 2^Bits milliseconds. Both ends of a round trip carry the
// same stamp, so pairs stay whole.
type Gate struct{ bits int }

// Bounds of a Gate, in segments a second that reach the Tracker.
const (
	gateMost  = 1000
	gateLeast = 200
	gateBits  = 8
)

// Adjust takes in how many segments reached the Tracker in the last second, and
// returns whether the filter is to be changed.
func (g *Gate) Adjust(segments float64) bool {
	switch {
	case segments > gateMost && g.bits < gateBits:
		g.bits = max(g.bits+1, 2)
	case segments < gateLeast && g.bits > 0:
		if g.bits--; g.bits < 2 {
			g.bits = 0
		}
	default:
		return false
	}
	return true
}

// Mask returns the bits of a stamp that must be zero; zero lets all pass.
func (g *Gate) Mask() uint32 {
	if g.bits == 0 {
		return 0
	}
	return (1<<g.bits - 1) &^ 1
}

// Period returns the time between two openings; stamps count milliseconds.
func (g *Gate) Period() time.Duration {
	if g.bits == 0 {
		return 0
	}
	return time.Duration(1<<g.bits) * time.Millisecond
}
