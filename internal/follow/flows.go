package follow

import (
	"time"

	"unbloat/unit"
)

// Sizes and times of Flows.
const (
	flowStamps = 1024
	flowCount  = 64
	stampEvery = 20 * time.Millisecond // one stamp of a flow is enough
	stampStale = 20 * time.Second
	flowReport = 60 * time.Millisecond // a flow's shortest round trip of this time is told
)

// Flows finds the round trips of TCP flows from the timestamps of their packets
// (RFC 7323, section 3) as they pass the WAN: a value that went out comes back as an
// echo. Nothing is sent for it. The zero value is ready; nothing is allocated.
type Flows struct {
	stamps [flowStamps]stamp
	flows  [flowCount]flowState
}

// stamp is a value that has gone out.
type stamp struct {
	flow  uint64
	value uint32
	used  bool
	at    unit.Instant
}

// flowState is what is remembered of a flow.
type flowState struct {
	flow     uint64
	used     bool
	stamped  unit.Instant // the last stamp that was kept
	began    unit.Instant // of this report
	shortest time.Duration
}

// mix spreads a flow's number and a value over the tables (splitmix64's last steps).
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

func (f *Flows) slot(flow uint64, value uint32) *stamp {
	return &f.stamps[mix(flow^uint64(value)<<32^uint64(value))%flowStamps]
}

func (f *Flows) state(flow uint64) *flowState { return &f.flows[mix(flow)%flowCount] }

// Out takes note of a packet that leaves on the WAN, of a flow that the caller numbers,
// with its timestamp value.
func (f *Flows) Out(at unit.Instant, flow uint64, value uint32) {
	s := f.state(flow)
	if !s.used || s.flow != flow {
		if s.used && at.Sub(s.stamped) < time.Second {
			return // its place is taken by a flow that is busy
		}
		*s = flowState{flow: flow, used: true, stamped: never, began: never}
	}
	if s.stamped != never && at.Sub(s.stamped) < stampEvery {
		return
	}
	x := f.slot(flow, value)
	if x.used && at.Sub(x.at) < stampStale {
		return // the first packet with a value counts
	}
	s.stamped = at
	*x = stamp{flow, value, true, at}
}

// In takes note of a packet of the flow that arrives on the WAN, with its timestamp echo.
// operator is a number for the far end's network. From time to time there is a delay to
// tell a Controller.
func (f *Flows) In(at unit.Instant, flow uint64, operator, echo uint32) (d Delay, ok bool) {
	x := f.slot(flow, echo)
	if !x.used || x.flow != flow || x.value != echo {
		return d, false
	}
	x.used = false
	s := f.state(flow)
	rtt := at.Sub(x.at)
	if s.flow != flow || rtt <= 0 {
		return d, false
	}
	if s.began == never {
		s.began, s.shortest = at, rtt
		return d, false
	}
	s.shortest = min(s.shortest, rtt)
	if at.Sub(s.began) < flowReport {
		return d, false
	}
	d = Delay{At: at, Source: uint32(mix(flow)), Operator: operator, Passive: true, RTT: s.shortest}
	s.began = never
	return d, true
}
