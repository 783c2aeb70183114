package classify

import (
	"time"

	"unbloat/unit"
)

// Memory is State as nftables keeps it: sets of bounded size whose elements have
// a timeout and buckets of tokens of their own, counted in nanoseconds of the rate.
// Its zero value is not ready; NewMemory makes one.
type Memory struct {
	// Tick is what the kernel counts timeouts in (1/HZ); 0: they are exact.
	Tick time.Duration

	sets   []remembered
	limits []bucket
	turns  uint
}

// A remembered is what one set holds.
type remembered struct {
	elements map[Key]*element
	swept    unit.Instant
}

type element struct {
	until   unit.Instant
	buckets [2]bucket
}

// A bucket is nftables' limit: it gains a token a nanosecond.
type bucket struct {
	tokens int64
	at     unit.Instant
}

// NewMemory returns an empty one for the table.
func NewMemory(t *Table, now unit.Instant) *Memory {
	m := &Memory{sets: make([]remembered, len(t.Sets)), limits: make([]bucket, len(t.Limits))}
	for i := range m.sets {
		m.sets[i] = remembered{elements: map[Key]*element{}, swept: now}
	}
	for i, l := range t.Limits {
		m.limits[i] = bucket{l.Rate.most(), now}
	}
	return m
}

// most is how many tokens a bucket holds.
func (r Rate) most() int64 {
	if r.Bytes {
		return int64(r.Per) * (r.N + r.Burst) / r.N // the kernel adds what comes in a second
	}
	return int64(r.Per) / r.N * r.Burst
}

// cost is what a packet takes of a bucket.
func (r Rate) cost(bytes unit.Size) int64 {
	if r.Bytes {
		return int64(r.Per) * int64(bytes) / r.N
	}
	return int64(r.Per) / r.N
}

// exceeds takes a packet's cost from the bucket, if it has that.
func (b *bucket) exceeds(now unit.Instant, r Rate, bytes unit.Size) bool {
	b.tokens = min(b.tokens+int64(now.Sub(b.at)), r.most())
	b.at = now
	cost := r.cost(bytes)
	if b.tokens < cost {
		return true
	}
	b.tokens -= cost
	return false
}

// Holds reports whether a set has a key that has not expired.
func (m *Memory) Holds(now unit.Instant, s *Set, k Key) bool {
	e := m.sets[s.index].elements[k]
	return e != nil && !m.expired(now, e)
}

func (m *Memory) expired(now unit.Instant, e *element) bool { return m.ticked(now) >= e.until }

// ticked is the time as timeouts see it.
func (m *Memory) ticked(now unit.Instant) unit.Instant {
	if m.Tick == 0 {
		return now
	}
	return now - now%unit.Instant(m.Tick)
}

// element returns a key's, which it makes if there is room. What has expired
// takes room until the set is gone through, at most s.GC later.
func (m *Memory) element(now unit.Instant, s *Set, k Key, rates []Rate) (e *element, old bool) {
	r := &m.sets[s.index]
	if now.Sub(r.swept) >= s.GC {
		r.swept = now
		for k, e := range r.elements {
			if m.expired(now, e) {
				delete(r.elements, k)
			}
		}
	}
	e = r.elements[k]
	if e != nil && !m.expired(now, e) {
		return e, true
	}
	if e == nil && len(r.elements) >= s.Size {
		return nil, false
	}
	e = &element{until: m.ticked(now).Add(s.Timeout)}
	for i, rate := range rates {
		e.buckets[i] = bucket{rate.most(), now}
	}
	r.elements[k] = e
	return e, false
}

// Remember adds a key to a set.
func (m *Memory) Remember(now unit.Instant, s *Set, k Key, again bool) bool {
	e, old := m.element(now, s, k, nil)
	if old && again {
		e.until = m.ticked(now).Add(s.Timeout)
	}
	return e != nil
}

// Meter charges the meters of a key; the first that does not fit ends it.
func (m *Memory) Meter(now unit.Instant, s *Set, k Key, rates []Rate, bytes unit.Size) bool {
	e, old := m.element(now, s, k, rates)
	if e == nil {
		return false
	}
	if old {
		e.until = m.ticked(now).Add(s.Timeout)
	}
	for i, r := range rates {
		if e.buckets[i].exceeds(now, r, bytes) != r.Over {
			return false
		}
	}
	return true
}

// Exceeds charges a limit that all share.
func (m *Memory) Exceeds(now unit.Instant, l *Limit) bool {
	return m.limits[l.index].exceeds(now, l.Rate, 0) == l.Rate.Over
}

// Alternate is true for every second call.
func (m *Memory) Alternate() bool {
	m.turns++
	return m.turns%2 == 1
}
