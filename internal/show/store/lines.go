package store

import (
	"context"
	"time"

	"unbloat/unit"
)

// What lines did is thinned as it gets older.
const (
	LineMinutes  = 7 * 24 * time.Hour   // so long minutes are kept; then
	LineQuarters = 400 * 24 * time.Hour // so long quarters of an hour; then nothing
	lineCoarse   = 15 * time.Minute
)

// A LineStep is what a line did in one step of time.
type LineStep struct {
	WAN  string
	At   time.Time // its begin, to the second
	Step time.Duration
	Way  [2]LineWay // down, up
}

// A LineWay is one direction of a LineStep. Delays are in milliseconds; below 0: not known.
type LineWay struct {
	Rate, Capacity, Carried unit.Rate
	Delay, DelayMax         float64
}

// AddLines writes what lines did, all or nothing, and thins what is old. now is the
// machine's clock.
func (s *Store) AddLines(ctx context.Context, steps []LineStep, now time.Time) error {
	err := s.db.transact(ctx, func() error {
		for _, x := range steps {
			if err := s.putLine(ctx, x); err != nil {
				return err
			}
		}
		return s.thinLines(ctx, now)
	})
	if err != nil {
		return s.db.explain("write what the line did to", err)
	}
	return nil
}

const lineColumns = "wan, at_s, step_s, rate_down, capacity_down, carried_down, delay_down, most_down, rate_up, capacity_up, carried_up, delay_up, most_up"

func (s *Store) putLine(ctx context.Context, x LineStep) error {
	const micros = 1000 // in a millisecond
	args := []any{x.WAN, x.At.Unix(), int64(x.Step / time.Second)}
	for _, w := range x.Way {
		args = append(args, int64(w.Rate), int64(w.Capacity), int64(w.Carried), int64(w.Delay*micros), int64(w.DelayMax*micros))
	}
	if _, err := s.db.exec(ctx, "DELETE FROM lines WHERE wan = ? AND at_s = ?", x.WAN, x.At.Unix()); err != nil {
		return err
	}
	_, err := s.db.exec(ctx, "INSERT INTO lines ("+lineColumns+") VALUES "+placeholders(1, len(args)), args...)
	return err
}

// Lines calls each for what a line did from one time to before another, oldest first.
func (s *Store) Lines(ctx context.Context, wan string, from, to time.Time, each func(LineStep)) error {
	err := s.lines(ctx, "wan = ? AND at_s >= ? AND at_s < ?", []any{wan, from.Unix(), to.Unix()}, each)
	if err != nil {
		return s.db.explain("read what the line did from", err)
	}
	return nil
}

// LineWANs returns the lines of which something is known.
func (s *Store) LineWANs(ctx context.Context) (wans []string, err error) {
	err = s.db.query(ctx, "SELECT DISTINCT wan FROM lines ORDER BY wan", nil, func(r row) error {
		wans = append(wans, r.text(0))
		return nil
	})
	if err != nil {
		return nil, s.db.explain("read what the line did from", err)
	}
	return wans, nil
}

// lines calls each for the steps of a condition, by line and time.
func (s *Store) lines(ctx context.Context, where string, args []any, each func(LineStep)) error {
	return s.db.query(ctx, "SELECT "+lineColumns+" FROM lines WHERE "+where+" ORDER BY wan, at_s", args, func(r row) error {
		x := LineStep{WAN: r.text(0), At: time.Unix(r.number(1), 0).UTC(), Step: time.Duration(r.number(2)) * time.Second}
		for d := range x.Way {
			const micros, first, each = 1000.0, 3, 5
			at := first + d*each
			x.Way[d] = LineWay{unit.Rate(r.number(at)), unit.Rate(r.number(at + 1)), unit.Rate(r.number(at + 2)), float64(r.number(at+3)) / micros, float64(r.number(at+4)) / micros}
		}
		each(x)
		return nil
	})
}

// thinLines joins what is old to longer steps, and removes what is very old.
func (s *Store) thinLines(ctx context.Context, now time.Time) error {
	if _, err := s.db.exec(ctx, "DELETE FROM lines WHERE at_s < ?", now.Add(-LineQuarters).Unix()); err != nil {
		return err
	}
	const coarse = int64(lineCoarse / time.Second)
	before := now.Add(-LineMinutes).Unix() / coarse * coarse
	var joined []joinedLine
	err := s.lines(ctx, "at_s < ? AND step_s < ?", []any{before, coarse}, func(x LineStep) {
		x.At = time.Unix(x.At.Unix()/coarse*coarse, 0)
		if n := len(joined); n == 0 || joined[n-1].WAN != x.WAN || !joined[n-1].At.Equal(x.At) {
			joined = append(joined, joinedLine{LineStep: LineStep{WAN: x.WAN, At: x.At, Step: lineCoarse}})
		}
		joined[len(joined)-1].add(x)
	})
	if err != nil || len(joined) == 0 {
		return err
	}
	if _, err := s.db.exec(ctx, "DELETE FROM lines WHERE at_s < ? AND step_s < ?", before, coarse); err != nil {
		return err
	}
	for _, j := range joined {
		if err := s.putLine(ctx, j.LineStep); err != nil {
			return err
		}
	}
	return nil
}

// A joinedLine is the mean of steps, and their worst delay.
type joinedLine struct {
	LineStep
	n, known, timed [2]int // steps, those with a capacity, those with a delay
}

func (j *joinedLine) add(x LineStep) {
	for d, in := range x.Way {
		to := &j.Way[d]
		j.n[d]++
		n := j.n[d]
		to.Rate += (in.Rate - to.Rate) / unit.Rate(n)
		to.Carried += (in.Carried - to.Carried) / unit.Rate(n)
		switch {
		case in.Delay >= 0:
			if j.timed[d]++; j.timed[d] == 1 {
				to.Delay, to.DelayMax = in.Delay, in.DelayMax
			}
			to.Delay += (in.Delay - to.Delay) / float64(j.timed[d])
			to.DelayMax = max(to.DelayMax, in.DelayMax)
		case j.timed[d] == 0:
			to.Delay, to.DelayMax = in.Delay, in.DelayMax
		}
		if in.Capacity > 0 {
			j.known[d]++
			to.Capacity += (in.Capacity - to.Capacity) / unit.Rate(j.known[d])
		}
	}
}
