package plan

import (
	"unbloat/reason"
	"unbloat/unit"
)

// EthernetHeader is the number of bytes that Linux counts besides the IP packet on
// an Ethernet device: two addresses and a type, without the frame check sequence.
const EthernetHeader = 14

// A full TCP segment on plain Ethernet: 1500 bytes of IP of which 1448 are
// payload (20 IP, 20 TCP, 12 timestamps).
const (
	fullIP      unit.Size = 1500
	fullPayload unit.Size = 1448
)

// StabOverhead returns the bytes that tc-stab(8) must add to the kernel's own count
// of a packet; 0 means that the kernel's count is right.
func (s Shaper) StabOverhead() int { return s.Overhead - s.HeaderLen }

// WireSize returns how many bytes an IP packet of n bytes occupies on the line.
func (s Shaper) WireSize(n unit.Size) unit.Size {
	return wireSize(s.LinkLayer, s.Overhead, s.MPU, n)
}

// wireSize follows cake_calc_overhead of Linux's sch_cake.c: ATM fills cells of
// 48 bytes that occupy 53, PTM adds a byte to every 64 or part of it.
func wireSize(layer LinkLayer, overhead, mpu int, n unit.Size) unit.Size {
	n = max(n+unit.Size(overhead), unit.Size(mpu))
	switch layer {
	case ATM:
		return (n + 47) / 48 * 53
	case PTM:
		return n + (n+63)/64
	default:
		return n
	}
}

// framing is the framing of a line, and why it is assumed.
type framing struct {
	layer         LinkLayer
	overhead, mpu int
	why           reason.Reason
}

// framing fills in what is not known of the line's framing. headerLen is what the
// kernel already counts; pppoe means that the router runs a PPPoE session itself.
func (l Line) framing(headerLen int, pppoe bool) framing {
	f := framing{layer: l.LinkLayer, overhead: l.Overhead, mpu: l.MPU, why: say(reason.AsGiven)}
	if f.layer == "" {
		f.layer = Ethernet
	}
	if l.Measured {
		f.why = say(reason.FramingMeasured, "bytes", l.Overhead)
		if f.layer == ATM {
			f.why = say(reason.FramingMeasuredCells, "bytes", l.Overhead)
		}
		return f
	}
	if l.Overhead != 0 {
		return f
	}
	var mpu int
	var why reason.Code
	switch {
	case f.layer == DOCSIS:
		f.overhead, mpu, why = 18, 64, reason.FramingDOCSIS
	case f.layer == ATM:
		f.overhead, mpu, why = 44, 96, reason.FramingATM
	case f.layer == PTM && pppoe:
		f.overhead, mpu, why = 30, 68, reason.FramingPPPoEPTM
	case f.layer == PTM:
		f.overhead, mpu, why = 22, 68, reason.FramingPTM
	case pppoe:
		f.overhead, why = EthernetHeader+8, reason.FramingPPPoE
	default:
		f.overhead, why = headerLen, reason.FramingUnknown
	}
	if f.mpu == 0 {
		f.mpu = mpu
	}
	f.why = say(why)
	return f
}

// Wire returns how many bytes an IP packet of n bytes occupies on the line, as far as its
// framing is known.
func (l Line) Wire(n unit.Size) unit.Size {
	f := l.framing(EthernetHeader, false)
	return wireSize(f.layer, f.overhead, f.mpu, n)
}

// A tenth of what a home carries is taken to be in packets of 100 bytes: calls, games,
// acknowledgements.
const (
	smallIP    = unit.Size(100)
	smallShare = 0.1
)

// Uncounted returns how many times more bytes a usual mix of packets occupies on the line than a
// shaper counts that knows of headerLen bytes besides IP alone.
func (l Line) Uncounted(headerLen int) float64 {
	more := func(n unit.Size) float64 { return float64(l.Wire(n)) / float64(n+unit.Size(headerLen)) }
	return (1-smallShare)*more(fullIP) + smallShare*more(smallIP)
}

// FromGoodput returns the line rate that carries a goodput of bps in full TCP
// segments, rounded down: on plain Ethernet bps × 1514/1448. It returns 0 unless
// bps is a positive number.
func (l Line) FromGoodput(bps float64) unit.Rate {
	if !(bps > 0) {
		return 0
	}
	rate := bps * float64(l.Wire(fullIP)) / float64(fullPayload)
	return unit.Rate(min(rate, float64(MaxRate)))
}
