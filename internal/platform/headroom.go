package platform

import (
	"fmt"

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

// String says it in a sentence, in English.
func (h Headroom) String() string {
	if !h.Valid {
		return h.Why
	}
	text := fmt.Sprintf("at %s (%s down, %s up) packets take %.0f %% of the busiest of %d cores: a core carries %s to %s, and this router about %s, both directions together, as its work is spread now",
		(h.Down + h.Up).Short(), h.Down.Short(), h.Up.Short(), 100*h.Busiest, h.Cores, h.PerCoreFrom.Short(), h.PerCoreTo.Short(), h.Most.Short())
	if !h.Shaped {
		text += "; nothing shapes here yet, and with a shaper it is less"
	}
	return text
}

// JudgeHeadroom makes findings of the Headroom that was measured.
func (e *Examination) JudgeHeadroom() {
	h, asked := e.Headroom, e.Down+e.Up
	if h.Dropped > 0 {
		e.Find(Finding{ID: "softnet", What: fmt.Sprintf("the kernel dropped %d packets before any queue in %.0f s", h.Dropped, h.WindowS),
			Why: "its cores did not take them in time, so the shaper's queue is not where this line's packets are lost", Remedy: "a lower rate; --side lan where the download goes to one LAN; packet steering (RPS) if a core is idle"})
	}
	if asked > 0 && h.MostTo < asked {
		e.Find(Finding{ID: "headroom", What: fmt.Sprintf("%s are asked for, and %s", asked.Short(), h),
			Why: "when a core is busy, packets wait outside the queues that are kept short", Remedy: "--side lan spares the way through an ifb; fq_codel needs less than cake; unbloat tune finds the rate that holds"})
	}
}
