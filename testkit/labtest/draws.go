package labtest

import (
	"fmt"
	"slices"
	"testing"
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

// A Draw is one run of a test, with a seed of its own.
type Draw struct {
	*testing.T
	Seed  uint64
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

// OverDraws runs a test's body once a draw, and then judges what it said with AtMost and
// AtLeast.
func OverDraws(t *testing.T, body func(d *Draw)) {
	t.Helper()
	n := drawsByDay
	if Long() {
		n = drawsByNight
	}
	all := &drawn{figures: map[string]*figure{}}
	for i := range uint64(n) {
		body(&Draw{T: t, Seed: Seed(t) + i, drawn: all})
	}
	all.judge(t)
}

// AtLeast notes a figure of this draw that must be at least what is promised.
func (d *Draw) AtLeast(what string, got, promise float64) { d.drawn.add(what, true, got, promise) }

// AtMost notes a figure of this draw that must be at most what is promised.
func (d *Draw) AtMost(what string, got, promise float64) { d.drawn.add(what, false, got, promise) }

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
