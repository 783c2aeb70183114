package verdict

import "unbloat/reason"

// An Unsaturated is a direction that a load meant to fill and did not.
type Unsaturated struct {
	Direction string `json:"direction"` // down or up
	Why       string `json:"why"`
	// Reason is why, as data.
	Reason reason.Reason `json:"-"`
	// Starved says that the other direction was full and a queue stood: the
	// acknowledgements of this one waited in it, or were lost. That is an effect
	// of the queue, and no fault of the measurement.
	Starved bool `json:"starved,omitempty"`
}

// unsaturated lists the directions that a greedy load did not fill.
func (raw *Raw) unsaturated(p *Phase) []Unsaturated {
	if !raw.Greedy {
		return nil
	}
	down, up := raw.load(p)
	var out []Unsaturated
	for _, d := range []struct{ this, other load }{{down, up}, {up, down}} {
		why := d.this.unsaturated()
		if why == nil {
			continue
		}
		full := d.other.flows > 0 && d.other.unsaturated() == nil
		out = append(out, Unsaturated{Direction: d.this.name, Why: why.Text(reason.English(), reason.Terminal), Reason: *why, Starved: full && p.Latency.IncreaseMs.P50 >= standingQueue})
	}
	return out
}
