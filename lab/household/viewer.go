package household

import (
	"time"

	"unbloat/unit"
)

// How long a receiver waits for what is missing.
const (
	keyPatience = 500 * time.Millisecond // for packets sent again, before it asks for a key frame; and between two such questions
	mostWaiting = 2048                   // packets kept for frames that are not whole
)

// A Fragment is one packet of a call's video, as RTP carries it.
type Fragment struct {
	Seq   uint16       // counts packets, and wraps
	First bool         // of its frame
	Last  bool         // of its frame: RTP's marker
	Key   bool         // of the frame, where First
	No    int          // of the frame, from 0, where First
	Made  unit.Instant // when the camera made the frame, where First
	Bytes unit.Size    // of the frame that it carries
}

// A Shown is a frame that a receiver had whole, and could decode, because it
// had all frames since the last key frame.
type Shown struct {
	No    int
	Made  unit.Instant
	At    unit.Instant
	Key   bool
	Bytes unit.Size
}

// A Viewer is the receiving side of a call's video without a network: it puts
// frames together, says which are shown, and when a key frame is to be asked
// for. Its zero value waits for the first key frame.
type Viewer struct {
	Shown []Shown
	Asked []unit.Instant // when key frames were asked for

	waiting map[int64]Fragment
	next    int64 // the packet after the last frame that was shown
	newest  int64
	begun   bool // next is known
	heard   bool // newest is known
	blocked unit.Instant
	stuck   bool // something is missing since blocked
}

// Receive takes a packet that arrived at an instant, in any order.
func (v *Viewer) Receive(now unit.Instant, f Fragment) {
	if v.waiting == nil {
		v.waiting = map[int64]Fragment{}
	}
	seq := v.unwrap(f.Seq)
	if v.begun && seq < v.next {
		return // of a frame that was given up, or here twice
	}
	v.waiting[seq] = f
	for v.show(now) {
		v.stuck = false // what is missing now has been for no longer
	}
	if stuck := !v.begun || len(v.waiting) > 0 && v.newest > v.next && v.missing(); stuck != v.stuck {
		v.stuck, v.blocked = stuck, now
	}
	if len(v.waiting) > mostWaiting {
		for s := range v.waiting {
			if s < v.newest-mostWaiting/2 {
				delete(v.waiting, s)
			}
		}
	}
}

// Wait asks for a key frame, by returning true, if packets have been missing
// for too long. It is to be called every few milliseconds.
func (v *Viewer) Wait(now unit.Instant) bool {
	if !v.stuck || now.Sub(v.blocked) < keyPatience {
		return false
	}
	v.blocked = now
	v.Asked = append(v.Asked, now)
	return true
}

// unwrap makes a number that wraps one that does not.
func (v *Viewer) unwrap(seq uint16) int64 {
	if !v.heard {
		v.heard, v.newest = true, int64(seq)
		return v.newest
	}
	n := v.newest + int64(int16(seq-uint16(v.newest)))
	v.newest = max(v.newest, n)
	return n
}

// missing says whether a packet of the next frame is missing, though later ones
// are here.
func (v *Viewer) missing() bool {
	for s := v.next; s <= v.newest; s++ {
		f, ok := v.waiting[s]
		if !ok {
			return true
		}
		if f.Last {
			return false
		}
	}
	return false
}

// show shows the next frame, if it is whole, or else the first key frame that is
// whole: it needs nothing before it.
func (v *Viewer) show(now unit.Instant) bool {
	if v.begun && v.whole(now, v.next) {
		return true
	}
	first := int64(-1)
	for s, f := range v.waiting {
		if f.First && f.Key && (first < 0 || s < first) && v.complete(s) > 0 {
			first = s
		}
	}
	if first < 0 {
		return false
	}
	v.begun = true
	v.next = first
	for s := range v.waiting {
		if s < first {
			delete(v.waiting, s)
		}
	}
	return v.whole(now, first)
}

// complete returns how many packets the frame has that begins at s; 0 if it is
// not whole.
func (v *Viewer) complete(s int64) int64 {
	for n := int64(0); ; n++ {
		f, ok := v.waiting[s+n]
		if !ok || f.First != (n == 0) {
			return 0
		}
		if f.Last {
			return n + 1
		}
	}
}

// whole shows the frame that begins at s, if it is whole.
func (v *Viewer) whole(now unit.Instant, s int64) bool {
	n := v.complete(s)
	if n == 0 {
		return false
	}
	head := v.waiting[s]
	shown := Shown{No: head.No, Made: head.Made, At: now, Key: head.Key}
	for k := range n {
		shown.Bytes += v.waiting[s+k].Bytes
		delete(v.waiting, s+k)
	}
	v.next = s + n
	v.Shown = append(v.Shown, shown)
	return true
}

// A freeze as the statistics of WebRTC have it (W3C, Identifiers for WebRTC's
// Statistics API, freezeCount): the next frame took longer than
// max(3 × mean, mean + 150 ms) of the last 30.
const (
	freezeFrames = 30
	freezeMore   = 150 * time.Millisecond
	freezeTimes  = 3
)

// A Freeze is a time for which the picture stood still.
type Freeze struct {
	From unit.Instant `json:"from"`
	To   unit.Instant `json:"to"`
}

// Freezes returns how often the picture stood still in [from, to), and for how
// long together: see Frozen.
func Freezes(shown []unit.Instant, from, to unit.Instant) (count int, frozen time.Duration) {
	all := Frozen(shown, from, to)
	for _, f := range all {
		frozen += f.To.Sub(f.From)
	}
	return len(all), frozen
}

// Frozen returns when the picture stood still in [from, to). The instants are those at
// which frames were shown, in order; a picture that has not come at all stands still
// from the beginning.
func Frozen(shown []unit.Instant, from, to unit.Instant) (all []Freeze) {
	stood := func(since, until unit.Instant) {
		if f := (Freeze{max(since, from), min(until, to)}); f.To > f.From {
			all = append(all, f)
		}
	}
	if len(shown) == 0 {
		stood(from, to)
		return all
	}
	if shown[0].Sub(from) > FrameLength+freezeMore {
		stood(from, shown[0])
	}
	var gaps []time.Duration // the last ones
	var sum time.Duration
	for i, now := range append(shown[1:len(shown):len(shown)], to) {
		since := shown[i]
		gap := now.Sub(since)
		mean := FrameLength
		if len(gaps) > 0 {
			mean = sum / time.Duration(len(gaps))
		}
		if gap > max(freezeTimes*mean, mean+freezeMore) {
			stood(since, now)
		}
		gaps, sum = append(gaps, gap), sum+gap
		if len(gaps) > freezeFrames {
			sum -= gaps[0]
			gaps = gaps[1:]
		}
	}
	return all
}
