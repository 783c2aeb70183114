package probe

import "unbloat/unit"

// A Source is the server's half of a downward stream: isochronous datagrams
// that are not answered. It has the schedule of a Session.
type Source struct{ s *Session }

// NewSource returns a source; OneWay is implied.
func NewSource(cfg Config) *Source { return &Source{NewSession(cfg)} }

// Poll returns the datagram due at now, as Session.Poll does.
func (p *Source) Poll(now unit.Instant) (datagram []byte, next unit.Instant) {
	n := uint32(p.s.store.n)
	b, next := p.s.Poll(now)
	p.s.store.trim()
	if b != nil {
		PutHeader(b, Header{Kind: KindStream, Seq: n, Token: p.s.cfg.Token, ServerReceived: now})
	}
	return b, next
}

// Sent returns how many datagrams have left.
func (p *Source) Sent() int { return p.s.Sent() }

// A Sink is the client's half of a downward stream: it counts what arrives.
type Sink struct {
	token    uint64
	received int
	bytes    int64
	highest  int64 // highest sequence number, -1 if none
}

// NewSink returns the sink of the stream with that token.
func NewSink(token uint64) *Sink { return &Sink{token: token, highest: -1} }

// Listen writes the datagram that shows the server where the stream may be
// sent into b, of at least MinSize bytes, and returns its length.
func (k *Sink) Listen(b []byte) int {
	PutHeader(b, Header{Kind: KindListen, Token: k.token})
	return int(MinSize)
}

// Receive counts a datagram. An error says why it was ignored.
func (k *Sink) Receive(_ unit.Instant, b []byte) error {
	h, err := ParseHeader(b)
	switch {
	case err != nil:
		return err
	case h.Token != k.token:
		return ErrToken
	case h.Kind != KindStream:
		return ErrKind
	}
	k.received++
	k.bytes += int64(len(b))
	k.highest = max(k.highest, int64(h.Seq))
	return nil
}

// Received returns how many datagrams arrived, and their payload.
func (k *Sink) Received() (int, unit.Size) { return k.received, unit.Size(k.bytes) }

// Sent returns how many datagrams are known to have been sent: those up to the
// highest sequence number that arrived.
func (k *Sink) Sent() int { return int(k.highest + 1) }
