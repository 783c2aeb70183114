package daemon

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"unbloat/internal/cure/plan"
	"unbloat/internal/keep/metrics"
	"unbloat/internal/keep/supervise"
)

// A board shows what is known of a WAN to those who ask beside its loop.
type board struct {
	mu         sync.Mutex
	status     WANStatus
	beat       time.Time // of the loop
	reconciled map[cause]uint64
	set        Settings
	plan       *plan.Plan // that set is about
	pending    *pending   // that set is about, too; nil: none
}

// write changes what is shown.
func (b *board) write(f func(b *board)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f(b)
}

// read returns the status, and when the loop was seen last.
func (b *board) read() (WANStatus, time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.status
	s.Was = slices.Clone(s.Was)
	return s, b.beat
}

// settings returns the settings, and the plan that they are about.
func (b *board) settings() (Settings, *plan.Plan) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.set
	s.First, s.Last = slices.Clone(s.First), slices.Clone(s.Last)
	s.Change = b.pending.change()
	return s, b.plan
}

// counts returns how often the shaping was put in place, by cause.
func (b *board) counts() []metrics.Count {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := []metrics.Count{}
	for _, c := range causes() {
		out = append(out, metrics.Count{Cause: string(c), N: b.reconciled[c]})
	}
	return out
}

// publish shows the state of the WAN.
func (w *wan) publish() {
	w.board.write(func(b *board) {
		s := &b.status
		if now := w.supervisor.State(); now != s.State {
			if now == supervise.Contested {
				w.happened(EventContested, s.By, UndoneNo, "")
			}
			s.State, s.Since = now, time.Now().UTC().Format(time.RFC3339)
		}
		s.WAN, s.Router, s.Why = w.config.Interface, w.config.Router, w.why
		if s.State == supervise.Held {
			s.Why = "`unbloat " + w.holder.does + "` is working on it"
		}
		if s.State == supervise.Contested {
			s.Why = contested(w.why, s.By)
		}
		s.OffUntil = ""
		if until := w.d.memory.until(w.key); !until.IsZero() {
			s.OffUntil = until.UTC().Format(time.RFC3339)
		}
		if w.router != nil {
			s.Platform, s.OwnTC = w.router.Driver.Name(), w.router.OwnTC
		}
		if w.plan != nil {
			s.Down, s.Up = w.plan.DownBps, w.plan.UpBps
		}
		b.set, b.plan, b.pending = w.settings(), w.plan, w.changes.pending
	})
	w.d.changed()
}

// contested says who fights, as far as that is known, and what to do.
func contested(why, by string) string {
	who := "another program"
	if by != "" {
		who = by
	}
	return fmt.Sprintf("%s put its own shaper there %d times, so unbloat has stopped (%s); stop that program, then run `unbloat apply --again --yes`, or reload the daemon", who, supervise.MostTakeovers+1, why)
}

// snapshot returns the status, with what is measured of the line.
func (w *wan) snapshot() (WANStatus, time.Time) {
	s, beat := w.board.read()
	if p := w.following.runs.Load(); p != nil {
		seen := p.View()
		if p.held {
			s.Measured = &seen
		} else {
			s.Line, s.Down, s.Up = &seen, seen.Down.Rate, seen.Up.Rate
		}
	}
	return s, beat
}
