package aqm

import (
	"fmt"

	"unbloat/unit"
)

// Cells says how a link layer cuts frames into cells.
type Cells uint8

// The link layers that tc-stab(8) and tc-cake(8) know.
const (
	NoCells Cells = iota // Ethernet, DOCSIS and all others
	ATM                  // 48 bytes of payload in cells of 53, the last one padded
	PTM                  // VDSL's 64b/65b: one byte more for each 64, or part of 64
)

// Framing says how long a packet is on the bottleneck's wire, which is what a
// shaper has to count. Its zero value counts Packet.Size.
type Framing struct {
	// Replaced is how many bytes of Packet.Size the overhead stands for: 14
	// for a Linux device's Ethernet header when the overhead counts from the
	// IP packet, as it does for tc-cake(8).
	Replaced unit.Size
	// Overhead is added to each packet, −64 to 256 bytes.
	Overhead unit.Size
	// Minimum is the shortest frame (tc's mpu), at most 256 bytes.
	Minimum unit.Size
	Cells   Cells
}

// check reports a value outside tc's ranges.
func (f Framing) check() error {
	switch {
	case f.Replaced < 0 || f.Replaced > 64:
		return fmt.Errorf("framing: %d bytes replaced; 0 to 64 are possible", f.Replaced)
	case f.Overhead < -64 || f.Overhead > 256:
		return fmt.Errorf("framing: overhead of %d bytes; -64 to 256 are possible", f.Overhead)
	case f.Minimum < 0 || f.Minimum > 256:
		return fmt.Errorf("framing: mpu of %d bytes; 0 to 256 are possible", f.Minimum)
	case f.Cells > PTM:
		return fmt.Errorf("framing: no cells %d", f.Cells)
	}
	return nil
}

// Wire returns the bytes that a packet of that size occupies on the wire, at
// least 1 (sch_cake.c cake_calc_overhead).
func (f Framing) Wire(size unit.Size) unit.Size {
	n := max(size-f.Replaced+f.Overhead, f.Minimum, 1)
	switch f.Cells {
	case ATM:
		return (n + 47) / 48 * 53
	case PTM:
		return n + (n+63)/64
	}
	return n
}

// fixedRate is a rate as time per byte in fixed point, as Linux's shapers
// hold it: ns = bytes × mul >> shift, with 34 significant bits.
type fixedRate struct {
	mul   uint64
	shift uint8
}

// newFixedRate converts a rate; below 512 bit/s it counts as 512 bit/s, so
// that a queue always moves (sch_cake.c cake_set_rate).
func newFixedRate(r unit.Rate) fixedRate {
	f := fixedRate{shift: 34}
	f.mul = 1e9 << 34 / max(64, uint64(r)/8)
	for f.mul>>34 != 0 {
		f.mul >>= 1
		f.shift--
	}
	return f
}

// time returns how long n bytes take, rounded down to a nanosecond.
func (f fixedRate) time(n unit.Size) int64 { return int64(uint64(n) * f.mul >> f.shift) }
