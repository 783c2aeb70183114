package delay

import (
	"math/bits"
	"net/netip"

	"unbloat/unit"
)

// Losses finds out what the line loses of the TCP data that cross the WAN, and what our
// own shaper drops. It looks where a Tracker does: at downloads before our shaper, at
// uploads behind it. Of each KiB of a connection's sequence numbers it follows one byte,
// which exactly one segment carries, whatever their sizes. A byte that is passed over is
// a hole, and one that crosses again was sent again:
//
//   - Down a hole is what the line, or the way behind it, has lost. What comes again
//     after it had come was dropped behind here: by our shaper.
//   - Up what leaves again was lost by the line, or behind it. A hole is what our shaper
//     dropped; it is filled later.
//
// On a fast line it sees only some blocks of sequence numbers, but of these all that was
// sent, again too. All memory is taken in NewLosses; a segment allocates nothing.
type Losses struct {
	flows []lossFlow
	ways  [2]lossWay // down, up
}

// Loss is what was lost of a direction's data, in KiB that were followed.
type Loss struct {
	Seen uint64 // that crossed
	Line uint64 // that the line lost
	Own  uint64 // that our shaper dropped
}

const (
	lossFlows   = 256     // connections and directions at once
	lossBlock   = 1 << 16 // bytes of sequence numbers that are followed together: a bit each KiB in a word
	lossPoint   = lossBlock / 64
	leastData   = 256 // bytes of data that a segment has to have: netio's filter lets no smaller packets pass
	lossMost    = 800 // segments a second and direction; with more, every second block is left out
	lossLeast   = lossMost / 4
	lossGateMax = 15 // of 65536 blocks two are left
)

// A lossFlow is what has crossed of the two blocks that a connection's data were last in,
// in one direction.
type lossFlow struct {
	key   uint64 // of its addresses and ports: a hash
	seen  unit.Instant
	block [2]lossBits // the newer one first
}

// lossBits are a block's bytes that are followed.
type lossBits struct {
	start uint32
	used  bool
	bits  uint64 // that have crossed
}

type lossWay struct {
	loss     Loss
	gate     int    // of 1<<gate blocks one is followed
	segments uint64 // since the last adjust
}

// NewLosses returns one that has seen nothing.
func NewLosses() *Losses { return &Losses{flows: make([]lossFlow, lossFlows)} }

// Loss returns what a direction has lost since NewLosses.
func (l *Losses) Loss(out bool) Loss { return l.way(out).loss }

func (l *Losses) way(out bool) *lossWay {
	if out {
		return &l.ways[1]
	}
	return &l.ways[0]
}

// Mask returns the bits of a segment's sequence number that must be zero.
func (l *Losses) Mask(out bool) uint32 { return (1<<l.way(out).gate - 1) * lossBlock }

// Passes says whether a segment is one to Observe.
func (l *Losses) Passes(out bool, s *Segment) bool {
	return s.Length >= leastData && s.Seq&l.Mask(out) == 0
}

// Observe takes in a segment that crossed the WAN's interface.
func (l *Losses) Observe(at unit.Instant, out bool, s *Segment) {
	w := l.way(out)
	w.segments++
	start := s.Seq &^ (lossBlock - 1)
	b := l.find(at, s).at(start)
	if b == nil {
		return // of a block long past
	}
	// What reaches into the next block is left out there.
	from, to := (s.Seq-start+lossPoint-1)/lossPoint, (min(s.Seq-start+s.Length, lossBlock)+lossPoint-1)/lossPoint
	if from >= to {
		return
	}
	is := (uint64(1)<<(to-from) - 1) << from
	again := uint64(bits.OnesCount64(is & b.bits))
	holes := uint64(0)
	if top := uint32(bits.Len64(b.bits)); top > 0 && from > top {
		holes = uint64(from - top)
	}
	b.bits |= is
	w.loss.Seen += uint64(bits.OnesCount64(is)) - again
	line, own := holes, again
	if out {
		line, own = again, holes
	}
	w.loss.Line += line
	w.loss.Own += own
}

// at returns a block's bits, a new one's if it comes after the others; nil: it is older.
func (f *lossFlow) at(start uint32) *lossBits {
	for i := range f.block {
		if b := &f.block[i]; b.used && b.start == start {
			return b
		}
	}
	if newest := &f.block[0]; newest.used && !after(start, newest.start) {
		return nil
	}
	f.block[1] = f.block[0]
	f.block[0] = lossBits{start: start, used: true}
	return &f.block[0]
}

// find returns a connection's place, in that of the one that is silent for longest if it has none.
func (l *Losses) find(at unit.Instant, s *Segment) *lossFlow {
	from, to := netip.AddrPortFrom(s.Src, s.SrcPort), netip.AddrPortFrom(s.Dst, s.DstPort)
	key := uint64(hash(0, from, to))<<32 | uint64(hash(1, from, to))
	set := l.flows[key%(lossFlows/ways)*ways:][:ways]
	f := &set[0]
	for i := range set {
		x := &set[i]
		if x.key == key && at.Sub(x.seen) <= markAge { // else it may be another connection
			x.seen = at
			return x
		}
		if x.seen < f.seen {
			f = x
		}
	}
	*f = lossFlow{key: key, seen: at}
	return f
}

// Missed says that segments have crossed unseen.
func (l *Losses) Missed() { clear(l.flows) }

// adjust thins out what is followed of a direction, and says whether it has changed.
func (w *lossWay) adjust(seconds float64) bool {
	rate := float64(w.segments) / seconds
	w.segments = 0
	switch {
	case rate > lossMost && w.gate < lossGateMax:
		w.gate++
	case rate < lossLeast && w.gate > 0:
		w.gate--
	default:
		return false
	}
	return true
}
