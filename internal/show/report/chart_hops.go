package report

import (
	"fmt"

	"unbloat/internal/measure/path"
)

// hopChart draws, for every hop of a trace, median, p95 and the whole range of
// latency, idle and under load, and marks where the increase begins.
func hopChart(r *path.Result, l layout) *figure {
	c := ranges{multi: true, title: "Latency of each hop",
		desc: "Median, p95 and range of the round-trip time to each hop in milliseconds, on a logarithmic axis. " + clean(r.Verdict)}
	for _, h := range r.Hops {
		g := barGroup{title: hopTitle(r, h), ink: inkText}
		if begins(r, h) {
			g.ink = inkBad
		}
		for _, p := range []struct {
			run run
			f   *path.Figures
		}{{run{name: "idle", ink: inkIdle, dash: dotted}, h.Idle}, {run{name: "under load", ink: inkUpload, dash: solid}, h.Loaded}} {
			if p.f == nil {
				continue
			}
			b := barOf(p.run, p.f.Received, p.f.RTTMs)
			if p.f.Loss > 0 && !b.empty {
				b.note = percent(p.f.Loss) + " lost"
			}
			g.bars = append(g.bars, b)
		}
		c.add(g)
	}
	return c.draw(nil, 0, l)
}

func begins(r *path.Result, h path.HopFigures) bool { return r.Begins != nil && r.Begins.Hop == h.Hop }

// hopTitle heads the bars of a hop.
func hopTitle(r *path.Result, h path.HopFigures) string {
	s := fmt.Sprintf("%d  %s", h.Hop, hopName(h))
	if begins(r, h) {
		s += " ◄ begins " + r.Begins.Place.Words()
	}
	return s
}

// hopName is how a hop is called.
func hopName(h path.HopFigures) string {
	address, name := clean(h.Address), clean(h.Name)
	switch {
	case address == "":
		return "does not answer"
	case name != "":
		return name + " (" + address + ")"
	}
	return address
}

// hopRow is one line of the table of hops.
type hopRow struct {
	name  string
	cells []string
	begin bool
}

// hopHeads heads the table of hops.
func hopHeads(r *path.Result) []string {
	heads := []string{"lost", "median, ms", "p95, ms"}
	if r.Load != nil {
		heads = append(heads, "lost under load", "median, ms", "p95, ms", "added p95, ms")
	}
	return heads
}

// hopRows returns the table of hops.
func hopRows(r *path.Result) []hopRow {
	cells := func(f *path.Figures) []string {
		switch {
		case f == nil:
			return []string{none, none, none}
		case f.Received <= 0:
			return []string{percent(f.Loss), none, none}
		}
		return []string{percent(f.Loss), number(f.RTTMs.P50), number(f.RTTMs.P95)}
	}
	var out []hopRow
	for _, h := range r.Hops {
		row := hopRow{name: fmt.Sprintf("%d %s", h.Hop, hopName(h)), cells: cells(h.Idle), begin: begins(r, h)}
		if r.Load != nil {
			row.cells = append(row.cells, cells(h.Loaded)...)
			plus := none
			if h.Increase != nil {
				plus = number(h.Increase.P95)
			}
			row.cells = append(row.cells, plus)
		}
		out = append(out, row)
	}
	return out
}

// pathHeading is how a trace is called.
func pathHeading(r *path.Result) string {
	s := "Path to " + orNone(r.Host)
	if a := clean(r.Address); a != "" && a != clean(r.Host) {
		s += " (" + a + ")"
	}
	return s
}

// pathConditions says when and how a trace was taken.
func pathConditions(r *path.Result) string {
	s := clean(r.Time) + join(", by ", clean(r.Method)) + fmt.Sprintf(", a probe to each hop every %s s", plain(roundTo(clamp(r.IntervalMs, 0, 1e9)/1e3, 3)))
	if l := r.Load; l != nil {
		s += join(", loaded against ", clean(l.Server))
		for _, d := range []struct {
			way string
			bps float64
		}{{"down", l.GoodputDownBps}, {"up", l.GoodputUpBps}} {
			if l.Direction == d.way || l.Direction != "down" && l.Direction != "up" {
				s += ", " + rate(d.bps) + " " + d.way
			}
		}
	}
	return s
}
