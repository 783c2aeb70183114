package netio

import (
	"encoding/binary"
	"math"

	"unbloat/unit"
)

// LinkCounts are the counters of an interface, and of the queue that it sends
// through.
type LinkCounts struct {
	Index                int // changes when an interface goes and comes again
	RxBytes, TxBytes     uint64
	RxPackets, TxPackets uint64
	Queue                QueueCounts // of the root qdisc; the zero value where there is none
}

// QueueCounts are the counters of a qdisc with all below it.
type QueueCounts struct {
	Kind    string // "cake", "htb" …
	Handle  uint32
	Bytes   uint64 // sent
	Packets uint64 // sent
	Drops   uint64
	Backlog uint64 // bytes that wait now
	Waiting uint64 // packets that wait now
	// Rate is what CAKE shapes to; 0: it does not, or this is another kind, which keeps
	// its rate in its classes.
	Rate unit.Rate
	// Tins are the packets that each of CAKE's tins has sent, the first one first. They
	// count 32 bits.
	Tins [MostTins]uint32
}

// MostTins is how many tins CAKE has at most.
const MostTins = 8

// Numbers of rtnetlink(7), which the parsers need on every system: they are
// tested everywhere.
const (
	nlHeader      = 16
	nlMsgError    = 2
	nlMsgDone     = 3
	rtmNewLink    = 16
	rtmNewQdisc   = 36
	linkHeader    = 16 // struct ifinfomsg
	qdiscHeader   = 20 // struct tcmsg
	iflaIfname    = 3
	iflaStats64   = 23
	tcaKind       = 1
	tcaOptions    = 2
	cakeRate      = 2 // TCA_CAKE_BASE_RATE64, bytes a second
	tcaStats2     = 7
	tcaStatsBasic = 1
	tcaStatsQueue = 3
	tcaStatsApp   = 4
	tcaStatsPkt64 = 8
	cakeTins      = 10 // TCA_CAKE_STATS_TIN_STATS
	cakeTinSent   = 2  // TCA_CAKE_TIN_STATS_SENT_PACKETS
	tcRoot        = 0xffffffff
	nestedBits    = 0x3fff // of an attribute's type: without flags
)

// eachAttribute calls f for every attribute of a netlink message; what is
// malformed ends it.
func eachAttribute(b []byte, f func(kind uint16, value []byte)) {
	const header = 4
	for len(b) >= header {
		n := int(binary.NativeEndian.Uint16(b))
		if n < header || n > len(b) {
			return
		}
		f(binary.NativeEndian.Uint16(b[2:])&nestedBits, b[header:n])
		b = b[min((n+3)&^3, len(b)):]
	}
}

// parseLink reads the body of an RTM_NEWLINK message.
func parseLink(b []byte) (name string, c LinkCounts, ok bool) {
	if len(b) < linkHeader {
		return "", c, false
	}
	c.Index = int(int32(binary.NativeEndian.Uint32(b[4:])))
	eachAttribute(b[linkHeader:], func(kind uint16, v []byte) {
		switch {
		case kind == iflaIfname:
			name = cString(v)
		case kind == iflaStats64 && len(v) >= 32: // struct rtnl_link_stats64
			c.RxPackets, c.TxPackets = binary.NativeEndian.Uint64(v), binary.NativeEndian.Uint64(v[8:])
			c.RxBytes, c.TxBytes = binary.NativeEndian.Uint64(v[16:]), binary.NativeEndian.Uint64(v[24:])
			ok = true
		}
	})
	return name, c, ok && name != ""
}

// parseQdisc reads the body of an RTM_NEWQDISC message; root says that the
// interface sends through it.
func parseQdisc(b []byte) (index int, root bool, q QueueCounts, ok bool) {
	if len(b) < qdiscHeader {
		return 0, false, q, false
	}
	index = int(int32(binary.NativeEndian.Uint32(b[4:])))
	q.Handle = binary.NativeEndian.Uint32(b[8:])
	root = binary.NativeEndian.Uint32(b[12:]) == tcRoot
	var options, app []byte
	eachAttribute(b[qdiscHeader:], func(kind uint16, v []byte) {
		switch kind {
		case tcaKind:
			q.Kind = cString(v)
		case tcaOptions:
			options = v
		case tcaStats2:
			ok = true
			eachAttribute(v, func(kind uint16, v []byte) {
				switch {
				case kind == tcaStatsBasic && len(v) >= 12: // struct gnet_stats_basic
					q.Bytes = binary.NativeEndian.Uint64(v)
					q.Packets = max(q.Packets, uint64(binary.NativeEndian.Uint32(v[8:])))
				case kind == tcaStatsPkt64 && len(v) >= 8: // follows, where 32 bits are too few
					q.Packets = binary.NativeEndian.Uint64(v)
				case kind == tcaStatsApp:
					app = v
				case kind == tcaStatsQueue && len(v) >= 12: // struct gnet_stats_queue
					q.Waiting = uint64(binary.NativeEndian.Uint32(v))
					q.Backlog = uint64(binary.NativeEndian.Uint32(v[4:]))
					q.Drops = uint64(binary.NativeEndian.Uint32(v[8:]))
				}
			})
		}
	})
	if q.Kind == "cake" {
		eachAttribute(options, func(kind uint16, v []byte) {
			if kind == cakeRate && len(v) >= 8 {
				const bits, most = 8, math.MaxInt64 / 8
				q.Rate = unit.Rate(min(binary.NativeEndian.Uint64(v), most)) * bits
			}
		})
		eachAttribute(app, func(kind uint16, v []byte) {
			if kind == cakeTins {
				eachAttribute(v, q.tin)
			}
		})
	}
	return index, root, q, ok
}

// tin takes in what the kernel says of the n-th tin, from 1.
func (q *QueueCounts) tin(n uint16, v []byte) {
	eachAttribute(v, func(kind uint16, v []byte) {
		if kind == cakeTinSent && n >= 1 && n <= MostTins && len(v) >= 4 {
			q.Tins[n-1] = binary.NativeEndian.Uint32(v)
		}
	})
}

// cString returns the bytes before the first zero.
func cString(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}
