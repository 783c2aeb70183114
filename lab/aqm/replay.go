// This part checks the queues of package aqm against golden traces: lists
// of packets with the fate that a real implementation gave each of them.
//
// A trace is text, gzipped or plain. Its first line is "# " and a JSON object
// of parameters; further lines that begin with # are comments; each other line
// is
//
//	seq enqueue_ns flow bytes fate time_ns [mark]
//
// in the order of arrival. The fate is sent, drop or left; the time is that of
// the dequeue or the drop, in the same nanoseconds as the arrivals; mark says
// that the packet left with ECN's CE. A packet that is still queued at the end
// is left, and its time means nothing.

package aqm

import (
	"errors"
	"fmt"
	"io"
	"time"

	"unbloat/unit"
)

// Fate is what became of a packet.
type Fate uint8

// The fates, as traces write them.
const (
	Left Fate = iota // still queued at the end
	Sent
	Dropped
)

// String returns the word that traces use.
func (f Fate) String() string { return [...]string{"left", "sent", "drop"}[f] }

// Outcome is a packet's fate, when it met it, and whether it carries CE.
type Outcome struct {
	Fate Fate
	At   unit.Instant // 0 if the packet is left
	Mark bool
}

// String prints the outcome as a trace does.
func (o Outcome) String() string {
	if o.Fate == Left {
		return o.Fate.String()
	}
	s := fmt.Sprintf("%v %d", o.Fate, int64(o.At))
	if o.Mark {
		s += " mark"
	}
	return s
}

// Packet is one line of a trace.
type TracePacket struct {
	Seq      uint64 // the trace's own number
	Enqueued unit.Instant
	Flow     uint32
	Size     unit.Size
	Outcome  Outcome // what the traced implementation did
}

// Difference is a packet that the replay treated otherwise than the trace.
type Difference struct {
	Line      int // of the trace, counted from 1
	Packet    TracePacket
	Got, Want Outcome
}

// String prints the difference in one line.
func (d Difference) String() string {
	return fmt.Sprintf("line %d: packet %d (flow %d, %d bytes, enqueued at %d ns): trace says %v, replay says %v",
		d.Line, d.Packet.Seq, d.Packet.Flow, int64(d.Packet.Size), int64(d.Packet.Enqueued), d.Want, d.Got)
}

// Result is the outcome of one replay.
type ReplayResult struct {
	Implementation   string // the dialect that was replayed
	Packets          int
	Agree            int          // packets whose fate, time and mark are the trace's
	FirstDifferences []Difference // at most as many as were asked for, in order of arrival
}

// Run reads a trace and replays it, and keeps the first few packets that
// differ. It returns an error only for a trace that it cannot read.
func Replay(r io.Reader, differences int) (ReplayResult, error) {
	t, err := ReadTrace(r)
	if err != nil {
		return ReplayResult{}, err
	}
	return t.Replay(differences)
}

// Replay runs the trace's arrivals through the dialect it names.
func (t *Trace) Replay(differences int) (ReplayResult, error) {
	got, err := t.simulate()
	if err != nil {
		return ReplayResult{}, err
	}
	if len(t.Packets) == 0 { // it would agree with anything
		return ReplayResult{}, errors.New("line 2: the trace ends before its first packet")
	}
	res := ReplayResult{Implementation: t.Params.Implementation, Packets: len(t.Packets)}
	for i, p := range t.Packets {
		if got[i] == p.Outcome {
			res.Agree++
		} else if len(res.FirstDifferences) < differences {
			res.FirstDifferences = append(res.FirstDifferences,
				Difference{Line: t.lines[i], Packet: p, Got: got[i], Want: p.Outcome})
		}
	}
	return res, nil
}

// simulate feeds the arrivals to a fresh queue whose link takes packets as
// fast as its rate lets it, and returns what became of each.
//
// The trace does not say which packets were ECN-capable. It need not: a mark
// proves it, and for any other packet it made no difference to what happened,
// except that a capable packet would have been marked where it was dropped.
func (t *Trace) simulate() ([]Outcome, error) {
	got := make([]Outcome, len(t.Packets))
	q, err := t.queue(func(now unit.Instant, p Packet, _ Reason) {
		got[p.ID] = Outcome{Fate: Dropped, At: now}
	})
	if err != nil {
		return nil, err
	}
	end := t.end()
	var free unit.Instant // when the link has sent its packet
	idle := true
	for i := 0; ; {
		now := free
		if idle {
			if i == len(t.Packets) {
				break
			}
			now = t.Packets[i].Enqueued
		}
		// An arrival at the instant of a dequeue comes first.
		for i < len(t.Packets) && t.Packets[i].Enqueued <= now {
			p := t.Packets[i]
			ecn := NotECT
			if p.Outcome.Mark {
				ecn = ECT
			}
			q.Enqueue(p.Enqueued, Packet{ID: uint64(i), Flow: p.Flow, Size: p.Size, ECN: ecn})
			i++
		}
		if now > end {
			break
		}
		p, ok := q.Dequeue(now)
		idle = !ok
		if ok {
			got[p.ID] = Outcome{Fate: Sent, At: now, Mark: p.ECN == CE}
			free = now.Add(t.Params.serialise(p.Size))
		}
	}
	return got, nil
}

// end returns the instant at which the traced run was cut off: the latest time
// in the trace if packets were left, else never.
func (t *Trace) end() unit.Instant {
	const never = unit.Instant(1<<63 - 1)
	left, last := false, unit.Instant(0)
	for _, p := range t.Packets {
		left = left || p.Outcome.Fate == Left
		last = max(last, p.Enqueued, p.Outcome.At)
	}
	if left {
		return last
	}
	return never
}

// queue builds the queue that the trace's first line describes.
func (t *Trace) queue(drop DropFunc) (Queue, error) {
	d, err := ParseDialect(t.Params.Implementation)
	if err != nil {
		return nil, fmt.Errorf("line 1: %w", err)
	}
	p := DefaultFQCoDel(d)
	p.CoDel.Drop = drop
	set := func(to *time.Duration, ns *int64) {
		if ns != nil {
			*to = time.Duration(*ns)
		}
	}
	set(&p.CoDel.Target, t.Params.Target)
	set(&p.CoDel.Interval, t.Params.Interval)
	if t.Params.ECN != nil {
		p.CoDel.ECN = *t.Params.ECN
	}
	if t.Params.Flows != nil {
		p.Flows = *t.Params.Flows
	}
	if t.Params.Limit != nil {
		p.CoDel.Packets = *t.Params.Limit
	}
	if t.Params.Quantum != nil {
		p.Quantum = unit.Size(*t.Params.Quantum)
	}
	q, err := NewFQCoDel(p)
	if err != nil {
		return nil, fmt.Errorf("line 1: %w", err)
	}
	return q, nil
}
