//go:build !omit_measure && !omit_tui

package main

import (
	"time"

	"github.com/spf13/cobra"

	"unbloat/internal/daemon"
	"unbloat/internal/live"
	"unbloat/internal/reason"
)

// viewKept starts to show what a daemon says: a view on a terminal, otherwise lines.
func viewKept(c *cobra.Command, words *reason.Language) keptView {
	v := &drawnKept{view: live.NewWANs(words)}
	if isTerminal(c.OutOrStdout()) && v.open(c, v.view.Draw, v.view.End) {
		return v
	}
	return newKeptLines(c, words)
}

// drawnKept is the view on a terminal.
type drawnKept struct {
	drawn
	view *live.WANs
}

func (v *drawnKept) show(now keptNow) {
	v.feed(func(at time.Duration) { v.view.Observe(at, watchedOf(now)) })
}

// watchedOf returns what a daemon says as the view takes it.
func watchedOf(now keptNow) live.Watched {
	out := live.Watched{Gone: now.gone}
	for _, s := range now.status.WANs {
		w := live.WatchedWAN{Name: nameOfWAN(s), State: string(s.State), Why: s.Why, Way: [2]live.WatchedWay{{Rate: s.Down}, {Rate: s.Up}}}
		if l := s.Line; l != nil {
			w.Followed, w.Blind = true, l.Blind
			for d, x := range [2]daemon.WayStatus{l.Down, l.Up} {
				w.Way[d] = live.WatchedWay{Rate: x.Rate, Capacity: x.Capacity, Carried: x.Carried, DelayMs: x.DelayMs, FloorMs: x.FloorMs, Why: x.Why}
			}
		}
		out.WANs = append(out.WANs, w)
	}
	for _, d := range now.decisions {
		out.Decisions = append(out.Decisions, live.WatchedDecision{Clock: clockOf(d.Time), WAN: d.WAN, Up: d.Direction == "up", Why: d.Why})
	}
	return out
}
