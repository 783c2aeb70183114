package netio

import (
	"encoding/binary"
	"net/netip"
)

// A Connection is an entry of the kernel's connection tracking.
type Connection struct {
	ID       uint32
	Protocol uint8
	From, To netip.AddrPort // of its first packet; without ports where the protocol has none
	// Answers and AnswersTo are the ends of what comes back, which NAT makes others.
	Answers, AnswersTo netip.AddrPort
	Sent, Returned     uint64 // bytes of IP packets; 0 if they are not counted
	Packets            uint64 // sent and returned
	Counted            bool   // the kernel counts bytes
	Answered           bool
	Mark               uint32
}

// Attributes of connection tracking (linux/netfilter/nfnetlink_conntrack.h).
const (
	nfGenHeader = 4 // struct nfgenmsg

	ctTupleOrig     = 1
	ctTupleReply    = 2
	ctStatus        = 3
	ctMark          = 8
	ctCountersOrig  = 9
	ctCountersReply = 10
	ctID            = 12

	ctTupleIP    = 1
	ctTupleProto = 2
	ctIPv4Src    = 1
	ctIPv4Dst    = 2
	ctIPv6Src    = 3
	ctIPv6Dst    = 4
	ctProtoNum   = 1
	ctSrcPort    = 2
	ctDstPort    = 3
	ctPackets    = 1
	ctBytes      = 2

	ctSeenReply = 1 << 1 // IPS_SEEN_REPLY
)

// parseConnection reads the body of a message of connection tracking; false: it is
// not one.
func parseConnection(b []byte) (c Connection, ok bool) {
	if len(b) < nfGenHeader {
		return c, false
	}
	eachAttribute(b[nfGenHeader:], func(kind uint16, v []byte) {
		switch kind {
		case ctTupleOrig:
			c.From, c.To, c.Protocol = parseTuple(v)
		case ctTupleReply:
			c.Answers, c.AnswersTo, _ = parseTuple(v)
		case ctStatus:
			c.Answered = number32(v)&ctSeenReply != 0
		case ctMark:
			c.Mark = number32(v)
		case ctID:
			c.ID = number32(v)
		case ctCountersOrig:
			bytes, packets := parseCounters(v)
			c.Sent, c.Packets, c.Counted = bytes, c.Packets+packets, true
		case ctCountersReply:
			bytes, packets := parseCounters(v)
			c.Returned, c.Packets = bytes, c.Packets+packets
		}
	})
	return c, c.From.IsValid() && c.To.IsValid() && c.Answers.IsValid()
}

func number32(v []byte) uint32 {
	if len(v) < 4 {
		return 0
	}
	return binary.BigEndian.Uint32(v)
}

// parseTuple reads the ends of a direction.
func parseTuple(b []byte) (src, dst netip.AddrPort, protocol uint8) {
	var from, to netip.Addr
	var sport, dport uint16
	eachAttribute(b, func(kind uint16, v []byte) {
		switch kind {
		case ctTupleIP:
			eachAttribute(v, func(kind uint16, v []byte) {
				a, ok := netip.AddrFromSlice(v)
				switch {
				case !ok:
				case kind == ctIPv4Src, kind == ctIPv6Src:
					from = a
				case kind == ctIPv4Dst, kind == ctIPv6Dst:
					to = a
				}
			})
		case ctTupleProto:
			eachAttribute(v, func(kind uint16, v []byte) {
				switch {
				case kind == ctProtoNum && len(v) >= 1:
					protocol = v[0]
				case kind == ctSrcPort && len(v) >= 2:
					sport = binary.BigEndian.Uint16(v)
				case kind == ctDstPort && len(v) >= 2:
					dport = binary.BigEndian.Uint16(v)
				}
			})
		}
	})
	return netip.AddrPortFrom(from, sport), netip.AddrPortFrom(to, dport), protocol
}

func parseCounters(b []byte) (bytes, packets uint64) {
	eachAttribute(b, func(kind uint16, v []byte) {
		switch {
		case len(v) < 8:
		case kind == ctBytes:
			bytes = binary.BigEndian.Uint64(v)
		case kind == ctPackets:
			packets = binary.BigEndian.Uint64(v)
		}
	})
	return bytes, packets
}
