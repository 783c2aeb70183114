package daemon

import (
	"slices"
	"sync"
	"time"
)

// mostEvents are remembered, of all WANs together.
const mostEvents = 256

// events are what happened lately.
type events struct {
	mu  sync.Mutex
	n   uint64
	all []Happening // oldest first
}

// add remembers an event of now.
func (l *events) add(now time.Time, e Happening) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n++
	e.N, e.Time = l.n, now.UTC().Format(time.RFC3339)
	if len(l.all) >= mostEvents {
		l.all = slices.Delete(l.all, 0, 1)
	}
	const mostWhat = 20
	e.What = slices.Clone(e.What[:min(len(e.What), mostWhat)])
	l.all = append(l.all, e)
}

// settle says of the event that made a change whether it was undone.
func (l *events) settle(change string, undone Undone) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.all {
		if l.all[i].Change == change && l.all[i].Undone == UndoneMay {
			l.all[i].Undone = undone
		}
	}
}

// newest returns all of some WANs, newest first.
func (l *events) newest(of func(Happening) bool) []Happening {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := []Happening{}
	for _, e := range slices.Backward(l.all) {
		if of(e) {
			out = append(out, e)
		}
	}
	return out
}

// happened remembers an event of the WAN.
func (w *wan) happened(kind EventKind, by string, undone Undone, change string, what ...string) {
	w.d.events.add(time.Now(), Happening{WAN: w.name, Router: w.routerName, Kind: kind, By: by, Undone: undone, Change: change, What: what})
}
