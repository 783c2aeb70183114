package store

import (
	"encoding/json"
	"fmt"

	"unbloat/internal/measure/verdict"
)

// Figures are what a list shows of a result, from its JSON.
type Figures struct {
	Valid      bool    `json:"valid"`
	Grade      string  `json:"grade"`           // "" where there is none
	IncreaseMs float64 `json:"increase_p95_ms"` // the worst phase's p95 over idle; of a proof, its change
	DownBps    float64 `json:"goodput_down_bps"`
	UpBps      float64 `json:"goodput_up_bps"`
	Outcome    string  `json:"outcome"` // of a tuning, a proof or a scenario, in a few words
}

// head is what all results have in common, and what a list needs of each kind.
type head struct {
	Schema string `json:"schema"`
	Time   string `json:"time"`
	Label  string `json:"label"`
	Server string `json:"server"`

	Before *verdict.Test `json:"before"` // of a tuning
	After  *verdict.Test `json:"after"`
	Kept   bool          `json:"kept"`

	Outcome string        `json:"outcome"` // of a proof
	Change  *proofChange  `json:"p95_change_ms"`
	Sides   []proofSide   `json:"sides"`
	Between []string      `json:"between"`
	Name    string        `json:"scenario"` // of a lab run
	Cases   []labCaseHead `json:"cases"`

	Valid   bool       `json:"valid"` // of a trace
	Host    string     `json:"host"`
	Address string     `json:"address"`
	Begins  *pathHead  `json:"begins"`
	Load    *proofSide `json:"load"` // what it moved
}

type pathHead struct {
	Hop        int     `json:"hop"`
	Place      string  `json:"place"`
	IncreaseMs float64 `json:"increase_ms"`
}

type proofChange struct {
	Median float64 `json:"median"`
}

type proofSide struct {
	DownBps float64 `json:"goodput_down_bps"`
	UpBps   float64 `json:"goodput_up_bps"`
}

type labCaseHead struct {
	Name string        `json:"name"`
	Test *verdict.Test `json:"test"`
}

// figures reads the figures of a result.
func (r Record) figures() (Figures, error) {
	var h head
	if err := json.Unmarshal(r.Result, &h); err != nil {
		return Figures{}, fmt.Errorf("result: %w", err)
	}
	switch r.Kind {
	case KindTune:
		f := ofTest(h.Before)
		f.Outcome = "not kept"
		if h.Kept && h.After != nil {
			f = ofTest(h.After)
			f.Outcome = "kept"
		}
		return f, nil
	case KindProve:
		f := Figures{Outcome: h.Outcome, Valid: h.Outcome != string(verdict.Unproved)}
		if h.Change != nil {
			f.IncreaseMs = h.Change.Median
		}
		if len(h.Sides) == 2 {
			f.DownBps, f.UpBps = h.Sides[1].DownBps, h.Sides[1].UpBps
		}
		if len(h.Between) == 2 {
			f.Outcome = h.Between[0] + "→" + h.Between[1] + ": " + h.Outcome
		}
		return f, nil
	case KindPath:
		f := Figures{Valid: h.Valid, Outcome: "path to " + h.Host}
		if h.Begins != nil {
			f.IncreaseMs = h.Begins.IncreaseMs
			f.Outcome += fmt.Sprintf(": begins at hop %d, %s", h.Begins.Hop, h.Begins.Place)
		}
		if h.Load != nil {
			f.DownBps, f.UpBps = h.Load.DownBps, h.Load.UpBps
		}
		return f, nil
	case KindLab:
		f := Figures{}
		if n := len(h.Cases); n > 0 {
			f = ofTest(h.Cases[n-1].Test)
			f.Outcome = h.Name + ", " + h.Cases[n-1].Name
		}
		return f, nil
	}
	var t verdict.Test
	if err := json.Unmarshal(r.Result, &t); err != nil {
		return Figures{}, fmt.Errorf("result: %w", err)
	}
	return ofTest(&t), nil
}

func ofTest(t *verdict.Test) Figures {
	if t == nil {
		return Figures{}
	}
	f := Figures{Valid: t.Valid, Grade: t.Grade}
	for _, p := range t.Phases() {
		if p.Name != verdict.PhaseIdle {
			f.IncreaseMs = max(f.IncreaseMs, p.Latency.IncreaseMs.P95)
		}
		f.DownBps, f.UpBps = max(f.DownBps, p.GoodputDownBps), max(f.UpBps, p.GoodputUpBps)
	}
	return f
}
