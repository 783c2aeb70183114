package scenario

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"unbloat/unit"
)

// maxRows of a trace are more than half an hour at 100 ms.
const maxRows = 20000

// ParseTrace reads the rates of a line over time: lines of "seconds down_mbit up_mbit",
// from 0 on and in order; # begins a comment. A line with the rates of the line before is no change. A rate of 0 is an outage. file names it in
// errors, which are of type *Error.
func ParseTrace(file string, text []byte) ([]Change, error) {
	var out []Change
	number, last := 0, time.Duration(0)
	for line := range strings.Lines(string(text)) {
		number++
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		fail := func(format string, args ...any) ([]Change, error) {
			return nil, &Error{File: file, Line: number, Why: fmt.Sprintf(format, args...)}
		}
		if len(fields) != 3 {
			return fail("%d fields; a line has seconds, Mbit/s down and Mbit/s up", len(fields))
		}
		var v [3]float64
		for i, f := range fields {
			x, err := strconv.ParseFloat(f, 64)
			if err != nil || !(x >= 0) || x > 1e5 {
				return fail("%q is no number from 0 to 100000", f)
			}
			v[i] = x
		}
		c := Change{At: time.Duration(math.Round(v[0] * 1e9)), Down: rateOf(v[1]), Up: rateOf(v[2]), Exact: true}
		switch {
		case len(out) == 0 && c.At != 0:
			return fail("the first line must be of second 0")
		case len(out) > 0 && c.At <= last:
			return fail("%v is not after the line before", c.At)
		case len(out) == maxRows:
			return fail("more than %d lines", maxRows)
		}
		if n := len(out); n == 0 || out[n-1].Down != c.Down || out[n-1].Up != c.Up {
			out = append(out, c)
		}
		last = c.At
	}
	if len(out) == 0 {
		return nil, &Error{File: file, Why: "no rates"}
	}
	return out, nil
}

// rateOf returns a rate that queues can have: what is below 1 kbit/s is an outage.
func rateOf(mbit float64) unit.Rate {
	if mbit < 0.001 {
		return 0
	}
	return unit.Rate(math.Round(mbit * 1e6))
}

// Read reads a scenario and, by read, the trace that it names, from beside it.
func Read(file string, text []byte, read func(name string) ([]byte, error)) (*Scenario, error) {
	s, err := Parse(file, text)
	if err != nil || s.Line.Trace == "" {
		return s, err
	}
	trace, err := read(s.Line.Trace)
	if err != nil {
		return nil, &Error{File: file, Line: index(text)["line.trace"], Key: "line.trace", Why: err.Error(), Err: err}
	}
	return s, s.SetTrace(trace)
}

// SetTrace takes the text of the file that Line.Trace names.
func (s *Scenario) SetTrace(text []byte) error {
	changes, err := ParseTrace(s.Line.Trace, text)
	for i := range changes {
		changes[i].At += s.Line.TraceFrom
	}
	s.Line.Vary = changes
	return err
}
