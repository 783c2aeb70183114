package follow

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"strconv"
	"strings"
	"time"

	"unbloat/unit"
)

// hoursOfWeek is how many hours a week has. Hour 0 is Monday's first.
const hoursOfWeek = 7 * 24

// Learned are the rates that a line has carried without a queue, by the hour of the
// week. The zero value knows nothing. It is of fixed size.
type Learned struct {
	hours [hoursOfWeek][2]learnedHour // by Direction
	most  [2]learnedMost
}

// learnedMost is the most that a line has been seen to carry, where it is learnt.
type learnedMost struct {
	bps    float64       // 0: not known
	counts time.Duration // how long the step counts that failed last
}

// learnedHour is what one hour of the week has shown.
type learnedHour struct {
	low, usual float64 // bit/s: quantiles of 10 and 50 %
	minutes    uint32  // with load that it was learnt from
}

const (
	learnEvery = time.Minute
	learnLeast = 5  // minutes of an hour that are enough to go by
	learnMost  = 50 // minutes that an hour remembers
)

// observe takes in what the line carried in a minute of an hour.
func (l *Learned) observe(hour int, d Direction, bps float64) {
	h := &l.hours[hour][d]
	if h.minutes < learnMost {
		h.minutes++
	}
	if h.minutes == 1 {
		h.low, h.usual = bps, bps
		return
	}
	weight := 1 / float64(h.minutes)
	h.low = towards(h.low, bps, weight, 0.1)
	h.usual = towards(h.usual, bps, weight, 0.5)
}

// towards moves an estimate of a quantile for a new value, never beyond it.
func towards(estimate, value, weight, quantile float64) float64 {
	if value > estimate {
		return min(value, estimate+weight*quantile*estimate)
	}
	return max(value, estimate-weight*(1-quantile)*estimate)
}

// at returns what is known of an hour: by itself, or by the same hour of other days.
// ok is false if that is not enough.
func (l *Learned) at(hour int, d Direction) (low, usual float64, ok bool) {
	if h := &l.hours[hour][d]; h.minutes >= learnLeast {
		return h.low, h.usual, true
	}
	minutes := 0.0
	for k := hour % 24; k < hoursOfWeek; k += 24 {
		h := &l.hours[k][d]
		n := float64(h.minutes)
		low, usual, minutes = low+n*h.low, usual+n*h.usual, minutes+n
	}
	if minutes < learnLeast {
		return 0, 0, false
	}
	return low / minutes, usual / minutes, true
}

// learnedHeader is the first line of the file.
const learnedHeader = "unbloat learned rates 1"

// Encode returns the text of a file: a line for each hour of the week of which
// something is known, at most 16 KiB altogether. Its columns are the hour (0 is
// Monday's first), and for down and for up what was carried in 90 % and in 50 % of the
// minutes with load, in bit/s, and how many minutes there were. Before them is the most, and
// for how many seconds a step beyond it is not tried again, if that is learnt.
func (l *Learned) Encode() []byte {
	var b bytes.Buffer
	b.WriteString(learnedHeader + "\n")
	if m := &l.most; m[Down].bps+m[Up].bps > 0 {
		fmt.Fprintf(&b, "most %.0f %.0f %.0f %.0f\n", m[Down].bps, m[Down].counts.Seconds(), m[Up].bps, m[Up].counts.Seconds())
	}
	for hour := range l.hours {
		h := &l.hours[hour]
		if h[Down].minutes == 0 && h[Up].minutes == 0 {
			continue
		}
		fmt.Fprintf(&b, "%d", hour)
		for d := range h {
			fmt.Fprintf(&b, " %.0f %.0f %d", h[d].low, h[d].usual, h[d].minutes)
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "sum %08x\n", crc32.ChecksumIEEE(b.Bytes()))
	return b.Bytes()
}

// DecodeLearned reads what Encode wrote. An error says that the file is damaged, or
// was written by something else.
func DecodeLearned(text []byte) (*Learned, error) {
	const most = 16 << 10
	if len(text) > most {
		return nil, errors.New("the learned rates: the file is too long")
	}
	body, sum, found := strings.Cut(string(text), "sum ")
	if want := fmt.Sprintf("%08x\n", crc32.ChecksumIEEE([]byte(body))); !found || sum != want {
		return nil, errors.New("the learned rates: the file's checksum is wrong")
	}
	lines := strings.Split(strings.TrimSuffix(body, "\n"), "\n")
	if lines[0] != learnedHeader {
		return nil, fmt.Errorf("the learned rates: the file does not begin with %q", learnedHeader)
	}
	l, last := &Learned{}, -1
	for i, line := range lines[1:] {
		f := strings.Fields(line)
		if i == 0 && len(f) == 5 && f[0] == "most" {
			for d := range l.most {
				bps, err1 := learnedNumber(f, 1+2*d, 1e12)
				counts, err2 := learnedNumber(f, 2+2*d, countsMost.Seconds())
				if errors.Join(err1, err2) != nil {
					return nil, errors.New("the learned rates: line 2 is damaged")
				}
				l.most[d] = learnedMost{bps, time.Duration(counts) * time.Second}
			}
			continue
		}
		hour, err := learnedNumber(f, 0, hoursOfWeek-1)
		if err != nil || len(f) != 7 || int(hour) <= last {
			return nil, fmt.Errorf("the learned rates: line %d is damaged", i+2)
		}
		last = int(hour)
		for d := range l.hours[last] {
			h := &l.hours[last][d]
			low, err1 := learnedNumber(f, 1+3*d, 1e12)
			usual, err2 := learnedNumber(f, 2+3*d, 1e12)
			minutes, err3 := learnedNumber(f, 3+3*d, math.MaxUint32)
			if errors.Join(err1, err2, err3) != nil || low > usual || (minutes > 0) != (low > 0) {
				return nil, fmt.Errorf("the learned rates: line %d is damaged", i+2)
			}
			h.low, h.usual, h.minutes = low, usual, min(uint32(minutes), learnMost)
		}
	}
	return l, nil
}

// learnedNumber reads a field.
func learnedNumber(fields []string, i int, most float64) (float64, error) {
	if i >= len(fields) {
		return 0, errors.New("a field is missing")
	}
	v, err := strconv.ParseUint(fields[i], 10, 63)
	if err == nil && float64(v) > most {
		err = errors.New("too large")
	}
	return float64(v), err
}

// lessons are what is learnt of the line while it is followed.
type lessons struct {
	learned *Learned     // nil: nothing is learnt
	monday  unit.Instant // at which a Monday began; if wall
	wall    bool
	at      unit.Instant // the last time that something was learnt
	proven  [2]float64   // bit/s; what the line was seen to carry since; 0: nothing
	n       uint64
}

// Wall says what the clock on the wall shows: monday is an Instant at which a Monday
// began there. It is to be called again when that clock is set, and at least once a day.
// Until it is called nothing is learnt by the hour.
func (c *Controller) Wall(monday unit.Instant) { c.lessons.monday, c.lessons.wall = monday, true }

// hour returns the hour of the week; ok is false if the time is not known.
func (l *lessons) hour(now unit.Instant) (hour int, ok bool) {
	const week = hoursOfWeek * time.Hour
	into := now.Sub(l.monday) % week
	if into < 0 {
		into += week
	}
	return int(into / time.Hour), l.wall && l.learned != nil
}

// study learns what the line carried in the last minute.
func (l *lessons) study(now unit.Instant, ways *[2]way) {
	if now.Sub(l.at) < learnEvery {
		return
	}
	l.at = now
	hour, ok := l.hour(now)
	for d, proven := range l.proven {
		if ok && proven > 0 {
			l.learned.observe(hour, Direction(d), ways[d].policy.clamp(proven))
			l.n++
		}
	}
	l.proven = [2]float64{}
}

// prove notes what the line has been seen to carry: without a queue while the shaper
// was full, or what it served its queue with.
func (l *lessons) prove(now unit.Instant, w *way) {
	proven := &l.proven[w.is]
	switch {
	case w.capacity.mean > 0 && now.Sub(w.capacity.at) < learnEvery/2:
		*proven = below * w.capacity.mean
	case w.load.full && w.queue.delay == 0 && !w.loss.some():
		*proven = max(*proven, w.policy.rate)
	}
}

// rates returns what nearly always fits at this time and what usually does: as learnt, or
// as measured and as configured.
func (l *lessons) rates(now unit.Instant, w *way) (low, usual float64) {
	if hour, ok := l.hour(now); ok {
		if low, usual, ok = l.learned.at(hour, w.is); ok {
			return w.policy.clamp(low), w.policy.clamp(usual)
		}
	}
	low, usual = float64(w.policy.Usual), float64(w.policy.Usual)
	if w.capacity.low > 0 {
		low = below * w.capacity.low
	}
	return low, usual
}

// most returns the most that is known from before.
func (l *lessons) most(d Direction) learnedMost {
	if l.learned == nil {
		return learnedMost{}
	}
	return l.learned.most[d]
}

// reached keeps the most that is learnt.
func (l *lessons) reached(w *way) {
	r := &w.policy.reach
	if is := (learnedMost{float64(r.proven), r.counts}); r.LearnMost && l.learned != nil && l.learned.most[w.is] != is {
		l.learned.most[w.is] = is
		l.n++
	}
}

// Learned returns how often something was learnt of a direction since New.
// While it stays the same Params.Learned does.
func (c *Controller) Learned() uint64 { return c.lessons.n }
