package lab_test

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"unbloat/lab/scenario"
	"unbloat/testkit/labtest"
	"unbloat/unit"
)

// What is promised is held over draws, each a seed of its own: one in `make test`, five
// at night. The rule is one for all promises: the median of the draws is within the
// promise, and the worst within the promise and slack. One draw is any of them, so it
// is held to what the worst is.
const (
	drawsByDay   = 1
	drawsByNight = 5
	slack        = 0.1 // of the promise
)

// long says that the long form was asked for: more draws, whole lines, and the cases
// of others beside ours.
func long() bool { return os.Getenv("UNBLOAT_LONG") != "" }

// longEnv hands the choice of the form to the same test in a guest.
func longEnv() []string { return []string{"UNBLOAT_LONG=" + os.Getenv("UNBLOAT_LONG")} }

// A draw is one seed's run of a test.
type draw struct {
	*testing.T
	seed  uint64
	drawn *drawn
}

// drawn collects what the draws of a test gave.
type drawn struct {
	order   []string
	figures map[string]*figure
}

// A figure is one promise with what each draw gave.
type figure struct {
	promise float64
	least   bool // the promise is a lower bound
	values  []float64
}

// overDraws runs a test's body once a draw, and then judges what it said with atMost and
// atLeast.
func overDraws(t *testing.T, body func(d *draw)) {
	t.Helper()
	n := drawsByDay
	if long() {
		n = drawsByNight
	}
	all := &drawn{figures: map[string]*figure{}}
	for i := range uint64(n) {
		body(&draw{T: t, seed: labtest.Seed(t) + i, drawn: all})
	}
	all.judge(t)
}

func (d *drawn) add(what string, least bool, got, promise float64) {
	f := d.figures[what]
	if f == nil {
		f = &figure{promise: promise, least: least}
		d.figures[what], d.order = f, append(d.order, what)
	}
	f.values = append(f.values, got)
}

func (d *drawn) judge(t *testing.T) {
	t.Helper()
	for _, what := range d.order {
		f := d.figures[what]
		word := "at most"
		if f.least {
			word = "at least"
		}
		text := fmt.Sprintf("%s: %.6g (%s %.6g, the worst %.6g)", what, f.values, word, f.promise, f.bound())
		if f.holds() {
			t.Log(text)
		} else {
			t.Error(text)
		}
	}
}

// holds judges the draws. Of an even number the median is the worse of the two in the
// middle.
func (f *figure) holds() bool {
	v := slices.Sorted(slices.Values(f.values))
	middle, worst := v[len(v)/2], v[len(v)-1]
	if f.least {
		middle, worst = v[(len(v)-1)/2], v[0]
	}
	return f.within(worst, f.bound()) && (len(v) == 1 || f.within(middle, f.promise))
}

// bound is what the worst is held to.
func (f *figure) bound() float64 {
	if f.least {
		return f.promise * (1 - slack)
	}
	return f.promise * (1 + slack)
}

func (f *figure) within(got, bound float64) bool {
	if f.least {
		return got >= bound
	}
	return got <= bound
}

// atLeast notes a figure of this draw that must be at least what is promised.
func (d *draw) atLeast(what string, got, promise float64) { d.drawn.add(what, true, got, promise) }

// atMost notes a figure of this draw that must be at most what is promised.
func (d *draw) atMost(what string, got, promise float64) { d.drawn.add(what, false, got, promise) }

// within holds a figure that is exact, or is one run's, between two bounds.
func within(t testing.TB, what string, got, least, most float64) {
	t.Helper()
	if got < least || got > most {
		t.Errorf("%s: %.6g, want %.6g to %.6g", what, got, least, most)
	} else {
		t.Logf("%s: %.6g (%.6g to %.6g)", what, got, least, most)
	}
}

// The rule itself: a median beyond the promise fails, and so does a draw beyond the slack.
func TestDraws(t *testing.T) {
	for _, c := range []struct {
		values []float64
		least  bool
		good   bool
	}{
		{[]float64{10.9}, false, true},
		{[]float64{11.1}, false, false},
		{[]float64{9.1}, true, true},
		{[]float64{8.9}, true, false},
		{[]float64{8, 9, 10, 10.9, 10.9}, false, true},
		{[]float64{8, 9, 10.1, 10.1, 10.1}, false, false},
		{[]float64{8, 9, 9, 9, 11.1}, false, false},
		{[]float64{12, 11, 10, 9.1, 9.1}, true, true},
		{[]float64{12, 12, 12, 12, 8.9}, true, false},
		{[]float64{9, 11}, true, false},
	} {
		f := &figure{promise: 10, least: c.least, values: c.values}
		if good := f.holds(); good != c.good {
			t.Errorf("%v, least %v: %v", c.values, c.least, good)
		}
	}
}

// Phases with loads are at most so long in the short form: long enough for slow start to be over
// for a while, since the figures leave out the phase's first seconds. A hundred
// connections, a swarm and a video call's picture take longer to find their rates.
const (
	shortest = 15 * time.Second
	settling = 25 * time.Second
)

// byDay makes a scenario's short form: phases that are short, and in place of a
// tuning the rates that one finds, 98 % of what the line carries down and 99 % up; told of many
// downloads 86 % down. At night the scenario stays as it is.
func byDay(s *scenario.Scenario) {
	shorter(s)
	if long() {
		return
	}
	down := 0.98
	if s.Test.FlowsDown >= 32 {
		down = 0.86
	}
	for i, c := range s.Cases {
		if c.Router.Mode == scenario.ModeTune {
			s.Cases[i].Router = shaped(share(s.Line.Down, down), share(s.Line.Up, 0.99))
		}
	}
}

// shaped is a router with our plan for two rates.
func shaped(down, up unit.Rate) scenario.Router {
	return scenario.Router{Mode: scenario.ModeFix, Fix: &scenario.Fix{Down: down, Up: up}}
}

// shorter makes the phases of a scenario short by day.
func shorter(s *scenario.Scenario) {
	if long() {
		return
	}
	most := shortest
	if slices.ContainsFunc(s.Loads, func(l scenario.Load) bool {
		return l.Flows >= 100 || l.Kind == scenario.Torrent || l.Kind == scenario.WebRTC
	}) {
		most = settling
	}
	if s.Test.Seconds > most {
		s.Test.Seconds = most
		for i := range s.Loads { // a mailbox that is fetched in that time
			s.Loads[i].Messages /= 4
		}
	}
}

func share(r unit.Rate, of float64) unit.Rate { return unit.Rate(float64(r) * of) }
