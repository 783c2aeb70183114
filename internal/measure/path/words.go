package path

import (
	"fmt"
	"math"
	"strings"

	"unbloat/unit"
)

// sentence is the verdict for people.
func (r *Result) sentence() string {
	switch {
	case !r.Valid:
		return "This trace says nothing about the line: " + strings.Join(r.InvalidReasons, "; ") + "."
	case r.Load == nil:
		return r.idleSentence()
	case r.Begins == nil:
		s := fmt.Sprintf("Under %s load no part of the path is more than %s slower than idle.", r.Load.words(), milliseconds(unit.Ms(Threshold)))
		return s + fmt.Sprintf(" The load moved %s: if the line is faster, its queue was never full.", r.Load.moved())
	}
	b := r.Begins
	what := "median"
	if b.Statistic == "p95" {
		what = "now and then: the slowest twentieth of probes"
	}
	return fmt.Sprintf("Under %s load latency rises by %s (%s) %s, between %s and %s%s.%s", r.Load.words(), milliseconds(b.IncreaseMs), what,
		b.Place.Words(), hopWords(b.After, b.AfterAddr), hopWords(b.Hop, b.Address), gapWords(b.After, b.Hop), b.Place.advice())
}

// idleSentence is the verdict without a load. Traffic of the household may still
// show.
func (r *Result) idleSentence() string {
	last := -1
	for i, h := range r.Hops {
		if h.Idle != nil && h.Idle.Received > 0 {
			last = i
		}
	}
	if last < 0 {
		return ""
	}
	h := r.Hops[last]
	s := fmt.Sprintf("%s answers in %s (median)", capital(hopWords(h.Hop, h.Address)), milliseconds(h.Idle.RTTMs.P50))
	if h.Destination {
		away := fmt.Sprintf("%d hops", h.Hop)
		if h.Hop == 1 {
			away = "one hop"
		}
		s = fmt.Sprintf("%s, %s away, answers in %s (median)", r.Host, away, milliseconds(h.Idle.RTTMs.P50))
	}
	if at, by := r.varies(); at > 0 {
		s += fmt.Sprintf(". Latency varies by %s from hop %d on: something loads the line %s, or the link itself is unsteady", milliseconds(by), at, r.place(at).Words())
	}
	return s + ". `--load SERVER` shows where it rises under load."
}

// varies finds the hop from which on all hops vary, p95 over best, and by how
// much; 0 if by less than twice the Threshold.
func (r *Result) varies() (hop int, by float64) {
	spread := make([]float64, len(r.Hops))
	least := math.Inf(1)
	for i := len(r.Hops) - 1; i >= 0; i-- {
		if f := r.Hops[i].Idle; f != nil && f.Received >= MinAnswers {
			least = min(least, f.RTTMs.P95-f.BestMs)
		}
		spread[i] = least
	}
	before, biggest := 0.0, 0.0
	for i, v := range spread {
		if math.IsInf(v, 1) || r.Hops[i].Idle == nil || r.Hops[i].Idle.Received < MinAnswers {
			continue
		}
		if v-before > biggest {
			biggest, hop = v-before, r.Hops[i].Hop
		}
		before, by = v, v
	}
	if by < 2*unit.Ms(Threshold) {
		return 0, 0
	}
	return hop, by
}

// Words say where, after "latency rises".
func (p Place) Words() string {
	switch p {
	case Home:
		return "in the home network"
	case Uplink:
		return "on the router's uplink"
	}
	return "in the provider's network or beyond"
}

// advice says what the user can do about it.
func (p Place) advice() string {
	switch p {
	case Home:
		return " That is the Wi-Fi or cable to the router, or the router itself; shaping the line does not cure it."
	case Uplink:
		return " That is the queue of the line itself; `unbloat tune` on the router cures it."
	}
	return " Nothing in the home cures that; the provider can."
}

func (l *Load) words() string {
	switch l.Direction {
	case "up":
		return "upload"
	case "down":
		return "download"
	}
	return "upload and download"
}

// moved describes the goodput of the load.
func (l *Load) moved() string {
	down, up := unit.Rate(l.GoodputDownBps).Short()+" down", unit.Rate(l.GoodputUpBps).Short()+" up"
	switch l.Direction {
	case "up":
		return up
	case "down":
		return down
	}
	return down + " and " + up
}

func hopWords(hop int, address string) string {
	if hop == 0 {
		return "this machine"
	}
	return fmt.Sprintf("hop %d (%s)", hop, address)
}

// gapWords mention silent hops between two hops.
func gapWords(after, hop int) string {
	switch hop - after {
	case 1:
		return ""
	case 2:
		return fmt.Sprintf(" (hop %d does not answer, so it may be before or behind it)", after+1)
	}
	return fmt.Sprintf(" (hops %d to %d do not answer, so it may be anywhere between)", after+1, hop-1)
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// milliseconds prints ms for people: no decimals from 10 ms on.
func milliseconds(ms float64) string {
	if math.Abs(ms) < 9.95 {
		return fmt.Sprintf("%.1f ms", ms)
	}
	return fmt.Sprintf("%.0f ms", ms)
}
