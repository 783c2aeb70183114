package aqm

import (
	"errors"
	"fmt"
	"time"

	"unbloat/unit"
)

// maxTokens bounds the credit and the debt of a bucket, as sch_htb.c does.
const maxTokens = int64(60 * time.Second)

// tokensOf returns the time that n bytes take at a rate, in ns rounded up, so
// that roundings never add up to more than the rate.
func tokensOf(r unit.Rate, n unit.Size) int64 {
	return min(int64(r.Time(min(n, 1<<28))), maxTokens)
}

// Bucket says when a shaper lets a packet go.
type Bucket uint8

// The shapers that people run, each with the rate in one class.
const (
	// TBF lets a packet go when the bucket holds all of it: Linux's sch_tbf,
	// and with a burst of one packet a dummynet pipe.
	TBF Bucket = iota
	// HTB lets a packet go while the bucket is not in debt, which the packet
	// may leave it in (sch_htb.c).
	HTB
	// HFSC is a class with an upper limit (hfsc.c): as HTB without a burst,
	// but it takes its next packet off the inner queue when the last one goes.
	HFSC
)

// TokenBucketParams sets a token bucket up.
type TokenBucketParams struct {
	Bucket  Bucket
	Rate    unit.Rate // of the wire, counted by Framing
	Burst   unit.Size // bytes on the wire that may follow each other at once; at least one packet, with HFSC 0
	Framing Framing
}

// TokenBucket lets the packets of another queue pass at a rate. Over any time t
// it passes at most Burst + Rate × t, and with HTB and HFSC one packet more.
type TokenBucket struct {
	inner  Queue
	params TokenBucketParams
	// TBF has to see the next packet before it may go, and HFSC does. Seeing it
	// takes it off the inner queue, as Linux's qdisc_peek_dequeued does; it
	// still counts as queued.
	held   Packet
	holds  bool
	full   int64 // tokens of a full bucket, ns
	tokens int64 // at filled, ns
	filled unit.Instant
}

// NewTokenBucket returns a shaper in front of inner, with a full bucket.
func NewTokenBucket(p TokenBucketParams, inner Queue) (*TokenBucket, error) {
	if p.Rate < 512 || p.Rate > 1e12 {
		return nil, fmt.Errorf("token bucket: rate of %d bit/s; 512 to 1e12 are possible", int64(p.Rate))
	}
	if (p.Burst < 1) != (p.Bucket == HFSC) || p.Burst < 0 {
		return nil, errors.New("token bucket: needs a burst of at least one packet, and with HFSC none")
	}
	if err := p.Framing.check(); err != nil {
		return nil, fmt.Errorf("token bucket: %w", err)
	}
	if inner == nil {
		return nil, errors.New("token bucket: needs an inner queue")
	}
	full := tokensOf(p.Rate, p.Burst)
	return &TokenBucket{inner: inner, params: p, full: full, tokens: full}, nil
}

// Enqueue implements Queue.
func (b *TokenBucket) Enqueue(now unit.Instant, p Packet) { b.inner.Enqueue(now, p) }

// Dequeue implements Queue.
func (b *TokenBucket) Dequeue(now unit.Instant) (Packet, bool) {
	if b.params.Bucket != HTB && !b.holds {
		if b.held, b.holds = b.inner.Dequeue(now); !b.holds {
			return Packet{}, false
		}
	}
	tokens := min(b.full, b.tokens+min(int64(now-b.filled), maxTokens))
	if tokens < b.need() {
		return Packet{}, false
	}
	p, ok := b.held, b.holds
	if !ok {
		p, ok = b.inner.Dequeue(now)
	}
	if ok {
		b.tokens, b.filled = max(tokens-b.cost(p), 1-maxTokens), now
	}
	b.holds = false
	return p, ok
}

// SetRate changes the rate in place: what waits stays, and so does the credit or debt,
// counted in bytes. The error names a rate that is not possible.
func (b *TokenBucket) SetRate(r unit.Rate) error {
	if r < 512 || r > 1e12 {
		return fmt.Errorf("token bucket: rate of %d bit/s; 512 to 1e12 are possible", int64(r))
	}
	scale := float64(b.params.Rate) / float64(r)
	b.params.Rate = r
	b.full = tokensOf(r, b.params.Burst)
	b.tokens = max(min(int64(float64(b.tokens)*scale), b.full), 1-maxTokens)
	return nil
}

// cost returns the tokens of a packet. One longer than sch_tbf's bucket empties
// it: sch_tbf would cut or drop it.
func (b *TokenBucket) cost(p Packet) int64 {
	c := tokensOf(b.params.Rate, b.params.Framing.Wire(p.Size))
	if b.params.Bucket == TBF {
		return min(b.full, c)
	}
	return c
}

// need returns the tokens that the bucket must hold before the next packet goes.
func (b *TokenBucket) need() int64 {
	if b.params.Bucket == TBF {
		return b.cost(b.held)
	}
	return 0
}

// Next implements Queue.
func (b *TokenBucket) Next(now unit.Instant) (unit.Instant, bool) {
	at, ok := now, true
	if !b.holds {
		if at, ok = b.inner.Next(now); b.params.Bucket != HTB {
			return at, ok
		}
	}
	return max(at, b.filled+unit.Instant(b.need()-b.tokens)), ok
}

// Len implements Queue.
func (b *TokenBucket) Len() int { return b.Stats().Packets }

// Stats implements Queue.
func (b *TokenBucket) Stats() Stats {
	s := b.inner.Stats()
	if b.holds {
		s = s.holding(b.held)
	}
	return s
}

var _ Queue = (*TokenBucket)(nil)
