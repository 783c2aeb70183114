package netio

import (
	"time"

	"unbloat/unit"
)

// A Bins counts bytes in bins of equal width.
type Bins struct {
	Start unit.Instant
	Width time.Duration
	Bytes []int64
	Total int64
}

// maxBins bounds the memory of a series: what comes later is counted in the last bin.
const maxBins = 1 << 16

// Add counts n bytes that arrived evenly over (from, to]. What arrived before
// Start is counted in the total only.
func (b *Bins) Add(from, to unit.Instant, n int64) {
	b.Total += n
	if to.Before(from) {
		from = to
	}
	span := to.Sub(from)
	left := n
	if from.Before(b.Start) {
		if !b.Start.Before(to) {
			return
		}
		left -= share(n, b.Start.Sub(from), span)
		from = b.Start
	}
	for left > 0 {
		i := b.index(from)
		edge := b.Start.Add(time.Duration(i+1) * b.Width)
		part := left
		if edge.Before(to) && i < maxBins-1 {
			part = min(left, share(n, edge.Sub(from), span))
		}
		for len(b.Bytes) <= i {
			b.Bytes = append(b.Bytes, 0)
		}
		b.Bytes[i] += part
		left -= part
		if !edge.Before(to) || i == maxBins-1 {
			b.Bytes[i] += left
			return
		}
		from = edge
	}
}

func (b *Bins) index(at unit.Instant) int {
	return int(min(at.Sub(b.Start)/b.Width, maxBins-1))
}

// share returns n × part/whole, rounded down.
func share(n int64, part, whole time.Duration) int64 {
	if whole <= 0 {
		return n
	}
	return int64(float64(n) * (float64(part) / float64(whole)))
}
