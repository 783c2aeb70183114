package platform

import (
	"unbloat/internal/cure/plan"
	"unbloat/unit"
)

// A Headroom is what carrying packets costs a router at the rate that crosses its WAN
// now, and so which rate it can carry. All of the cores' work on packets counts as the
// WAN's: traffic between machines of the home makes the router look slower than it is.
type Headroom struct {
	Valid bool   `json:"valid"`
	Why   string `json:"why,omitempty"` // it is not valid

	WindowS float64   `json:"window_s"`
	Down    unit.Rate `json:"down_bps"` // through the WAN, with all headers
	Up      unit.Rate `json:"up_bps"`
	Cores   int       `json:"cores"`
	Busiest float64   `json:"busiest"` // share of its time that the busiest core worked on packets, 0–1
	Work    float64   `json:"work"`    // cores' time on packets, summed: 1 is one core
	Shaped  bool      `json:"shaped"`  // something shaped meanwhile

	// The rates of both directions together that one core can carry, and that the
	// router can while its work is spread over the cores as now: estimate, and 95 %
	// interval, which says only how coarse the kernel's accounting is.
	PerCore     unit.Rate `json:"per_core_bps,omitempty"`
	PerCoreFrom unit.Rate `json:"per_core_from_bps,omitempty"`
	PerCoreTo   unit.Rate `json:"per_core_to_bps,omitempty"`
	Most        unit.Rate `json:"most_bps,omitempty"`
	MostFrom    unit.Rate `json:"most_from_bps,omitempty"`
	MostTo      unit.Rate `json:"most_to_bps,omitempty"`

	Dropped  uint64 `json:"dropped"`  // packets that the kernel dropped before any queue, for want of time
	Squeezed uint64 `json:"squeezed"` // how often it ended its work before it was done
}

// Carries is what a plan goes by: the most that the measurement allows for. Cores whose work is
// spread over more than seven tenths of what it could be are spread.
func (h Headroom) Carries() plan.Work {
	if !h.Valid {
		return plan.Work{}
	}
	w := plan.Work{Most: h.MostTo}
	if h.Cores > 1 && h.Work < 0.7*float64(h.Cores)*h.Busiest {
		w.Spread = h.PerCore * unit.Rate(h.Cores)
	}
	return w
}
