package verdict

import (
	"unbloat/internal/measure/probe"
	"unbloat/unit"
)

// leastDelivered is how many samples of a group of senders a rate is drawn
// through at least.
const leastDelivered = 6

// Delivered returns the rate, in bit/s of payload, at which what senders sent
// reached the other end from from to to, by their acknowledgements: the slope,
// by least squares, of what was acknowledged or lies behind a hole. ok is false
// where the system does not tell, or too rarely.
//
// A receiver that knows only segments and bytes in order cannot tell duplicates
// from data behind a hole that stays open to the end; with a hundred uploads at
// 1 Mbit/s that is 2 % of what arrived.
func Delivered(groups [][]probe.SenderSample, from, to unit.Instant) (bps float64, ok bool) {
	for _, g := range groups {
		slope, ok := deliveredSlope(g, from, to)
		if !ok {
			return 0, false
		}
		bps += 8 * slope
	}
	return bps, bps > 0
}

// deliveredSlope returns what one group delivered, in bytes a second.
func deliveredSlope(samples []probe.SenderSample, from, to unit.Instant) (slope float64, ok bool) {
	var n, sumT, sumB, sumTT, sumTB float64
	for _, s := range samples {
		if s.At.Before(from) || to.Before(s.At) {
			continue
		}
		if !s.Known {
			return 0, false
		}
		t, b := s.At.Sub(from).Seconds(), float64(s.Acked+s.Sacked)
		n, sumT, sumB, sumTT, sumTB = n+1, sumT+t, sumB+b, sumTT+t*t, sumTB+t*b
	}
	spread := n*sumTT - sumT*sumT
	if n < leastDelivered || spread <= 0 {
		return 0, false
	}
	return (n*sumTB - sumT*sumB) / spread, true
}

// arrived returns the rate, in bit/s of payload, at which what senders sent
// reached the other end in a short time, by the samples nearest to its ends; 0
// where the system does not tell. Of a hundred uploads that share 1 Mbit/s most
// have a hole open when the load ends, and their receiver counts less.
func arrived(groups [][]probe.SenderSample, from, to unit.Instant) (bps float64) {
	for _, g := range groups {
		a, b, ok := around(g, from, to)
		if !ok {
			return 0
		}
		bps += 8 * float64(b.Acked+b.Sacked-a.Acked-a.Sacked) / b.At.Sub(a.At).Seconds()
	}
	return bps
}
