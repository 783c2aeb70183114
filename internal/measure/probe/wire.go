// Package probe is the measuring protocol without its sockets: the wire codecs
// of unbloat's own protocol, the client's isochronous Session and the server's
// Reflector. It reads no clock and opens nothing: bytes and instants come in,
// bytes and samples come out, so that the simulator, the lab and the real
// network drive the same code.
//
// A probe is a UDP datagram of at least MinSize bytes, big endian:
//
//	 0  1  magic 0xB7
//	 1  1  version (4 bits) | kind (4 bits)
//	 2  1  1 if the next byte counts, else 0
//	 3  1  request: the traffic class that the reply is to have; reply: that with which
//	       the request came. 0 in all but probes of marks
//	 4  4  sequence number
//	 8  8  stream token, from the control connection
//	16  8  reply: when the server received the request, ns since 1970 by its clock
//	24  4  reply: ns until the server sent the reply (saturating)
//	28  4  reply: how many requests of this stream the server has received
//	32  …  padding
//
// A reply is exactly as long as its request, so the server amplifies nothing.
// With 32 bytes a probe occupies 74 bytes of Ethernet over IPv4.
package probe

import (
	"encoding/binary"
	"errors"
	"math"
	"time"

	"unbloat/unit"
)

// Sizes of a datagram's payload, in bytes.
const (
	MinSize unit.Size = 32
	MaxSize unit.Size = 1472 // what fits an Ethernet frame with IPv4
)

// DefaultPort is the server's port, the same for TCP and UDP.
const DefaultPort = 7676

// Version is the version of the protocol spoken here.
const Version = 1

const magic = 0xB7

// Kind says what a datagram is.
type Kind uint8

// Kinds of datagrams.
const (
	KindEcho   Kind = 1 // client → server: to be answered
	KindCount  Kind = 2 // client → server: to be counted only
	KindReply  Kind = 3 // server → client: answer to KindEcho
	KindListen Kind = 4 // client → server: here is where a downward stream may be sent
	KindStream Kind = 5 // server → client: one datagram of a downward stream
)

// Errors of ParseHeader and Receive. They say why a datagram was ignored.
var (
	ErrShort     = errors.New("datagram shorter than a header")
	ErrMagic     = errors.New("not a datagram of this protocol")
	ErrVersion   = errors.New("datagram of another version of the protocol")
	ErrToken     = errors.New("datagram with an unknown token")
	ErrKind      = errors.New("datagram of an unexpected kind")
	ErrSequence  = errors.New("reply to a probe that was never sent")
	ErrDuplicate = errors.New("second reply to the same probe")
)

// A Header is the fixed part of a datagram.
type Header struct {
	Kind           Kind
	Seq            uint32
	Token          uint64
	ServerReceived unit.Instant  // replies: by the server's clock; streams: when it was sent
	Residence      time.Duration // replies: how long the server kept it
	Count          uint32        // replies: requests received so far, this one included
	Classed        bool          // Class counts
	Class          uint8         // traffic class: DSCP and ECN
}

// PutHeader writes h into the first MinSize bytes of b, which must be that long.
func PutHeader(b []byte, h Header) {
	_ = b[MinSize-1]
	b[0] = magic
	b[1] = Version<<4 | byte(h.Kind)
	b[2], b[3] = 0, 0
	if h.Classed {
		PutClass(b, h.Class)
	}
	binary.BigEndian.PutUint32(b[4:], h.Seq)
	binary.BigEndian.PutUint64(b[8:], h.Token)
	binary.BigEndian.PutUint64(b[16:], uint64(h.ServerReceived))
	binary.BigEndian.PutUint32(b[24:], uint32(min(max(h.Residence, 0), math.MaxUint32)))
	binary.BigEndian.PutUint32(b[28:], h.Count)
}

// PutClass writes a traffic class into a datagram that has a header already.
func PutClass(b []byte, class uint8) { b[2], b[3] = 1, class }

// ParseHeader reads the header of a datagram. Errors: ErrShort, ErrMagic,
// ErrVersion, ErrKind.
func ParseHeader(b []byte) (Header, error) {
	if len(b) < int(MinSize) {
		return Header{}, ErrShort
	}
	if b[0] != magic {
		return Header{}, ErrMagic
	}
	if b[1]>>4 != Version {
		return Header{}, ErrVersion
	}
	h := Header{
		Kind:           Kind(b[1] & 15),
		Seq:            binary.BigEndian.Uint32(b[4:]),
		Token:          binary.BigEndian.Uint64(b[8:]),
		ServerReceived: unit.Instant(binary.BigEndian.Uint64(b[16:])),
		Residence:      time.Duration(binary.BigEndian.Uint32(b[24:])),
		Count:          binary.BigEndian.Uint32(b[28:]),
		Classed:        b[2] == 1,
	}
	if h.Classed {
		h.Class = b[3]
	}
	if h.Kind < KindEcho || h.Kind > KindStream {
		return Header{}, ErrKind
	}
	return h, nil
}
