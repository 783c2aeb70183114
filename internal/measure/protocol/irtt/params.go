package irtt

import (
	"encoding/binary"
	"fmt"
	"time"

	"unbloat/unit"
)

// Values of Params.
const (
	StatsCount  = 1
	StatsWindow = 2
	StatsBoth   = 3

	AtReceive  = 1
	AtSend     = 2
	AtBoth     = 3
	AtMidpoint = 4

	ClockWall = 1
	ClockMono = 2
	ClockBoth = 3
)

// Params are what a client asks for, and what a server grants.
type Params struct {
	Version  int
	Duration time.Duration
	Interval time.Duration
	Length   unit.Size // of a datagram
	Stats    int       // StatsCount, StatsWindow
	StampAt  int       // AtReceive, AtSend, AtMidpoint
	Clock    int       // ClockWall, ClockMono
	DSCP     int       // the traffic class byte
	Fill     string    // of the server's payload; ignored here
}

const (
	maxParams = 128
	maxFill   = 32
)

// The parameters' tags.
const (
	tagVersion = 1 + iota
	tagDuration
	tagInterval
	tagLength
	tagStats
	tagStampAt
	tagClock
	tagDSCP
	tagFill
)

// Append appends the parameters to b; those that are zero are left out.
func (p Params) Append(b []byte) []byte {
	for _, v := range []struct {
		tag   uint64
		value int64
	}{
		{tagVersion, int64(p.Version)}, {tagDuration, int64(p.Duration)}, {tagInterval, int64(p.Interval)},
		{tagLength, int64(p.Length)}, {tagStats, int64(p.Stats)}, {tagStampAt, int64(p.StampAt)},
		{tagClock, int64(p.Clock)}, {tagDSCP, int64(p.DSCP)},
	} {
		if v.value != 0 {
			b = binary.AppendVarint(binary.AppendUvarint(b, v.tag), v.value)
		}
	}
	if p.Fill != "" {
		fill := p.Fill[:min(len(p.Fill), maxFill)]
		b = append(binary.AppendUvarint(binary.AppendUvarint(b, tagFill), uint64(len(fill))), fill...)
	}
	return b
}

// ParseParams reads parameters and checks them; unknown ones are ignored.
// Its errors wrap ErrParams.
func ParseParams(b []byte) (Params, error) {
	var p Params
	for len(b) > 0 {
		tag, n := binary.Uvarint(b)
		if n <= 0 {
			return p, fmt.Errorf("%w: cut off", ErrParams)
		}
		b = b[n:]
		if tag == tagFill {
			size, n := binary.Uvarint(b)
			if n <= 0 || size > maxFill || uint64(len(b)-n) < size {
				return p, fmt.Errorf("%w: fill", ErrParams)
			}
			p.Fill, b = string(b[n:][:size]), b[n:][size:]
			continue
		}
		v, n := binary.Varint(b)
		if n <= 0 {
			return p, fmt.Errorf("%w: cut off", ErrParams)
		}
		b = b[n:]
		if err := p.set(tag, v); err != nil {
			return p, err
		}
	}
	return p, nil
}

func (p *Params) set(tag uint64, v int64) error {
	within := func(low, high int64) error {
		if v < low || v > high {
			return fmt.Errorf("%w: parameter %d is %d, must be %d to %d", ErrParams, tag, v, low, high)
		}
		return nil
	}
	switch tag {
	case tagVersion:
		p.Version = int(int32(v))
		return within(0, 1<<20)
	case tagDuration:
		p.Duration = time.Duration(v)
		return within(1, 1<<62)
	case tagInterval:
		p.Interval = time.Duration(v)
		return within(1, 1<<62)
	case tagLength:
		p.Length = unit.Size(v)
		return within(0, 1<<16)
	case tagStats:
		p.Stats = int(v)
		return within(0, StatsBoth)
	case tagStampAt:
		p.StampAt = int(v)
		return within(0, AtMidpoint)
	case tagClock:
		p.Clock = int(v)
		return within(0, ClockBoth)
	case tagDSCP:
		p.DSCP = int(v)
		return within(0, 255)
	}
	return nil
}

// EchoSize returns the length of an echo and its answer.
func (p Params) EchoSize(key []byte) unit.Size {
	n := headSize(key) + 8 + 4
	if p.Stats&StatsCount != 0 {
		n += 4
	}
	if p.Stats&StatsWindow != 0 {
		n += 8
	}
	stamp := 0
	if p.Clock&ClockWall != 0 {
		stamp += 8
	}
	if p.Clock&ClockMono != 0 {
		stamp += 8
	}
	for _, at := range []int{AtReceive, AtSend, AtMidpoint} {
		if p.StampAt&at != 0 {
			n += stamp
		}
	}
	return max(unit.Size(n), p.Length)
}
