package verdict

import (
	"fmt"

	"unbloat/internal/reason"
	"unbloat/unit"
)

// An Unfilled is a direction that a load meant to fill and did not.
type Unfilled struct {
	Direction string `json:"direction"` // down or up
	Why       string `json:"why"`
	// Reason is why, as data.
	Reason reason.Reason `json:"-"`
	// Starved says that the other direction was full and a queue stood: the
	// acknowledgements of this one waited in it, or were lost. That is an effect
	// of the queue, and no fault of the measurement.
	Starved bool `json:"starved,omitempty"`
}

// unfilled lists the directions that a greedy load did not fill.
func (raw *Raw) unfilled(p *Phase) []Unfilled {
	if !raw.Greedy {
		return nil
	}
	down, up := raw.load(p)
	var out []Unfilled
	for _, d := range []struct{ this, other load }{{down, up}, {up, down}} {
		why := d.this.unsaturated()
		if why == nil {
			continue
		}
		full := d.other.flows > 0 && d.other.unsaturated() == nil
		out = append(out, Unfilled{Direction: d.this.name, Why: why.Text(reason.English(), reason.Terminal), Reason: *why, Starved: full && p.Latency.IncreaseMs.P50 >= standingQueue})
	}
	return out
}

// FillWords says what a greedy load did not fill, and what that means for the
// phase; "" if it filled what it was to fill.
func (p *Phase) FillWords() string {
	if p.Saturated || p.FlowsDown+p.FlowsUp == 0 {
		return ""
	}
	name := map[string]string{"down": "download", "up": "upload"}
	other := map[string]string{"down": "upload", "up": "download"}
	rate := func(direction string) string {
		return map[string]unit.Rate{"down": unit.Rate(p.GoodputDownBps), "up": unit.Rate(p.GoodputUpBps)}[direction].Short()
	}
	switch n := len(p.Unfilled); {
	case n == 1 && p.Unfilled[0].Starved:
		u := p.Unfilled[0]
		return fmt.Sprintf("the %s's queue starved the %s, which got %s (%s); the latency counts", other[u.Direction], name[u.Direction], rate(u.Direction), u.Why)
	case n == 1 && p.FlowsDown > 0 && p.FlowsUp > 0:
		u := p.Unfilled[0]
		return fmt.Sprintf("only the %s was filled (%s), so this phase says little of the %s", other[u.Direction], u.Why, name[u.Direction])
	case n > 0:
		return fmt.Sprintf("the load did not fill the line (%s), so this phase proves little", p.Unfilled[0].Why)
	}
	return "the load did not fill the line in each direction, so this phase proves little"
}
