package serve

import "sync/atomic"

// A streamTable finds streams by their tokens. Finding takes no lock, since
// every datagram needs it. Only one goroutine at a time may put and remove.
// Tokens are random, so their lowest bits choose the bucket.
type streamTable struct {
	buckets [streamBuckets]atomic.Pointer[streamLink]
	n       int
}

// streamBuckets is a power of two, and mostly larger than the number of
// streams.
const streamBuckets = 1 << 13

// A streamLink is never changed once it is in the table.
type streamLink struct {
	token  uint64
	stream *stream
	next   *streamLink
}

func (t *streamTable) bucket(token uint64) *atomic.Pointer[streamLink] {
	return &t.buckets[token%streamBuckets]
}

// find returns the stream with a token, nil if there is none.
func (t *streamTable) find(token uint64) *stream {
	for l := t.bucket(token).Load(); l != nil; l = l.next {
		if l.token == token {
			return l.stream
		}
	}
	return nil
}

// put adds a stream whose token is not in the table.
func (t *streamTable) put(st *stream) {
	b := t.bucket(st.token)
	b.Store(&streamLink{st.token, st, b.Load()})
	t.n++
}

// remove removes the stream with a token, if it is there.
func (t *streamTable) remove(token uint64) {
	if t.find(token) == nil {
		return
	}
	b := t.bucket(token)
	var rest *streamLink
	for l := b.Load(); l != nil; l = l.next {
		if l.token != token {
			rest = &streamLink{l.token, l.stream, rest}
		}
	}
	b.Store(rest)
	t.n--
}
