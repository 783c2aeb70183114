package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"unbloat/internal/cure/plan"
	"unbloat/unit"
)

// A Doing is what an entry of the schedule does.
type Doing string

// What an entry of the schedule does.
const (
	DoTest  Doing = "test"  // measure the line, at a time
	DoTune  Doing = "tune"  // find the best rates and keep them, at a time
	DoFirst Doing = "first" // from a time to another, a machine's traffic goes first
	DoLast  Doing = "last"  // from a time to another, a machine's traffic goes only when nobody else needs the line
	DoRates Doing = "rates" // from a time to another, the line carries other rates
)

// An Entry of the schedule: a [[schedule]] table. Times are the machine's local time.
type Entry struct {
	Do       Doing
	WAN      string        // interface; never ""
	Router   string        // its router
	From, To time.Duration // since midnight; To is 0 for what happens at a time
	Days     [7]bool       // by time.Weekday, of From; never none
	Machine  string        // of DoFirst and DoLast
	Down, Up unit.Rate     // of DoRates; 0: as the [[wan]] says
	line     int           // of the table
}

// An EntryTable is an entry of the schedule as the file has it: a [[schedule]] table.
// A key that is empty is not there.
type EntryTable struct {
	Do      Doing    `toml:"do" json:"do"`
	WAN     string   `toml:"wan" json:"wan,omitempty"`
	Router  string   `toml:"router" json:"router,omitempty"`
	At      string   `toml:"at" json:"at,omitempty"`     // of test and tune, as in "03:30"
	From    string   `toml:"from" json:"from,omitempty"` // of the others
	To      string   `toml:"to" json:"to,omitempty"`
	Days    []string `toml:"days" json:"days,omitempty"` // mon, tue, …; none is each day
	Machine string   `toml:"machine" json:"machine,omitempty"`
	Down    string   `toml:"down" json:"down,omitempty"` // of rates, with its unit
	Up      string   `toml:"up" json:"up,omitempty"`
}

func scheduleKeys() []string {
	return []string{"do", "wan", "router", "at", "from", "to", "days", "machine", "down", "up"}
}

// Lasts reports whether the entry holds for a time, and does not only happen at one.
func (e Entry) Lasts() bool { return e.Do != DoTest && e.Do != DoTune }

// Holds reports whether the entry holds at a local time.
func (e Entry) Holds(now time.Time) bool {
	if !e.Lasts() {
		return false
	}
	at := sinceMidnight(now)
	today, yesterday := now.Weekday(), (now.Weekday()+6)%7
	if e.From < e.To {
		return e.Days[today] && at >= e.From && at < e.To
	}
	return e.Days[today] && at >= e.From || e.Days[yesterday] && at < e.To // past midnight
}

// sinceMidnight is what a wall clock shows.
func sinceMidnight(t time.Time) time.Duration {
	return time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute + time.Duration(t.Second())*time.Second
}

// Due returns when the entry is to happen, if that is after one local time and not
// after another. Both are at most a few minutes apart; times that a clock has jumped over
// are not made up for.
func (e Entry) Due(after, now time.Time) (at time.Time, due bool) {
	const mostMissed = 10 * time.Minute
	if e.Lasts() || !now.After(after) || now.Sub(after) > mostMissed {
		return at, false
	}
	for _, day := range []time.Time{after, now} {
		at = time.Date(day.Year(), day.Month(), day.Day(), 0, int(e.From/time.Minute), 0, 0, day.Location())
		if e.Days[day.Weekday()] && at.After(after) && !at.After(now) {
			return at, true
		}
	}
	return at, false
}

// During returns the WAN as it is to be while entries hold that are of it.
func (w WAN) During(entries []Entry) WAN {
	for _, e := range entries {
		if e.WAN != w.Interface || e.Router != w.Router {
			continue
		}
		switch e.Do {
		case DoFirst:
			w.Rules = append(slices.Clone(w.Rules), plan.Rule{Name: "schedule: " + e.Machine + " first", Class: plan.Voice, Home: []string{e.Machine}})
		case DoLast:
			w.Rules = append(slices.Clone(w.Rules), plan.Rule{Name: "schedule: " + e.Machine + " last", Class: plan.Bulk, Home: []string{e.Machine}})
		case DoRates:
			if e.Down != 0 {
				w.Down, w.ShapeDown = e.Down, shareOf(w.ShapeDown)
				w.LeastDown, w.MostDown = boundsAround(e.Down, w.LeastDown, w.MostDown)
			}
			if e.Up != 0 {
				w.Up, w.ShapeUp = e.Up, shareOf(w.ShapeUp)
				w.LeastUp, w.MostUp = boundsAround(e.Up, w.LeastUp, w.MostUp)
			}
		}
	}
	return w
}

// shareOf keeps a preference that is a share of the line, and drops a rate.
func shareOf(p plan.RatePreference) plan.RatePreference {
	p.Rate = 0
	return p
}

// boundsAround widens bounds so that a rate is between them. Those that were not
// given stay so.
func boundsAround(usual, least, most unit.Rate) (unit.Rate, unit.Rate) {
	if most != 0 {
		most = max(most, usual)
	}
	return min(least, usual), most
}

// entry reads a table of the schedule. line is where it begins, at the lines of its
// keys.
func (t EntryTable) entry(name string, at map[string]int, wans []WAN) (Entry, error) {
	e := Entry{Do: t.Do, Machine: t.Machine, line: at[""]}
	syntax := wans[0].syntax
	sets := func(key, value string) string { return syntax.Sets(Setting{Key: key, Value: value}) }
	bad := func(key, format string, args ...any) error {
		line, ok := at[key]
		if !ok {
			line = at[""]
		}
		return &Error{name, line, key, fmt.Errorf(format, args...)}
	}
	of := map[Doing][]string{DoTest: {"at"}, DoTune: {"at"}, DoFirst: {"from", "to", "machine"}, DoLast: {"from", "to", "machine"}, DoRates: {"from", "to"}}
	needs, known := of[e.Do]
	if !known {
		return e, bad("do", "%q: must be \"test\" or \"tune\", with at; or \"first\", \"last\" or \"rates\", with from and to", t.Do)
	}
	for _, key := range needs {
		if _, given := at[key]; !given {
			return e, bad("do", "a %s with %s needs %s", syntax.Table("schedule"), sets("do", string(t.Do)), strings.Join(needs, ", "))
		}
	}
	allowed := append([]string{"", "do", "wan", "router", "days"}, needs...)
	if e.Do == DoRates {
		allowed = append(allowed, "down", "up")
	}
	for _, key := range scheduleKeys() {
		if _, given := at[key]; given && !slices.Contains(allowed, key) {
			return e, bad(key, "does not go with %s, which takes %s; remove it", sets("do", string(t.Do)), strings.Join(allowed[1:], ", "))
		}
	}
	for _, x := range []struct {
		key, text string
		to        *time.Duration
	}{{"at", t.At, &e.From}, {"from", t.From, &e.From}, {"to", t.To, &e.To}} {
		if _, given := at[x.key]; !given {
			continue
		}
		clock, err := time.Parse("15:04", x.text)
		if err != nil {
			return e, bad(x.key, "%q: must be a time of day, as in %s", x.text, sets(x.key, "03:30"))
		}
		*x.to = sinceMidnight(clock)
	}
	if e.Lasts() && e.From == e.To {
		return e, bad("to", "is the same time as from, so the entry would never end; set that in the %s", syntax.Table("wan"))
	}
	var err error
	if e.Days, err = days(t.Days); err != nil {
		return e, bad("days", "%w", err)
	}
	if e.Do == DoFirst || e.Do == DoLast {
		if t.Machine == "" || strings.ContainsAny(t.Machine, ", \t\n=") {
			return e, bad("machine", "%q: must be the address, the MAC address or the name of a machine of the home", t.Machine)
		}
		if _, err := plan.ParseRule("class=voice,home=" + t.Machine); err != nil {
			return e, bad("machine", "%w", err)
		}
	}
	if e.Do == DoRates {
		if t.Down == "" && t.Up == "" {
			return e, bad("do", "a %s with %s needs down or up, what the line carries then", syntax.Table("schedule"), sets("do", string(t.Do)))
		}
		for _, x := range []struct {
			key, text string
			to        *unit.Rate
		}{{"down", t.Down, &e.Down}, {"up", t.Up, &e.Up}} {
			if _, given := at[x.key]; !given {
				continue
			}
			r, err := unit.ParseRate(x.text)
			if err == nil && r <= 0 {
				err = errors.New("must be above 0")
			}
			if err != nil {
				return e, bad(x.key, "%w", err)
			}
			*x.to = r
		}
	}
	return e, e.find(t, wans, bad)
}

// find finds the WAN of the entry.
func (e *Entry) find(t EntryTable, wans []WAN, bad func(key, format string, args ...any) error) error {
	syntax := wans[0].syntax
	table := syntax.Table("wan")
	var fit []WAN
	for _, w := range wans {
		if (t.WAN == "" || w.Interface == t.WAN) && (t.Router == "" || w.Router == t.Router) {
			fit = append(fit, w)
		}
	}
	switch {
	case len(fit) == 0:
		return bad("wan", "there is no %s with %s", table, syntax.Sets(Setting{Key: "interface", Value: t.WAN}))
	case len(fit) > 1:
		return bad("wan", "there are several %s; say which, as in %s", table, syntax.Sets(Setting{Key: "wan", Value: fit[0].Interface}))
	}
	e.WAN, e.Router = fit[0].Interface, fit[0].Router
	if e.Do == DoRates && (e.Down != 0 && fit[0].Down == 0 || e.Up != 0 && fit[0].Up == 0) {
		return bad("do", "its %s does not say what the line usually carries in that direction; add it there", table)
	}
	if (e.Do == DoFirst || e.Do == DoLast) && fit[0].Classes == plan.ClassesOff {
		return bad("machine", "a machine can only go first or last where traffic has classes, and its %s has %s", table, syntax.Sets(Setting{Key: "classes", Value: plan.ClassesOff}))
	}
	return nil
}

// dayNames are by time.Weekday.
func dayNames() []string { return []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"} }

// days reads names of days; none is every day.
func days(names []string) (out [7]bool, err error) {
	if len(names) == 0 {
		return everyDay(), nil
	}
	for _, n := range names {
		i := slices.Index(dayNames(), strings.ToLower(n))
		if i < 0 {
			return out, fmt.Errorf("%q: must be of mon, tue, wed, thu, fri, sat, sun", n)
		}
		out[i] = true
	}
	return out, nil
}

// Says tells in a sentence what the entry does.
func (e Entry) Says() string {
	when := "every day"
	if e.Days != everyDay() {
		var on []string
		for d, is := range e.Days {
			if is {
				on = append(on, time.Weekday(d).String()[:3])
			}
		}
		when = strings.Join(on, ", ")
	}
	what := map[Doing]string{DoTest: "tests the line", DoTune: "tunes the line", DoFirst: e.Machine + " goes first", DoLast: e.Machine + " goes last"}[e.Do]
	if e.Do == DoRates {
		var rates []string
		if e.Down != 0 {
			rates = append(rates, e.Down.String()+" down")
		}
		if e.Up != 0 {
			rates = append(rates, e.Up.String()+" up")
		}
		what = "carries " + strings.Join(rates, " and ")
	}
	if !e.Lasts() {
		return fmt.Sprintf("%s: schedule: %s, %s at %s", e.WAN, what, when, clockOf(e.From))
	}
	return fmt.Sprintf("%s: schedule: %s, %s from %s to %s", e.WAN, what, when, clockOf(e.From), clockOf(e.To))
}

// At returns an *Error about the entry.
func (e Entry) At(file string, err error) error {
	return &Error{File: file, Line: e.line, Key: "schedule", Err: err}
}
