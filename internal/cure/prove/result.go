package prove

import (
	"fmt"
	"math"
	"slices"

	"unbloat/internal/cure/plan"
	"unbloat/internal/measure/verdict"
	"unbloat/unit"
)

// Schema names the JSON layout of a Result.
const Schema = "unbloat.prove/1"

// A Result is the outcome of a proof. Changes are those of the second side compared
// with the first.
type Result struct {
	Schema  string    `json:"schema"`
	Time    string    `json:"time"` // RFC 3339, when it began
	Label   string    `json:"label"`
	Server  string    `json:"server"`
	WAN     string    `json:"wan"`
	Between [2]string `json:"between"`
	verdict.Proof
	Sentence    string         `json:"sentence"` // the outcome in plain words
	PairsWanted int            `json:"pairs_wanted"`
	PairsUsed   int            `json:"pairs_used"`
	Phase       string         `json:"phase"` // what was loaded: download, upload or both
	LineSeconds float64        `json:"line_seconds"`
	Seed        uint64         `json:"seed"` // of the order
	Sides       [2]Summary     `json:"sides"`
	Idle        *verdict.Phase `json:"idle"`
	Pairs       []PairResult   `json:"pairs"` // in the order they were measured
}

// A Summary is one side over all used pairs: medians of its legs.
type Summary struct {
	Name           string     `json:"name"`
	Plan           *plan.Plan `json:"plan"` // null: no shaping
	P95Ms          float64    `json:"p95_ms"`
	IncreaseMs     float64    `json:"increase_p95_ms"` // over idle
	GoodputDownBps float64    `json:"goodput_down_bps"`
	GoodputUpBps   float64    `json:"goodput_up_bps"`
	Loss           float64    `json:"loss"` // of probes
}

// A PairResult is one pair as it was measured.
type PairResult struct {
	SecondFirst    bool           `json:"second_first"` // the second side was measured first
	Used           bool           `json:"used"`
	InvalidReasons []string       `json:"invalid_reasons"` // why not
	Without        *verdict.Phase `json:"without"`         // the first side
	With           *verdict.Phase `json:"with"`
}

// conclude computes what the pairs prove, and the sentence.
func (r *Result) conclude() {
	var pairs []verdict.Pair
	for _, p := range r.Pairs {
		if p.Used {
			pairs = append(pairs, verdict.Pair{Without: p.Without, With: p.With})
		}
	}
	r.PairsUsed = len(pairs)
	r.Proof = verdict.Proof{Outcome: verdict.Unproved}
	if r.PairsUsed >= r.PairsWanted {
		r.Proof = verdict.Prove(pairs)
	}
	for i := range r.Sides {
		leg := func(p verdict.Pair) *verdict.Phase {
			if i == 0 {
				return p.Without
			}
			return p.With
		}
		median := func(f func(*verdict.Phase) float64) float64 { return medianOf(pairs, leg, f) }
		s := &r.Sides[i]
		s.P95Ms = median(func(p *verdict.Phase) float64 { return p.Latency.RTTMs.P95 })
		s.IncreaseMs = median(func(p *verdict.Phase) float64 { return p.Latency.IncreaseMs.P95 })
		s.GoodputDownBps = median(func(p *verdict.Phase) float64 { return p.GoodputDownBps })
		s.GoodputUpBps = median(func(p *verdict.Phase) float64 { return p.GoodputUpBps })
		s.Loss = median(func(p *verdict.Phase) float64 { return p.Latency.Loss })
	}
	r.Sentence = r.sentence()
}

func medianOf(pairs []verdict.Pair, leg func(verdict.Pair) *verdict.Phase, f func(*verdict.Phase) float64) float64 {
	if len(pairs) == 0 {
		return 0
	}
	v := make([]float64, len(pairs))
	for i, p := range pairs {
		v[i] = f(leg(p))
	}
	slices.Sort(v)
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// sentence describes the outcome in words.
func (r *Result) sentence() string {
	a, b := wording(r.Sides[0]), wording(r.Sides[1])
	if r.Outcome == verdict.Unproved && r.PairsUsed >= r.PairsWanted {
		return "Nothing is proved: in a leg too few probes were answered."
	}
	if r.Outcome == verdict.Unproved {
		return fmt.Sprintf("Nothing is proved: only %d of %d pairs can be trusted; %s.", r.PairsUsed, r.PairsWanted, r.firstReason())
	}
	c := r.P95Ms
	interval := fmt.Sprintf("95 %% interval %s to %s, %d pairs", signed(c.Lo), signed(c.Hi), r.PairsUsed)
	price := r.price()
	switch r.Outcome {
	case verdict.Improved:
		return fmt.Sprintf("Improved: under load the p95 round trip is %s with %s, and %s with %s (%s)%s.",
			ms(r.Sides[0].P95Ms), a, ms(r.Sides[1].P95Ms), b, interval, price)
	case verdict.Worsened:
		return fmt.Sprintf("Worse: under load the p95 round trip is %s with %s, and %s with %s (%s)%s.",
			ms(r.Sides[0].P95Ms), a, ms(r.Sides[1].P95Ms), b, interval, price)
	}
	return fmt.Sprintf("No difference shown between %s and %s: the p95 round trip under load changed by %s (%s), which may be chance%s.",
		a, b, signed(c.Median), interval, price)
}

// price describes the change of the goodput.
func (r *Result) price() string {
	out := ""
	for _, d := range []struct {
		name   string
		change *verdict.Change
	}{{"download", r.GoodputDown}, {"upload", r.GoodputUp}} {
		if d.change != nil {
			out += fmt.Sprintf("; %s %s (%s to %s)", d.name, percent(d.change.Median), percent(d.change.Lo), percent(d.change.Hi))
		}
	}
	return out
}

func (r *Result) firstReason() string {
	for _, p := range r.Pairs {
		if len(p.InvalidReasons) > 0 {
			return p.InvalidReasons[0]
		}
	}
	return "the others were not measured"
}

func wording(s Summary) string {
	switch s.Name {
	case SideNone:
		return "no shaping"
	case SidePlan:
		return "the plan"
	case SideECN:
		return "ECN"
	case SideNoECN:
		return "no ECN"
	}
	return s.Name
}

// ms prints milliseconds, without a fraction from 100 ms on.
func ms(v float64) string {
	if math.Abs(v) >= 99.95 {
		return fmt.Sprintf("%.0f ms", v)
	}
	return fmt.Sprintf("%.1f ms", v)
}

func signed(v float64) string {
	if v > 0 {
		return "+" + ms(v)
	}
	if v < 0 {
		return "−" + ms(-v)
	}
	return ms(v)
}

func percent(f float64) string {
	s := fmt.Sprintf("%.1f %%", 100*math.Abs(f))
	switch {
	case s == "0.0 %":
		return "±0 %"
	case f > 0:
		return "+" + s
	}
	return "−" + s
}

// Rate prints a goodput of a Summary; "–" if nothing was loaded that way.
func Rate(bps float64) string {
	if bps <= 0 {
		return "–"
	}
	return unit.Rate(math.Round(bps)).Short()
}
