package probe

import "unbloat/unit"

// A Reflector is the server's half of one stream of probes: it counts what
// arrives and answers what asks for an answer. It is not safe for concurrent use.
type Reflector struct {
	token    uint64
	received uint32
	bytes    int64
	first    unit.Instant
	last     unit.Instant
}

// NewReflector returns the reflector of the stream with that token.
func NewReflector(token uint64) *Reflector { return &Reflector{token: token} }

// Reflect handles a datagram that arrived at received. If it asks for an
// answer, the answer, to be sent at now, is written into out (which must be as
// long as in, and may be in itself) and its length returned. Datagrams that
// are not of this stream return an error and are not counted.
func (r *Reflector) Reflect(received, now unit.Instant, in, out []byte) (int, error) {
	h, err := ParseHeader(in)
	if err != nil {
		return 0, err
	}
	return r.ReflectHeader(h, received, now, in, out)
}

// ReflectHeader is Reflect for whoever has read the datagram's header already.
func (r *Reflector) ReflectHeader(h Header, received, now unit.Instant, in, out []byte) (int, error) {
	if h.Token != r.token {
		return 0, ErrToken
	}
	if h.Kind != KindEcho && h.Kind != KindCount {
		return 0, ErrKind
	}
	if r.received == 0 {
		r.first = received
	}
	r.received++
	r.bytes += int64(len(in))
	r.last = received
	if h.Kind == KindCount {
		return 0, nil
	}
	out = out[:len(in)]
	PutHeader(out, Header{
		Kind: KindReply, Seq: h.Seq, Token: r.token,
		ServerReceived: received, Residence: now.Sub(received), Count: r.received,
	})
	if len(out) > int(MinSize) {
		clear(out[MinSize:])
	}
	return len(in), nil
}

// Received returns how many datagrams of the stream arrived, and their payload.
func (r *Reflector) Received() (uint32, unit.Size) { return r.received, unit.Size(r.bytes) }

// Span returns when the first and the last datagram arrived.
func (r *Reflector) Span() (first, last unit.Instant) { return r.first, r.last }
