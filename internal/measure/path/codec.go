package path

import (
	"encoding/binary"
	"net/netip"

	"unbloat/unit"
)

// A Codec writes probes and reads the answers.
//
// Every probe of a run has the same addresses and, with ICMP, the same
// checksum: the payload begins with the complement of the sequence number. So
// routers that spread load by flow send all of them the same way (the idea of
// Paris traceroute, Augustin et al., IMC 2006).
type Codec struct {
	UDP    bool       // UDP probes, one port a sequence number; else ICMP echo
	Target netip.Addr // the destination; probes use its address family
	ID     uint16     // identifier of ICMP echo
	AnyID  bool       // ignore the ID in answers: a ping socket sets its own, and receives only its own answers
	Token  uint32     // of the run, in every payload
	Size   unit.Size  // of the whole packet, IP header included
}

// BasePort is the UDP port of sequence number 0, as with traceroute.
const BasePort = 33434

// DefaultSize is the size of mtr's probes, so that figures on slow lines compare.
const DefaultSize unit.Size = 64

// Bounds of a probe's size.
const (
	MinSize unit.Size = 60 // IPv6 with its headers, the payload's mark, and a little
	MaxSize unit.Size = 1400
)

// Lengths of headers, and of the mark that begins a payload: the complement of
// the sequence number, then the token.
const (
	ipv4Header = 20
	ipv6Header = 40
	icmpHeader = 8 // UDP's is as long
	markSize   = 6
)

// ICMP types (RFC 792) and ICMPv6 types (RFC 4443) that matter here.
const (
	echoReply4, unreachable4, echo4, exceeded4 = 0, 3, 8, 11
	unreachable6, exceeded6, echo6, echoReply6 = 1, 3, 128, 129
)

// Transport protocols.
const (
	protoICMP4 = 1
	protoICMP6 = 58
)

// Append appends a probe for a socket: a whole ICMP echo request, or the
// payload of a UDP datagram to Port(seq).
func (c *Codec) Append(b []byte, seq uint16) []byte {
	start := len(b)
	if !c.UDP {
		kind := byte(echo4)
		if c.Target.Is6() {
			kind = echo6 // the system fills in its checksum (RFC 3542 section 3.1)
		}
		b = append(b, kind, 0, 0, 0)
		b = binary.BigEndian.AppendUint16(b, c.ID)
		b = binary.BigEndian.AppendUint16(b, seq)
	}
	b = binary.BigEndian.AppendUint16(b, ^seq)
	b = binary.BigEndian.AppendUint32(b, c.Token)
	pad := int(min(max(c.Size, MinSize), MaxSize)) - icmpHeader - markSize - ipv4Header
	if c.Target.Is6() {
		pad -= ipv6Header - ipv4Header
	}
	b = append(b, make([]byte, pad)...)
	if !c.UDP && c.Target.Is4() {
		binary.BigEndian.PutUint16(b[start+2:], checksum(b[start:]))
	}
	return b
}

// Port returns the UDP port of a sequence number.
func (c *Codec) Port(seq uint16) uint16 { return BasePort + seq }

// A Form is the kind of a Heard.
type Form uint8

// Forms.
const (
	Message  Form = iota + 1 // Data is a whole ICMP message
	Error                    // an ICMP error of Type and Code; Data is what it quotes of the probe
	Datagram                 // Data is a UDP payload: a program answered
)

// A Heard is a message that a socket received.
type Heard struct {
	Form       Form
	From       netip.Addr
	Type, Code uint8  // of an Error
	Port       uint16 // of the UDP probe that it is about
	Data       []byte
}

// Parse reads a message. It returns false if it is not about a probe of this run.
func (c *Codec) Parse(h Heard) (Reply, bool) {
	switch h.Form {
	case Message:
		return c.message(h)
	case Error:
		kind, why, ok := c.meaning(h.Type, h.Code, h.From)
		if !ok {
			return Reply{}, false
		}
		seq, ok := c.quoted(h)
		return Reply{Seq: seq, Kind: kind, From: h.From, Why: why}, ok
	case Datagram:
		seq, ok := c.ofPort(h.Port)
		return Reply{Seq: seq, Kind: Arrived, From: h.From}, ok && c.UDP && h.From == c.Target.WithZone("")
	}
	return Reply{}, false
}

// quoted finds the sequence number in what an extended error quotes.
func (c *Codec) quoted(h Heard) (uint16, bool) {
	if c.UDP { // routers need not quote any payload (RFC 792: 64 bits of it)
		seq, ok := c.ofPort(h.Port)
		return seq, ok && c.marked(h.Data, seq)
	}
	return c.echo(h.Data, c.kinds().echo)
}

func (c *Codec) ofPort(port uint16) (uint16, bool) {
	return port - BasePort, port >= BasePort && port < BasePort+SeqSpace
}

// echo reads the header of an ICMP echo message, and its mark as far as there is one.
func (c *Codec) echo(b []byte, kind byte) (seq uint16, ok bool) {
	if len(b) < icmpHeader || b[0] != kind || b[1] != 0 {
		return 0, false
	}
	if !c.AnyID && binary.BigEndian.Uint16(b[4:]) != c.ID {
		return 0, false
	}
	seq = binary.BigEndian.Uint16(b[6:])
	return seq, seq < SeqSpace && c.marked(b[icmpHeader:], seq)
}

// marked reports whether a payload, perhaps cut, is that of a probe.
func (c *Codec) marked(payload []byte, seq uint16) bool {
	var mark [markSize]byte
	binary.BigEndian.PutUint16(mark[:], ^seq)
	binary.BigEndian.PutUint32(mark[2:], c.Token)
	n := min(len(payload), len(mark))
	return string(payload[:n]) == string(mark[:n])
}

// kinds are the ICMP types of a family.
type kinds struct{ echo, reply byte }

func (c *Codec) kinds() kinds {
	if c.Target.Is6() {
		return kinds{echo6, echoReply6}
	}
	return kinds{echo4, echoReply4}
}

// message reads a whole ICMP message.
func (c *Codec) message(h Heard) (Reply, bool) {
	b := h.Data
	if len(b) < icmpHeader || c.UDP || c.Target.Is4() && checksum(b) != 0 {
		return Reply{}, false
	}
	if k := c.kinds(); b[0] == k.reply {
		seq, ok := c.echo(b, k.reply)
		return Reply{Seq: seq, Kind: Arrived, From: h.From}, ok && len(b) >= icmpHeader+markSize
	}
	kind, why, ok := c.meaning(b[0], b[1], h.From)
	if !ok {
		return Reply{}, false
	}
	quote, class, ok := c.datagram(b[icmpHeader:])
	if !ok {
		return Reply{}, false
	}
	seq, ok := c.echo(quote, c.kinds().echo)
	return Reply{Seq: seq, Kind: kind, From: h.From, Why: why, Quoted: true, Class: class}, ok
}

// datagram returns the transport part and the traffic class of an IP datagram to the target
// that an ICMP error quotes. IPv6 extension headers are not looked through: probes have none.
func (c *Codec) datagram(b []byte) (transport []byte, class uint8, ok bool) {
	target := c.Target.WithZone("")
	if target.Is6() {
		ok := len(b) > ipv6Header && b[0]>>4 == 6 && b[6] == protoICMP6 && netip.AddrFrom16([16]byte(b[24:40])) == target
		if !ok {
			return nil, 0, false
		}
		return b[ipv6Header:], b[0]<<4 | b[1]>>4, true
	}
	if len(b) < ipv4Header || b[0]>>4 != 4 {
		return nil, 0, false
	}
	n := int(b[0]&0x0f) * 4
	later := binary.BigEndian.Uint16(b[6:])&0x1fff != 0 // a later fragment has no transport header
	if n < ipv4Header || n > len(b) || later || b[9] != protoICMP4 || netip.AddrFrom4([4]byte(b[16:20])) != target {
		return nil, 0, false
	}
	return b[n:], b[1], true
}

// checksum is that of RFC 1071; of a message that carries its own it is 0.
func checksum(b []byte) uint16 {
	var sum uint32
	for ; len(b) >= 2; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		sum += uint32(b[0]) << 8
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}
