package aqm

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"unbloat/unit"
)

// A subject is a queue to which the laws apply.
type subject struct {
	name string
	make func(drop DropFunc) (Queue, error)
	rate unit.Rate // 0: it does not shape
	// burst is how much it may send at once beyond the rate.
	burst   unit.Size
	framing Framing
	// byTin: packets of one flow may overtake each other if they are in
	// different tins.
	byTin bool
}

// subjects returns every queue of the package, in all variants.
func subjects() []subject {
	var out []subject
	add := func(s subject) { out = append(out, s) }
	add(subject{name: "fifo packets", make: func(d DropFunc) (Queue, error) { return NewFIFO(FIFOParams{Packets: 20, Drop: d}) }})
	add(subject{name: "fifo bytes", make: func(d DropFunc) (Queue, error) { return NewFIFO(FIFOParams{Bytes: 9000, Drop: d}) }})
	for dialect := RFC; dialect <= NS3; dialect++ {
		add(subject{name: "codel " + dialect.String(), make: func(d DropFunc) (Queue, error) {
			p := DefaultCoDel(dialect)
			p.Drop, p.ECN, p.Packets = d, true, 60
			return NewCoDel(p)
		}})
		add(subject{name: "fq_codel " + dialect.String(), make: func(d DropFunc) (Queue, error) {
			p := DefaultFQCoDel(dialect)
			p.CoDel.Drop, p.CoDel.Packets, p.Quantum, p.Flows = d, 40, 300, 16
			return NewFQCoDel(p)
		}})
	}
	add(subject{name: "start-time", make: func(d DropFunc) (Queue, error) {
		p := DefaultStartTime(Linux612)
		p.CoDel.Drop, p.CoDel.Packets = d, 40
		return NewStartTime(p)
	}})
	add(subject{name: "sparse first", make: func(d DropFunc) (Queue, error) {
		p := DefaultSparseFirst(Linux612, 2*unit.MbitPerSecond)
		p.StartTime.CoDel.Drop, p.StartTime.CoDel.Packets, p.Seed = d, 40, 9
		return NewSparseFirst(p)
	}})
	for tins := BestEffort; tins <= Precedence; tins++ {
		for _, rate := range []unit.Rate{0, 2 * unit.MbitPerSecond} {
			framing := Framing{Replaced: 14, Overhead: 44, Minimum: 84, Cells: Cells(tins % 3)}
			for by := TripleIsolate; by <= NoIsolation; by += 3 {
				add(subject{name: fmt.Sprintf("cake tins %d isolation %d at %d", tins, by, int64(rate)), rate: rate, burst: framing.Wire(1514), framing: framing, byTin: true,
					make: func(d DropFunc) (Queue, error) {
						p := DefaultCake(rate)
						p.Tins, p.Isolation, p.Framing, p.Drop, p.Memory = tins, by, framing, d, 64<<10
						p.Ingress, p.Seed = rate > 0 && tins == Diffserv4, 7
						return NewCake(p)
					}})
			}
		}
	}
	return append(out, shapers()...)
}

// shapers returns the token buckets.
func shapers() (out []subject) {
	const rate = 2 * unit.MbitPerSecond
	for _, b := range []struct {
		name   string
		bucket Bucket
		burst  unit.Size
		owed   unit.Size // what HTB and HFSC may send in debt
	}{{"token bucket", TBF, 3000, 0}, {"htb", HTB, 3000, 1514}, {"hfsc", HFSC, 0, 1514}} {
		out = append(out, subject{name: b.name, rate: rate, burst: b.burst + b.owed, make: func(d DropFunc) (Queue, error) {
			p := DefaultFQCoDel(Linux612)
			p.CoDel.Drop, p.CoDel.Packets = d, 30
			inner, err := NewFQCoDel(p)
			if err != nil {
				return nil, err
			}
			return NewTokenBucket(TokenBucketParams{Bucket: b.bucket, Rate: rate, Burst: b.burst}, inner)
		}})
	}
	return out
}

// A ledger follows every packet of a run and checks the laws.
type ledger struct {
	t     *rapid.T
	s     subject
	q     Queue
	fate  map[uint64]string
	last  map[[2]uint32]uint64 // by flow and code point: number of the last one sent, plus 1
	in    int
	start unit.Instant
	wire  unit.Size // sent since start
}

func (l *ledger) settle(p Packet, what string) {
	if was := l.fate[p.ID]; was != "queued" {
		l.t.Fatalf("%s: packet %d is %s and then %s", l.s.name, p.ID, was, what)
	}
	l.fate[p.ID] = what
}

func (l *ledger) sent(now unit.Instant, p Packet) {
	l.settle(p, "sent")
	key := [2]uint32{p.Flow, 0}
	if l.s.byTin {
		key[1] = uint32(p.DSCP)
	}
	if l.last[key] > p.ID {
		l.t.Fatalf("%s: packet %d of flow %d after packet %d", l.s.name, p.ID, p.Flow, l.last[key]-1)
	}
	l.last[key] = p.ID + 1
	if l.s.rate == 0 {
		return
	}
	l.wire += l.s.framing.Wire(p.Size)
	if most := l.s.rate.Bytes(now.Sub(l.start)) + l.s.burst + 2; l.wire > most {
		l.t.Fatalf("%s: %d bytes in %v, %d above the rate", l.s.name, l.wire, now.Sub(l.start), l.wire-most)
	}
}

// conserve checks offered = sent + dropped + queued, by our own count and by
// the queue's.
func (l *ledger) conserve() {
	count := map[string]int{}
	for _, f := range l.fate {
		count[f]++
	}
	s := l.q.Stats()
	if l.q.Len() != count["queued"] || s.Packets != count["queued"] || int(s.Sent) != count["sent"] ||
		int(s.Dropped) != count["dropped"] || int(s.Offered) != l.in {
		l.t.Fatalf("%s: %d in, %v; Len %d, %+v", l.s.name, l.in, count, l.q.Len(), s)
	}
	if s.OfferedBytes != s.SentBytes+s.DroppedBytes+s.Backlog || (s.Backlog == 0) != (s.Packets == 0) {
		l.t.Fatalf("%s: bytes do not add up: %+v", l.s.name, s)
	}
}

// dequeue takes a packet at the time that Next returned, if that has come.
func (l *ledger) dequeue(now unit.Instant) {
	before := l.q.Len()
	at, some := l.q.Next(now)
	if some != (before > 0) || some && at < now {
		l.t.Fatalf("%s: Next says %d, %t at %d with %d queued", l.s.name, at, some, now, before)
	}
	p, ok := l.q.Dequeue(now)
	if ok {
		l.sent(now, p)
		return
	}
	// An empty answer is right if the queue is empty, or if a shaper says when
	// the next packet may go.
	if l.s.rate == 0 {
		if l.q.Len() > 0 {
			l.t.Fatalf("%s: idle with %d packets", l.s.name, l.q.Len())
		}
		return
	}
	if at, some := l.q.Next(now); some && at <= now && l.q.Len() == before {
		l.t.Fatalf("%s: Next promises a packet at %d, none came", l.s.name, at)
	}
}

// TestLaws drives every queue with random traffic: each packet is sent, dropped
// or still queued, exactly once; flows stay in order; shapers keep the rate; no
// queue is idle while it has packets to send.
func TestLaws(t *testing.T) {
	for _, s := range subjects() {
		t.Run(s.name, func(t *testing.T) { rapid.Check(t, func(t *rapid.T) { obey(t, s) }) })
	}
}

// obey is one random run of one queue.
func obey(t *rapid.T, s subject) {
	l := &ledger{t: t, s: s, fate: map[uint64]string{}, last: map[[2]uint32]uint64{}}
	q, err := s.make(func(_ unit.Instant, p Packet, _ Reason) { l.settle(p, "dropped") })
	if err != nil {
		t.Fatal(err)
	}
	l.q = q
	now := unit.Instant(rapid.Int64Range(0, 5e12).Draw(t, "start"))
	l.start = now
	random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	steps := rapid.IntRange(1, 3000).Draw(t, "steps")
	in3 := rapid.Uint64Range(0, 2).Draw(t, "dequeues of 3")
	flows := uint32(rapid.IntRange(1, 40).Draw(t, "flows"))
	pause := rapid.SampledFrom([]int64{1, 100, 5000, 1e5, 3e6, 5e7}).Draw(t, "pause")
	for id := range steps {
		x := random.Uint64()
		now += unit.Instant(int64(x%8) * pause)
		if x>>3%3 < in3 {
			l.dequeue(now)
			continue
		}
		p := Packet{
			ID: uint64(id), Size: unit.Size(1 + x>>8%1514), Flow: uint32(x>>24) % flows,
			DSCP: uint8(x >> 40 % 64), ECN: ECN(x >> 48 % 2),
		}
		p.Source, p.Destination = p.Flow%3, p.Flow%5
		l.fate[p.ID] = "queued"
		l.in++
		l.q.Enqueue(now, p)
	}
	l.conserve()
	for range 20000 { // drain, at the times that Next returns
		at, some := q.Next(now)
		if !some {
			break
		}
		now = at
		l.dequeue(now)
	}
	l.conserve()
	if q.Len() != 0 {
		t.Fatalf("%s: %d packets never come out", s.name, q.Len())
	}
	if _, ok := q.Dequeue(now.Add(time.Hour)); ok {
		t.Fatalf("%s: a packet from an empty queue", s.name)
	}
}

// FuzzLaws is TestLaws with Go's fuzzer, for all queues at once.
func FuzzLaws(f *testing.F) {
	f.Fuzz(rapid.MakeFuzz(func(t *rapid.T) {
		all := subjects()
		obey(t, all[rapid.IntRange(0, len(all)-1).Draw(t, "queue")])
	}))
}
