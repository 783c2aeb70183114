// This part probes hosts that run no test server: by ICMP echo (RFC 792, RFC
// 4443), UDP echo (RFC 862), DNS queries (RFC 1035), and anything that can be
// called, such as a TCP handshake. None of them distinguishes the two directions.

package protocol

import (
	"encoding/binary"
	"errors"

	"unbloat/internal/measure/probe"
	"unbloat/unit"
)

// MinSize is the least size of a probe of any of these.
const MinProbeSize unit.Size = 20

// ErrForeign is returned of datagrams that answer no probe of this codec.
var ErrForeignProbe = errors.New("not an answer to a probe of this stream")

// ErrShort is returned of datagrams that are cut off.
var ErrShortProbe = errors.New("datagram too short")

// ICMP probes with echo requests.
type ICMP struct {
	Six   bool   // ICMPv6
	Raw   bool   // from a raw socket, which hands over the IPv4 header too
	Nonce uint32 // distinguishes this stream's answers from others'
}

const (
	icmpHeader  = 8
	echoRequest = 8
	echoReply   = 0
	echo6       = 128
	echo6Reply  = 129
)

// Request implements probe.Codec. The kernel puts its own identifier, and over
// IPv6 the checksum.
func (c ICMP) Request(b []byte, seq uint32) {
	clear(b)
	b[0] = echoRequest
	if c.Six {
		b[0] = echo6
	}
	binary.BigEndian.PutUint16(b[4:], uint16(c.Nonce))
	binary.BigEndian.PutUint16(b[6:], uint16(seq))
	binary.BigEndian.PutUint32(b[icmpHeader:], c.Nonce)
	binary.BigEndian.PutUint32(b[icmpHeader+4:], seq)
	if !c.Six {
		binary.BigEndian.PutUint16(b[2:], checksum(b))
	}
}

// Answer implements probe.Codec.
func (c ICMP) Answer(b []byte) (probe.Answer, error) {
	if c.Raw && !c.Six {
		if len(b) < 20 || len(b) < int(b[0]&15)*4 {
			return probe.Answer{}, ErrShortProbe
		}
		b = b[int(b[0]&15)*4:]
	}
	if len(b) < icmpHeader+8 {
		return probe.Answer{}, ErrShortProbe
	}
	want := byte(echoReply)
	if c.Six {
		want = echo6Reply
	}
	if b[0] != want || binary.BigEndian.Uint32(b[icmpHeader:]) != c.Nonce {
		return probe.Answer{}, ErrForeignProbe
	}
	return probe.Answer{Seq: binary.BigEndian.Uint32(b[icmpHeader+4:])}, nil
}

// checksum returns the Internet checksum of b (RFC 1071), whose own field is zero.
func checksum(b []byte) uint16 {
	var sum uint32
	for len(b) >= 2 {
		sum += uint32(b[0])<<8 | uint32(b[1])
		b = b[2:]
	}
	if len(b) == 1 {
		sum += uint32(b[0]) << 8
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// Echo probes a service that sends back what it gets. It is also the inner
// codec of probes that are calls (TCP handshakes, HTTP requests).
type Echo struct{ Nonce uint32 }

// Request implements probe.Codec.
func (c Echo) Request(b []byte, seq uint32) {
	clear(b)
	binary.BigEndian.PutUint32(b, c.Nonce)
	binary.BigEndian.PutUint32(b[4:], seq)
}

// Answer implements probe.Codec.
func (c Echo) Answer(b []byte) (probe.Answer, error) {
	if len(b) < 8 {
		return probe.Answer{}, ErrShortProbe
	}
	if binary.BigEndian.Uint32(b) != c.Nonce {
		return probe.Answer{}, ErrForeignProbe
	}
	return probe.Answer{Seq: binary.BigEndian.Uint32(b[4:])}, nil
}

// DNS probes a name server: each probe asks for the root's name servers, which
// every resolver holds in its cache.
type DNS struct{ newest uint32 }

// DNSSize is the length of a query.
const DNSSize unit.Size = 17

// Request implements probe.Codec. b beyond DNSSize is not to be sent.
func (c *DNS) Request(b []byte, seq uint32) {
	clear(b)
	c.newest = seq
	binary.BigEndian.PutUint16(b, uint16(seq))
	b[2] = 1                              // recursion desired
	binary.BigEndian.PutUint16(b[4:], 1)  // one question
	binary.BigEndian.PutUint16(b[13:], 2) // of the root: name servers …
	binary.BigEndian.PutUint16(b[15:], 1) // … of the Internet
}

// Answer implements probe.Codec.
func (c *DNS) Answer(b []byte) (probe.Answer, error) {
	if len(b) < 12 {
		return probe.Answer{}, ErrShortProbe
	}
	if b[2]&0x80 == 0 {
		return probe.Answer{}, ErrForeignProbe
	}
	back := uint16(c.newest) - binary.BigEndian.Uint16(b) // how many probes ago
	return probe.Answer{Seq: c.newest - uint32(back)}, nil
}
