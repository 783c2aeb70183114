package daemon

import (
	"slices"
	"sort"
	"sync"
	"time"

	"unbloat/internal/keep/follow"
)

// decisionsTogether is the time within which changes for one reason are one decision.
const decisionsTogether = 2 * time.Second

// decisions are the newest of a WAN.
type decisions struct {
	mu   sync.Mutex
	all  []Decision // oldest first
	last [2]time.Time
}

// places are the directions of decisions.
func places() [2]string { return [2]string{"down", "up"} }

// add remembers a decision that was made now. number gives it its number.
func (l *decisions) add(now time.Time, d Decision, number func() uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	way := 0
	if d.Direction == places()[1] {
		way = 1
	}
	d.Time, d.Changes = now.UTC().Format(timeMs), 1
	d.Began = d.Time
	i := len(l.all) - 1
	for i >= 0 && l.all[i].Direction != d.Direction {
		i--
	}
	if i >= 0 && l.all[i].Why.Code == d.Why.Code && now.Sub(l.last[way]) <= decisionsTogether {
		was := l.all[i]
		d.Began, d.From, d.Changes = was.Began, was.From, was.Changes+1
		l.all = slices.Delete(l.all, i, i+1)
	}
	l.last[way] = now
	d.N = number()
	if len(l.all) >= MostDecisions {
		l.all = slices.Delete(l.all, 0, 1)
	}
	l.all = append(l.all, d)
}

// Clock returns when it was, as a clock here shows it.
func (d Decision) Clock() string {
	t, err := time.Parse(time.RFC3339, d.Time)
	if err != nil {
		return d.Time
	}
	return t.Local().Format(time.TimeOnly)
}

// timeMs is RFC 3339 with milliseconds.
const timeMs = "2006-01-02T15:04:05.000Z07:00"

// after returns those with a greater number.
func (l *decisions) after(n uint64) []Decision {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []Decision
	for _, d := range l.all {
		if d.N > n {
			out = append(out, d)
		}
	}
	return out
}

// decided takes in a change that the WAN's follower has made.
func (w *wan) decided(y follow.Why) {
	d := Decision{WAN: w.name, Router: w.routerName, Direction: y.Direction.String(), From: y.From, To: y.To, Why: y.Reason()}
	w.following.decisions.add(w.d.now(), d, func() uint64 { return w.d.numbers.Add(1) })
}

// decisions returns the newest decisions of the WANs, oldest first.
func (d *Daemon) decisions(of []*wan, p DecisionsParams) Decisions {
	out := Decisions{Decisions: []Decision{}, Last: d.numbers.Load()}
	for _, w := range of {
		out.Decisions = append(out.Decisions, w.following.decisions.after(p.After)...)
	}
	out.Decisions = slices.DeleteFunc(out.Decisions, func(x Decision) bool { return x.N > out.Last }) // made meanwhile: they come next time
	sort.Slice(out.Decisions, func(i, j int) bool { return out.Decisions[i].N < out.Decisions[j].N })
	if n := len(out.Decisions); p.Limit > 0 && n > p.Limit {
		out.Decisions = out.Decisions[n-p.Limit:]
	}
	return out
}
