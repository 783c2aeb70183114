package delay

import (
	"encoding/binary"
	"net/netip"
)

// EtherTypes that ParsePacket knows.
const (
	TypeIPv4  = 0x0800
	TypeIPv6  = 0x86dd
	TypeVLAN  = 0x8100 // 802.1Q
	TypeQinQ  = 0x88a8 // 802.1ad
	TypePPPoE = 0x8864 // session stage, RFC 2516
)

// A Segment is what the Tracker needs of a TCP segment.
type Segment struct {
	Src, Dst         netip.Addr
	SrcPort, DstPort uint16
	Seq, Ack         uint32
	Length           uint32 // of the payload, as the IP header says
	Flags            uint8  // FlagSyn …
	HasStamp         bool   // the timestamps option of RFC 7323 is there
	TSval, TSecr     uint32
}

// TCP flags.
const (
	FlagFin = 1 << 0
	FlagSyn = 1 << 1
	FlagRst = 1 << 2
	FlagAck = 1 << 4
)

// ParsePacket reads what follows an EtherType: IPv4 or IPv6 with a TCP segment,
// below any VLAN tags and a PPPoE header. The packet may be cut off behind its TCP
// header. ok is false of everything that is no first fragment of TCP, and of what
// is malformed.
func ParsePacket(etherType uint16, b []byte) (s Segment, ok bool) {
	const mostTags = 2
	for range mostTags {
		if etherType != TypeVLAN && etherType != TypeQinQ {
			break
		}
		if len(b) < 4 {
			return Segment{}, false
		}
		etherType, b = binary.BigEndian.Uint16(b[2:]), b[4:]
	}
	if etherType == TypePPPoE {
		const header, ppp4, ppp6 = 6, 0x0021, 0x0057
		if len(b) < header+2 || b[0] != 0x11 || b[1] != 0 {
			return Segment{}, false
		}
		switch binary.BigEndian.Uint16(b[header:]) {
		case ppp4:
			etherType = TypeIPv4
		case ppp6:
			etherType = TypeIPv6
		}
		b = b[header+2:]
	}
	switch etherType {
	case TypeIPv4:
		return parse4(b)
	case TypeIPv6:
		return parse6(b)
	}
	return Segment{}, false
}

const protocolTCP = 6

func parse4(b []byte) (s Segment, ok bool) {
	const least = 20
	if len(b) < least || b[0]>>4 != 4 || b[9] != protocolTCP {
		return s, false
	}
	header := int(b[0]&15) * 4
	total := int(binary.BigEndian.Uint16(b[2:]))
	fragment := binary.BigEndian.Uint16(b[6:]) & 0x3fff // more fragments, offset
	if header < least || header > len(b) || total < header || fragment != 0 {
		return s, false
	}
	s.Src, s.Dst = netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
	return s, parseTCP(&s, b[header:], total-header)
}

// IPv6 extension headers that may stand before TCP: hop-by-hop, routing, and
// destination options. A fragment's offset is not followed.
func parse6(b []byte) (s Segment, ok bool) {
	const header, most = 40, 4
	if len(b) < header || b[0]>>4 != 6 {
		return s, false
	}
	s.Src, s.Dst = netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
	next, length := b[6], int(binary.BigEndian.Uint16(b[4:]))
	b = b[header:]
	for range most {
		if next == protocolTCP {
			return s, parseTCP(&s, b, length)
		}
		if next != 0 && next != 43 && next != 60 || len(b) < 8 {
			return Segment{}, false
		}
		n := 8 + int(b[1])*8
		if n > len(b) || n > length {
			return Segment{}, false
		}
		next, b, length = b[0], b[n:], length-n
	}
	return Segment{}, false
}

// parseTCP reads a TCP header; length is that of the whole segment.
func parseTCP(s *Segment, b []byte, length int) bool {
	const least = 20
	if len(b) < least {
		return false
	}
	header := int(b[12]>>4) * 4
	if header < least || header > len(b) || header > length {
		return false
	}
	s.SrcPort, s.DstPort = binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
	s.Seq, s.Ack = binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint32(b[8:])
	s.Length, s.Flags = uint32(length-header), b[13]
	const end, nop, stamps, stampsLength = 0, 1, 8, 10
	for o := b[least:header]; len(o) > 0; {
		switch {
		case o[0] == end:
			return true
		case o[0] == nop:
			o = o[1:]
		case len(o) < 2 || o[1] < 2 || int(o[1]) > len(o):
			return true // malformed options end here; the segment has no stamps
		case o[0] == stamps && o[1] == stampsLength:
			s.HasStamp = true
			s.TSval, s.TSecr = binary.BigEndian.Uint32(o[2:]), binary.BigEndian.Uint32(o[6:])
			return true
		default:
			o = o[o[1]:]
		}
	}
	return true
}
