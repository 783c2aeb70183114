package path

import (
	"fmt"
	"math"

	"unbloat/internal/measure/verdict"
	"unbloat/unit"
)

// remark adds the notes: what in the table is easily misread.
func (r *Result) remark() {
	note := func(format string, args ...any) { r.Notes = append(r.Notes, fmt.Sprintf(format, args...)) }
	r.remarkEnd(note)
	r.remarkSteps(note)
	r.remarkSlowRouters(note)
	r.remarkLoss(note)
	if b := r.Begins; b != nil && b.Unconfirmed {
		note("Hop %d is the last that answers, so nothing behind it confirms that it delays traffic and not only its own answers.", b.Hop)
	}
	if r.Load == nil && r.CPU > verdict.MaxCPU {
		note("This machine's processor was %.0f %% busy: its own delays may be in the figures.", 100*r.CPU)
	}
	if l := r.Load; l != nil {
		for _, s := range l.Broken {
			note("The load broke: %s.", s)
		}
	}
	if r.Method == "udp" {
		note("UDP probes: each goes to a port of its own, so routers may send them different ways.")
	}
}

// remarkEnd says why the path is not complete.
func (r *Result) remarkEnd(note func(string, ...any)) {
	n := len(r.Hops)
	if r.Reached || n == 0 {
		return
	}
	if last := r.Hops[n-1]; last.Refusal != "" {
		note("The path ends at hop %d: %s says %s.", last.Hop, last.Address, last.Refusal)
		return
	}
	note("%s itself does not answer; the figures go as far as hop %d.", r.Host, r.Hops[n-1].Hop)
}

// remarkSteps names further links that add much.
func (r *Result) remarkSteps(note func(string, ...any)) {
	if r.Begins == nil {
		return
	}
	before, after, afterAddr := 0.0, 0, ""
	for _, h := range r.Hops {
		if h.Confirmed == nil {
			continue
		}
		v := h.Confirmed.P50
		if r.Begins.Statistic == "p95" {
			v = h.Confirmed.P95
		}
		if step := v - before; h.Hop != r.Begins.Hop && step >= max(unit.Ms(Threshold), 0.02*r.Begins.IncreaseMs) {
			note("%s of it arise %s, between %s and %s.", milliseconds(step), r.linkPlace(after, h.Hop).Words(), hopWords(after, afterAddr), hopWords(h.Hop, h.Address))
		}
		before, after, afterAddr = max(before, v), h.Hop, h.Address
	}
}

// remarkSlowRouters names routers that delay nothing but their own answers.
func (r *Result) remarkSlowRouters(note func(string, ...any)) {
	least := math.Inf(1) // idle median of the hops behind
	var slow []int
	for i := len(r.Hops) - 1; i >= 0; i-- {
		h := r.Hops[i]
		own := h.Increase != nil && (beyond(h.Increase.P50, h.Confirmed.P50) || beyond(h.Increase.P95, h.Confirmed.P95))
		if h.Idle != nil && h.Idle.Received >= MinAnswers {
			own = own || h.Idle.RTTMs.P50-least >= 2*unit.Ms(Threshold)
			least = min(least, h.Idle.RTTMs.P50)
		}
		if own {
			slow = append([]int{h.Hop}, slow...)
		}
	}
	if len(slow) > 0 {
		note("%s slower than the hops behind: routers give ICMP low priority, so that says nothing about traffic and does not count.", several(slow, "answers", "answer"))
	}
}

// beyond reports whether a hop's increase is much more than what the hops behind share.
func beyond(own, shared float64) bool {
	return own-shared >= max(2*unit.Ms(Threshold), own/2)
}

// several names hops with the verb that fits.
func several(hops []int, one, more string) string {
	if len(hops) == 1 {
		return fmt.Sprintf("Hop %d %s", hops[0], one)
	}
	s := "Hops "
	for i, h := range hops {
		switch {
		case i == 0:
		case i == len(hops)-1:
			s += " and "
		default:
			s += ", "
		}
		s += fmt.Sprint(h)
	}
	return s + " " + more
}

// remarkLoss separates loss of traffic, which all hops behind share, from
// routers that do not answer every probe.
func (r *Result) remarkLoss(note func(string, ...any)) {
	n := len(r.Hops)
	ofIdle, ofLoaded := func(h HopFigures) *Figures { return h.Idle }, func(h HopFigures) *Figures { return h.Loaded }
	idle, loaded := shared(r.Hops, ofIdle), shared(r.Hops, ofLoaded)
	var limited []int
	for i, h := range r.Hops {
		own := func(f *Figures, share float64) bool {
			return f != nil && f.Received > 0 && f.Sent >= MinAnswers && f.Loss-share >= 2*minLossRise
		}
		if i < n-1 && (own(h.Idle, idle[i]) || own(h.Loaded, loaded[i])) {
			limited = append(limited, h.Hop)
		}
	}
	if len(limited) > 0 {
		note("%s not answer every probe, but the hops behind do: such routers limit how often they answer; that is no loss of traffic.", several(limited, "does", "do"))
	}
	for _, p := range []struct {
		loss []float64
		when string
	}{{idle, "idle"}, {loaded, "under load"}} {
		for i := range r.Hops {
			if p.loss[i] >= minLossRise && p.loss[i] >= p.loss[n-1]/2 {
				note("From hop %d on, %.0f %% of the probes are lost %s (link to it: %s).", r.Hops[i].Hop, 100*p.loss[i], p.when, r.Hops[i].Place.Words())
				break
			}
		}
	}
}

// shared returns, for each hop, the loss that it and all answering hops behind
// it have at least; none in a phase that did not run.
func shared(hops []HopFigures, of func(HopFigures) *Figures) []float64 {
	out := make([]float64, len(hops))
	least := 1.0
	for i := len(hops) - 1; i >= 0; i-- {
		f := of(hops[i])
		if f != nil && hops[i].Address != "" {
			least = min(least, f.Loss)
		}
		if f != nil {
			out[i] = least
		}
	}
	return out
}
