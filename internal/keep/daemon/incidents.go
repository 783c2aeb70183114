package daemon

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"unbloat/internal/keep/config"
	"unbloat/internal/keep/incident"
	"unbloat/internal/keep/metrics"
	"unbloat/internal/keep/supervise"
	"unbloat/internal/keep/tell"
	"unbloat/internal/measure/verdict"
	"unbloat/unit"
)

// incidentDays is how long incidents are kept.
const incidentDays = 90 * 24 * time.Hour

// mostIncidents are those in memory, of all WANs together: the newest.
const mostIncidents = 200

// incidents are what went wrong.
type incidents struct {
	mu    sync.Mutex
	all   []incident.Incident // oldest first, the newest word of each
	dirty []incident.Incident // ended, and not on the disk yet
	lines []Watched
	said  string

	teller atomic.Pointer[tell.Teller]
}

// take takes in the newest word of an incident.
func (l *incidents) take(x incident.Incident) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.IndexFunc(l.all, func(y incident.Incident) bool { return y.ID == x.ID && y.WAN == x.WAN }); i >= 0 {
		l.all[i] = x
	} else {
		l.all = append(l.all, x)
	}
	l.all = slices.Delete(l.all, 0, max(0, len(l.all)-mostIncidents))
	if x.Over() {
		l.dirty = append(l.dirty[max(0, len(l.dirty)-mostIncidents):], x)
	}
}

// watchLines watches the lines for which the configuration says so, until ctx ends.
func (d *Daemon) watchLines(ctx context.Context) {
	all := map[string]*vigil{}
	defer func() {
		for _, v := range all {
			v.close()
		}
	}()
	every(ctx, time.Second, func() {
		d.mu.Lock()
		lines := slices.Clone(d.config.WANs)
		d.mu.Unlock()
		var watched []Watched
		for _, c := range lines {
			key := keyOf(c.Router, c.Interface)
			v := all[key]
			watches := d.watches(c, v != nil)
			if v != nil && (!watches || !v.suits(c)) {
				v.close()
				delete(all, key)
				v = nil
			}
			if !watches {
				continue
			}
			if v == nil {
				v = d.newVigil(c)
				all[key] = v
			}
			watched = append(watched, Watched{Name{c.Interface, c.Router}, c.Down, c.Up, v.since})
			v.second()
		}
		for key, v := range all {
			if !slices.ContainsFunc(lines, func(c config.WAN) bool { return keyOf(c.Router, c.Interface) == key }) {
				v.close()
				delete(all, key)
			}
		}
		d.watched.mu.Lock()
		d.watched.lines = watched
		d.watched.mu.Unlock()
	})
}

// tellIncident keeps the newest word of an incident, and logs it.
func (d *Daemon) tellIncident(x incident.Incident) {
	d.watched.take(x)
	if t := d.watched.teller.Load(); t != nil {
		t.Tell(x)
	}
	says := fmt.Sprintf("%s: %s, %s (%s): %s: %s", config.WAN{Interface: x.WAN, Router: x.Router}.Name(), x.Kind, x.Severity, x.Part, x.What, x.Why)
	if x.Over() {
		says += fmt.Sprintf("; it lasted %s", x.Lasted(x.End).Round(time.Second))
	}
	d.log("%s", says)
	d.changed()
}

// keepTelling tells receivers until ctx ends, as the configuration says now.
func (d *Daemon) keepTelling(ctx context.Context) {
	var now []config.Notify
	end := func() {}
	defer func() { end() }()
	look := func() {
		d.mu.Lock()
		to := d.config.Notify
		d.mu.Unlock()
		if d.o.Send != nil && !slices.EqualFunc(now, to, config.Notify.Equal) {
			end()
			now = to
			of, cancel := context.WithCancel(ctx)
			t := tell.New(to, tell.Options{Getenv: d.o.Getenv, Now: d.now, Log: d.trouble, Send: d.o.Send, MQTT: d.o.MQTT, House: tell.House{Lines: d.lineStates, Switch: d.switchLine}})
			var done sync.WaitGroup
			done.Go(func() { t.Run(of) })
			end = func() { cancel(); done.Wait() }
			d.watched.teller.Store(t)
		}
	}
	look()
	every(ctx, time.Second, look)
}

// lineStates are how the lines are now, for what shows them elsewhere.
func (d *Daemon) lineStates() []tell.LineState {
	var out []tell.LineState
	now := d.now()
	for _, w := range d.all() {
		s, _ := w.snapshot()
		is := tell.LineState{Key: w.key, Name: s.Name(), DelayMs: -1, Incident: "none", Shaping: "OFF"}
		if s.State == supervise.InPlace {
			ways := s.Ways()
			is.Shaping, is.LimitDown, is.LimitUp = "ON", int64(ways[0].Rate), int64(ways[1].Rate)
		}
		var worst []float64
		if r := w.past.ring.Load(); r != nil {
			const span, fresh = 10 * time.Minute, 3 * time.Second
			r.Seconds(d.instant(now.Add(-span)), d.instant(now.Add(time.Second)), func(i unit.Instant, m metrics.Moment) {
				delay := float64(max(m.Way[0].DelayMax, m.Way[1].DelayMax))
				if delay >= 0 {
					worst = append(worst, delay)
				}
				if d.clockAt(i).After(now.Add(-fresh)) {
					is.Down, is.Up = int64(m.Way[0].Carried), int64(m.Way[1].Carried)
					is.DelayMs = max(delay, -1)
				}
			})
		}
		if least := 30; len(worst) >= least {
			const share = 0.95
			slices.Sort(worst)
			is.Grade = verdict.Grade(unit.FromMs(worst[int(share*float64(len(worst)-1))]))
		}
		d.watched.mu.Lock()
		for _, x := range d.watched.all {
			if !x.Over() && keyOf(x.Router, x.WAN) == w.key {
				is.Incident = string(x.Kind)
			}
		}
		d.watched.mu.Unlock()
		out = append(out, is)
	}
	return out
}

// switchLine turns the shaping of a line on or off, for somebody elsewhere.
func (d *Daemon) switchLine(ctx context.Context, key string, on bool) error {
	router, iface := "", key
	if i := strings.LastIndexByte(key, ' '); i >= 0 {
		router, iface = key[:i], key[i+1:]
	}
	c, at := &Caller{d: d, name: byMQTT}, Name{iface, router}
	var err error
	if on {
		_, err = c.On(ctx, at, OnParams{})
	} else {
		_, err = c.Revert(ctx, at, IDParams{})
	}
	return err
}

// incidentsEvery is how often incidents that have ended are written to the disk.
const incidentsEvery = time.Minute

// keepIncidents writes incidents to the disk, if the configuration names a file.
func (d *Daemon) keepIncidents(ctx context.Context) {
	writeEvery(ctx, incidentsEvery, d.writeIncidents)
}

// writeIncidents writes those that have ended. What can't be written now is tried again;
// the reason is told once.
func (d *Daemon) writeIncidents(ctx context.Context) {
	file := d.historyFile()
	if file == "" {
		return
	}
	l := &d.watched
	l.mu.Lock()
	dirty := l.dirty
	l.mu.Unlock()
	if len(dirty) == 0 {
		return
	}
	err := d.o.Archive.AddIncidents(ctx, file, dirty)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		if text := err.Error(); text != l.said {
			l.said = text
			d.trouble("incidents: %s; the newest %d stay in memory, and are written when that is possible again", text, mostIncidents)
		}
		return
	}
	l.said = ""
	l.dirty = slices.DeleteFunc(l.dirty, func(x incident.Incident) bool {
		return slices.ContainsFunc(dirty, func(y incident.Incident) bool { return x.ID == y.ID && x.WAN == y.WAN && x.End.Equal(y.End) })
	})
}

// Incidents tells what went wrong, of the WAN that is named, or of all.
func (c *Caller) Incidents(ctx context.Context, at Name, p IncidentsParams) (Incidents, error) {
	d := c.d
	now := d.now()
	from, to, err := spanOf("incidents", p.From, p.To, now.Add(-incidentDays), now)
	if err != nil {
		return Incidents{}, err
	}
	if at != (Name{}) {
		if _, err := d.find(at); err != nil {
			return Incidents{}, err
		}
	}
	file := d.historyFile()
	var all []incident.Incident
	if file != "" {
		if all, err = d.o.Archive.Incidents(ctx, file, p.ID, from, to); err != nil {
			return Incidents{}, err
		}
	}
	d.watched.mu.Lock()
	all = append(slices.Clone(d.watched.all), all...) // the first of an ID counts
	lines := slices.Clone(d.watched.lines)
	d.watched.mu.Unlock()
	return IncidentsOf(all, lines, at, p.ID, from, to)
}

// IncidentsOf returns those of a WAN, or of all, within a time; with an ID that one alone,
// and its samples.
func IncidentsOf(all []incident.Incident, lines []Watched, at Name, id string, from, to time.Time) (Incidents, error) {
	out := Incidents{Schema: IncidentsSchema, From: from, To: to, Watched: lines, Incidents: []incident.Incident{}}
	if out.Watched == nil {
		out.Watched = []Watched{}
	}
	seen := map[string]bool{}
	for _, x := range all {
		key := keyOf(x.Router, x.WAN) + " " + x.ID
		mine := at == (Name{}) || at == Name{x.WAN, x.Router}
		within := x.Begin.Before(to) && (!x.Over() || x.End.After(from))
		if seen[key] || !mine || id != "" && x.ID != id || id == "" && !within {
			continue
		}
		seen[key] = true
		if id != "" {
			out.Samples = string(incident.CSV(x.Samples, x.Far))
		}
		out.Incidents = append(out.Incidents, x)
	}
	if id != "" && len(out.Incidents) == 0 {
		return out, &Error{CodeUsage, fmt.Sprintf("incidents: there is no incident %q; list them with `unbloat incidents`", id)}
	}
	sort.SliceStable(out.Incidents, func(i, j int) bool {
		a, b := out.Incidents[i], out.Incidents[j]
		return cmp.Or(a.Begin.Compare(b.Begin), cmp.Compare(a.ID, b.ID)) < 0
	})
	return out, nil
}

// spanOf reads a span of time.
func spanOf(what, from, to string, usualFrom, usualTo time.Time) (f, t time.Time, err error) {
	f, t = usualFrom, usualTo
	for _, x := range []struct {
		name, text string
		to         *time.Time
	}{{"from", from, &f}, {"to", to, &t}} {
		if x.text == "" {
			continue
		}
		at, err := time.Parse(time.RFC3339, x.text)
		if err != nil {
			return f, t, &Error{CodeUsage, fmt.Sprintf("%s: %s %q: must be a time as in 2026-11-23T08:00:00Z", what, x.name, x.text)}
		}
		*x.to = at
	}
	if !t.After(f) {
		return f, t, &Error{CodeUsage, what + ": to must be after from"}
	}
	return f, t, nil
}
