package incident

import (
	"slices"
	"time"

	"unbloat/reason"
	"unbloat/unit"
)

// judged returns the incident with its figures, its severity and the part to blame, by
// what was seen until now.
func (f *finding) judged(j *Judge, d *detector, now time.Time) Incident {
	x := f.Incident
	g := &x.Figures
	g.Promised = j.p.Promised
	g.FirstRise, g.FarRise = unit.Milliseconds(unit.FromMs(median(f.firsts))), unit.Milliseconds(unit.FromMs(median(f.fars)))
	for _, v := range f.fars {
		g.FarMost = max(g.FarMost, unit.Milliseconds(unit.FromMs(v)))
	}
	g.CPU = -1
	if f.cpuN > 0 {
		g.CPU = f.cpu / float64(f.cpuN)
	}
	way, share := g.busiest()
	if (x.Kind == Bloat || x.Kind == Slow) && share >= 0.25 {
		x.Direction = [2]string{"down", "up"}[way]
	}
	seconds := x.Lasted(now).Seconds()
	far, oneFar := f.alone()
	if oneFar = oneFar && x.Kind == Loss && d.part == ""; d.part == Far {
		far = j.farOf(d)
	}
	switch lost := 1 - float64(g.FarAnswered)/float64(max(g.FarAsked, 1)); {
	case d.part == Far || oneFar:
		x.Severity = Minor
		x.What = reason.Of(reason.IncidentFar, "name", j.p.Far[far], "asked", f.byFar[far][0], "answered", f.byFar[far][1])
	case d.part == Home && x.Kind == Loss:
		x.Severity = Major
		x.What = reason.Of(reason.IncidentLANLoss, "packets", int(f.lanLost))
	case d.part == Home:
		x.Severity = Severe
		x.What = reason.Of(reason.IncidentLANOut)
	case x.Kind == Outage:
		const long = 30
		if x.Severity = Major; seconds >= long {
			x.Severity = Severe
		}
		x.What = reason.Of(reason.IncidentOutage, "asked", g.FarAsked, "answered", g.FarAnswered)
	case x.Kind == Loss:
		x.Severity = graded(lost, 0.03, 0.2)
		x.What = reason.Of(reason.IncidentLoss, "loss", lost, "asked", g.FarAsked)
	case x.Kind == Slow:
		x.Severity = graded(1-share, 0.5, 0.8)
		x.What = reason.Of(reason.IncidentSlow, "direction", x.Direction, "carried_bps", float64(g.Carried[way]), "promised_bps", float64(g.Promised[way]))
	case x.Kind == Path:
		x.Severity = Minor
		x.What = reason.Of(reason.IncidentPath, "rise_ms", max(g.FarRise.Ms(), 0))
		if d.routed {
			x.What = reason.Of(reason.IncidentRoute)
		}
	default:
		x.Severity = graded(g.FarRise.Ms(), 100, 300)
		x.What = reason.Of(reason.IncidentBloat, "rise_ms", g.FarRise.Ms(), "most_ms", g.FarMost.Ms())
	}
	x.Part, x.Why = f.blame(j, d, x)
	if x.Part == Unsure || x.Part == Provider && len(j.far) == 1 {
		f.walked(j, &x)
	}
	return x
}

// walked decides by the routers on the way, where the first is not known or there is but one
// far end: the furthest that was well, and whose network it is in.
func (f *finding) walked(j *Judge, x *Incident) {
	for _, h := range slices.Backward(f.walk) {
		well := 3*h.Answered >= 2*h.Asked && h.Answered > 0
		if d := h.RTT.Ms() - j.far[0].usual; x.Kind == Bloat || x.Kind == Slow || x.Kind == Path {
			well = well && x.Figures.FarRise > 0 && d < x.Figures.FarRise.Ms()/2
		}
		if !well {
			continue
		}
		part, code := Provider, reason.BlameHop
		if h.Near {
			part, code = Far, reason.BlameFarHop
		}
		if x.Part != part {
			x.Part, x.Why = part, reason.Of(code, "address", h.Address, "hop", h.Hop, "asked", h.Asked, "answered", h.Answered)
		}
		return
	}
}

// busyCPU is a share of the processors' time from which probes are late by themselves.
const busyCPU = 0.9

func graded(v, major, severe float64) Severity {
	switch {
	case v >= severe:
		return Severe
	case v >= major:
		return Major
	}
	return Minor
}

func (j *Judge) farOf(d *detector) int {
	for i := range j.far {
		if d == &j.far[i].one {
			return i
		}
	}
	return 0
}

// busiest returns the direction that carried the greatest share of what was promised.
func (g *Figures) busiest() (way int, share float64) {
	for i, p := range g.Promised {
		if s := float64(g.Carried[i]) / float64(max(p, 1)); p > 0 && s > share {
			way, share = i, s
		}
	}
	return way, share
}

// blame says which part is to blame, and why. The provider is blamed only if its first
// router was seen to be well meanwhile.
func (f *finding) blame(j *Judge, d *detector, x Incident) (Part, reason.Reason) {
	const (
		enough  = 3    // answers of the first hop, of an outage
		several = 10   // of a loss
		loaded  = 0.85 // of what was promised
	)
	g := &x.Figures
	way, share := g.busiest()
	firstLost := 1 - float64(g.FirstAnswered)/float64(max(g.FirstAsked, 1))
	farLost := 1 - float64(g.FarAnswered)/float64(max(g.FarAsked, 1))
	firstHop := func(part Part, code reason.Code) (Part, reason.Reason) {
		return part, reason.Of(code, "asked", g.FirstAsked, "answered", g.FirstAnswered, "first_rise_ms", max(g.FirstRise.Ms(), 0), "far_rise_ms", max(g.FarRise.Ms(), 0))
	}
	_, alone := f.alone()
	known := j.first.known() || g.FirstAnswered > 0
	switch {
	case d.part == Far || x.Kind == Loss && d.part == "" && alone:
		return Far, reason.Of(reason.BlameOneFar)
	case d.part == Home && x.Kind == Loss:
		return Home, reason.Of(reason.BlameLANErrors, "packets", int(f.lanLost))
	case d.part == Home:
		return Home, reason.Of(reason.BlameLANPort)
	case 2*f.wanDown > f.seconds:
		return Home, reason.Of(reason.BlameWANPort)
	case f.cpuBusy > 0 && 2*f.cpuBusy > f.cpuN:
		return Router, reason.Of(reason.BlameCPU, "cpu", g.CPU)
	case x.Kind == Path && d.routed:
		return Router, reason.Of(reason.BlameRoute)
	case !known || g.FirstAsked == 0:
		return Unsure, reason.Of(reason.BlameUnknown)
	case x.Kind == Outage && g.FirstAnswered >= enough && firstLost < 0.5:
		return firstHop(Provider, reason.BlameBeyond)
	case x.Kind == Outage && g.FirstAnswered == 0 && g.FirstAsked >= enough:
		return firstHop(Line, reason.BlameFirstHop)
	case x.Kind == Loss && share >= loaded && g.Shaper[way] == 0:
		return Router, reason.Of(reason.BlameUnshaped, "share", share)
	case x.Kind == Loss && g.FirstAsked >= several && firstLost >= 0.5*farLost:
		return firstHop(Line, reason.BlameFirstHop)
	case x.Kind == Loss && g.FirstAsked >= several && firstLost < 0.2*farLost:
		return firstHop(Provider, reason.BlameBeyond)
	case x.Kind == Outage || x.Kind == Loss || len(f.firsts) < enough:
		return Unsure, reason.Of(reason.BlameUnknown)
	case g.FirstRise < g.FarRise*3/10:
		return firstHop(Provider, reason.BlameBeyond)
	case g.FirstRise < g.FarRise/2:
		return Unsure, reason.Of(reason.BlameUnknown)
	case x.Kind == Bloat && share >= loaded && g.Shaper[way] == 0:
		return Router, reason.Of(reason.BlameUnshaped, "share", share)
	case x.Kind == Bloat && share >= loaded:
		return Router, reason.Of(reason.BlameShaper, "shaper_bps", float64(g.Shaper[way]), "carried_bps", float64(g.Carried[way]))
	}
	return firstHop(Line, reason.BlameFirstHop)
}
