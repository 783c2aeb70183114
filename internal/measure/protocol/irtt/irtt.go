// Package irtt is irtt's protocol, the isochronous round-trip tester's (version
// 1, as irtt 0.9 speaks it): the wire format, and a client. A datagram is,
// little endian:
//
//	0  3  magic 14 a7 5b
//	3  1  flags: open 1, reply 2, close 4, HMAC 8
//	4 16  HMAC-MD5 of the whole datagram with this field zero, if so flagged
//	…  8  connection token (not in a request to open)
//	…  4  sequence number, in echoes
//	…  4  requests received so far, if asked for
//	…  8  window of the last 64 requests received, if asked for
//	…     stamps at receipt, midpoint, sending: wall and monotonic, 8 bytes each
//	…     payload; when opening, parameters: uvarint tag, zigzag value
//
// Requests of an echo carry the fields of its answer as zeros, so that both
// have one length.
package irtt

import (
	"crypto/hmac"
	"crypto/md5"
	"encoding/binary"
	"errors"
	"time"

	"unbloat/unit"
)

// Port is irtt's UDP port.
const Port = 2112

// Version is the version of the protocol spoken here.
const Version = 1

// MaxSize is the longest datagram that is handled here.
const MaxSize unit.Size = 1472

// Flags of a datagram.
type Flags uint8

// The flags.
const (
	FlagOpen  Flags = 1
	FlagReply Flags = 2
	FlagClose Flags = 4
	FlagHMAC  Flags = 8
)

// Has reports whether all of want are set.
func (f Flags) Has(want Flags) bool { return f&want == want }

// Errors: why a datagram is ignored.
var (
	ErrShort   = errors.New("datagram too short")
	ErrMagic   = errors.New("not a datagram of irtt")
	ErrFlags   = errors.New("flags that make no sense here")
	ErrNoHMAC  = errors.New("no HMAC, but a key is set")
	ErrBadHMAC = errors.New("wrong HMAC: the keys differ")
	ErrHMAC    = errors.New("an HMAC, but no key is set")
	ErrParams  = errors.New("malformed parameters")
	ErrToken   = errors.New("datagram of another connection")
)

const (
	prefix   = 4 // magic and flags
	hmacSize = md5.Size
)

// Open checks what all datagrams have in common: magic, flags and, with a
// key, the HMAC. It returns what follows. b is restored before it returns.
func Open(b, key []byte) (Flags, []byte, error) {
	if len(b) < prefix {
		return 0, nil, ErrShort
	}
	if b[0] != 0x14 || b[1] != 0xa7 || b[2] != 0x5b {
		return 0, nil, ErrMagic
	}
	f := Flags(b[3])
	switch {
	case f > FlagOpen|FlagReply|FlagClose|FlagHMAC:
		return 0, nil, ErrFlags
	case len(key) == 0 && f.Has(FlagHMAC):
		return 0, nil, ErrHMAC
	case len(key) == 0:
		return f, b[prefix:], nil
	case !f.Has(FlagHMAC):
		return 0, nil, ErrNoHMAC
	case len(b) < prefix+hmacSize:
		return 0, nil, ErrShort
	}
	var got [hmacSize]byte
	field := b[prefix:][:hmacSize]
	copy(got[:], field)
	clear(field)
	ok := hmac.Equal(got[:], sum(b, key))
	copy(field, got[:])
	if !ok {
		return 0, nil, ErrBadHMAC
	}
	return f, b[prefix+hmacSize:], nil
}

func sum(b, key []byte) []byte {
	m := hmac.New(md5.New, key)
	_, _ = m.Write(b) // never fails
	return m.Sum(nil)
}

// begin writes magic and flags, and returns what follows the place of the HMAC.
func begin(b []byte, f Flags, key []byte) []byte {
	b[0], b[1], b[2] = 0x14, 0xa7, 0x5b
	if len(key) == 0 {
		b[3] = byte(f)
		return b[prefix:]
	}
	b[3] = byte(f | FlagHMAC)
	return b[prefix+hmacSize:]
}

// seal puts the HMAC into a finished datagram.
func seal(b, key []byte) {
	if len(key) == 0 {
		return
	}
	clear(b[prefix:][:hmacSize])
	copy(b[prefix:], sum(b, key))
}

func headSize(key []byte) int {
	if len(key) == 0 {
		return prefix
	}
	return prefix + hmacSize
}

// OpenRequest returns the datagram that asks for a connection.
func OpenRequest(p Params, key []byte) []byte {
	b := make([]byte, headSize(key), headSize(key)+maxParams)
	begin(b, FlagOpen, key)
	b = p.Append(b)
	seal(b, key)
	return b
}

// OpenReply returns the answer to a request to open. more may close the
// connection at once.
func OpenReply(token uint64, p Params, more Flags, key []byte) []byte {
	b := make([]byte, headSize(key)+8, headSize(key)+8+maxParams)
	binary.LittleEndian.PutUint64(begin(b, FlagOpen|FlagReply|more, key), token)
	b = p.Append(b)
	seal(b, key)
	return b
}

// ParseOpenReply reads the answer to a request to open.
func ParseOpenReply(b, key []byte) (token uint64, p Params, f Flags, err error) {
	f, rest, err := Open(b, key)
	switch {
	case err != nil:
		return 0, p, f, err
	case !f.Has(FlagOpen | FlagReply):
		return 0, p, f, ErrFlags
	case len(rest) < 8:
		return 0, p, f, ErrShort
	}
	p, err = ParseParams(rest[8:])
	return binary.LittleEndian.Uint64(rest), p, f, err
}

// CloseRequest returns the datagram that ends a connection.
func CloseRequest(token uint64, key []byte) []byte {
	b := make([]byte, headSize(key)+8)
	binary.LittleEndian.PutUint64(begin(b, FlagClose, key), token)
	seal(b, key)
	return b
}

// Token reads the connection's token and sequence number of what Open
// returned; the latter is 0 where there is none.
func Token(rest []byte) (token uint64, seq uint32, err error) {
	if len(rest) < 8 {
		return 0, 0, ErrShort
	}
	if len(rest) >= 12 {
		seq = binary.LittleEndian.Uint32(rest[8:])
	}
	return binary.LittleEndian.Uint64(rest), seq, nil
}

// A Stamp is an instant by the server's two clocks; zero is none.
type Stamp struct {
	Wall unit.Instant  // since 1970
	Mono time.Duration // since the server began
}

// An Echo is the content of the answer to a probe.
type Echo struct {
	Flags         Flags
	Token         uint64
	Seq           uint32
	Count         uint32 // requests received; 0: not asked for
	Window        uint64 // bit i: request Seq-i was received; 0: not known
	Receive, Send Stamp
}
