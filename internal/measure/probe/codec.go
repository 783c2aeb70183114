package probe

import "unbloat/unit"

// A Codec writes the probes and reads the answers of one protocol, so that one
// Session keeps the schedule and the books of all of them. It need not be safe
// for concurrent use.
type Codec interface {
	// Request fills b, which has the session's Size, with the probe seq.
	Request(b []byte, seq uint32)
	// Answer reads a datagram that arrived. An error says why it is ignored.
	Answer(b []byte) (Answer, error)
}

// An Answer is the contents of a probe's answer.
type Answer struct {
	Seq            uint32
	Count          uint32       // requests the server had received by then; 0: it does not tell
	ServerReceived unit.Instant // by the server's clock; 0: it does not tell
	ServerSent     unit.Instant // by the server's clock; 0: it does not tell
}

// native is the codec of this package's own protocol.
type native struct {
	token  uint64
	oneWay bool
}

func (c native) Request(b []byte, seq uint32) {
	kind := KindEcho
	if c.oneWay {
		kind = KindCount
	}
	PutHeader(b, Header{Kind: kind, Seq: seq, Token: c.token})
}

func (c native) Answer(b []byte) (Answer, error) {
	h, err := ParseHeader(b)
	switch {
	case err != nil:
		return Answer{}, err
	case h.Token != c.token:
		return Answer{}, ErrToken
	case h.Kind != KindReply:
		return Answer{}, ErrKind
	}
	return Answer{Seq: h.Seq, Count: h.Count, ServerReceived: h.ServerReceived, ServerSent: h.ServerReceived.Add(h.Residence)}, nil
}
