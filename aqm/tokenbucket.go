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

// TokenBucketParams sets a token bucket up.
type TokenBucketParams struct {
	Rate    unit.Rate // of the wire, counted by Framing
	Burst   unit.Size // bytes on the wire that may follow each other at once; at least one packet
	Framing Framing
}

// TokenBucket lets the packets of another queue pass at a rate (Linux sch_tbf).
// Over any time t it passes at most Burst + Rate × t.
//
// It has to look at the next packet's size before it may go, so it takes one
// packet off the inner queue ahead of time, as sch_tbf does.
type TokenBucket struct {
	ahead
	params TokenBucketParams
	full   int64 // tokens of a full bucket, ns
	tokens int64 // at filled, ns
	filled unit.Instant
}

// NewTokenBucket returns a shaper in front of inner, with a full bucket.
func NewTokenBucket(p TokenBucketParams, inner Queue) (*TokenBucket, error) {
	if p.Rate < 512 || p.Rate > 1e12 {
		return nil, fmt.Errorf("token bucket: rate of %d bit/s; 512 to 1e12 are possible", int64(p.Rate))
	}
	if p.Burst < 1 {
		return nil, errors.New("token bucket: needs a burst of at least one packet")
	}
	if err := p.Framing.check(); err != nil {
		return nil, fmt.Errorf("token bucket: %w", err)
	}
	if inner == nil {
		return nil, errors.New("token bucket: needs an inner queue")
	}
	b := &TokenBucket{ahead: ahead{inner: inner}, params: p}
	b.full = tokensOf(p.Rate, p.Burst)
	b.tokens = b.full
	return b, nil
}

// Enqueue implements Queue.
func (b *TokenBucket) Enqueue(now unit.Instant, p Packet) { b.inner.Enqueue(now, p) }

// Dequeue implements Queue.
func (b *TokenBucket) Dequeue(now unit.Instant) (Packet, bool) {
	if _, ok := b.peek(now); !ok {
		return Packet{}, false
	}
	tokens := min(b.full, b.tokens+int64(now-b.filled)) - b.need()
	if tokens < 0 {
		return Packet{}, false
	}
	b.tokens, b.filled = tokens, now
	return b.take(), true
}

// need returns the tokens of the held packet. One longer than the bucket goes
// when the bucket is full, and empties it: sch_tbf would cut or drop it.
func (b *TokenBucket) need() int64 {
	return min(b.full, tokensOf(b.params.Rate, b.params.Framing.Wire(b.held.Size)))
}

// Next implements Queue.
func (b *TokenBucket) Next(now unit.Instant) (unit.Instant, bool) {
	if b.holds {
		return max(now, b.filled+unit.Instant(b.need()-b.tokens)), true
	}
	return b.inner.Next(now)
}

var _ Queue = (*TokenBucket)(nil)
