package plan

import (
	"time"

	"unbloat/unit"
)

// A Request is a shaping that somebody chose by hand, field for field as a
// scenario's case gives it (scenario.Fix converts to it): what is zero is
// planned, but a direction without a rate is not shaped at all.
type Request struct {
	AQM      string
	Down     unit.Rate
	Up       unit.Rate
	Target   time.Duration
	Interval time.Duration
	ECN      *bool
	Limit    int // packets
	Quantum  unit.Size
	Side     string // ifb or lan
	Tins     string // cake only
	Classes  string // on or off; "": by the rest
}

// Preferences returns what Make needs to give the request on a line that was
// measured, or on one of which nothing is known.
func (r Request) Preferences() Preferences {
	w := Preferences{
		AQM: AQM(r.AQM), Side: Side(r.Side),
		Down: RatePreference{Rate: r.Down}, Up: RatePreference{Rate: r.Up},
		Target: r.Target, Interval: r.Interval, ECN: r.ECN, Limit: r.Limit, Quantum: r.Quantum, Tins: r.Tins,
		Classes: ClassPreferences{Use: r.Classes},
	}
	switch {
	case r.Down == 0 && r.Up != 0:
		w.Only = DirectionUp
	case r.Up == 0 && r.Down != 0:
		w.Only = DirectionDown
	}
	return w
}
