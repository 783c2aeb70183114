package plan

import (
	"time"

	"unbloat/unit"
)

// A Request is a shaping whose numbers are set by hand. Its fields are those of a
// scenario's case, which converts to it (scenario.Fix). A zero field is left to
// the plan, except for the rates: a direction without a rate is not shaped.
type Request struct {
	AQM      string
	Down     unit.Rate
	Up       unit.Rate
	Target   time.Duration
	Interval time.Duration
	ECN      *bool
	Limit    int // packets
	Quantum  unit.Size
	Side     string   // ifb or lan
	Table    bool     // Preferences.FlowTable
	Tins     string   // cake only
	Classes  string   // on or off; "": by the rest
	Rules    []string // as ParseRule reads them
	// Classifier is what applies them, nft or bpf; "": nft.
	Classifier string
	Framing    string // as Line.WithFramingText reads it; "": not known
}

// Line returns a line with the request's framing.
func (r Request) Line(rtt time.Duration, varies bool) (Line, error) {
	l := Line{RTT: rtt, Varies: varies}
	if r.Framing == "" {
		return l, nil
	}
	return l.WithFramingText(r.Framing)
}

// Preferences returns the preferences with which Make plans the request. The line
// need not be measured. It fails where a rule cannot be read.
func (r Request) Preferences() (Preferences, error) {
	w := Preferences{
		AQM: AQM(r.AQM), Side: Side(r.Side),
		Down: RatePreference{Rate: r.Down}, Up: RatePreference{Rate: r.Up},
		Target: r.Target, Interval: r.Interval, ECN: r.ECN, Limit: r.Limit, Quantum: r.Quantum, Tins: r.Tins,
		Classes: ClassPreferences{Use: r.Classes, Classifier: Classifier(r.Classifier)}, FlowTable: r.Table,
	}
	for _, text := range r.Rules {
		rule, err := ParseRule(text)
		if err != nil {
			return w, err
		}
		w.Classes.Rules = append(w.Classes.Rules, rule)
	}
	switch {
	case r.Down == 0 && r.Up != 0:
		w.Only = DirectionUp
	case r.Up == 0 && r.Down != 0:
		w.Only = DirectionDown
	}
	return w, nil
}
