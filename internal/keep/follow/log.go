package follow

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"

	"unbloat/unit"
)

// A log has all that a controller was given, and what it decided: a line each, whose
// numbers are differences from those before. So a bad evening can be run again, and
// becomes a test.

const (
	logHeader   = "unbloat follow log 1"
	mostNumbers = 4096 // flows that are told apart at one time
)

// Kinds of lines, with their numbers. The first is a time, in ns.
const (
	logBegun   = 'b' // time; then Params as JSON
	logAsked   = 'a' // time
	logDelay   = 'd' // time, source, operator, passive, RTT, one way, up, down
	logCounted = 'c' // time; down and up bytes, backlog, drops, acked
	logApplied = 'x' // time, direction, rate
	logNewLine = 'n' // time
	logWall    = 'w' // time of a Monday
	logCall    = 'k' // time, whether there is a call
	logLost    = 'l' // time; down and up KiB seen, lost
	logStepped = 's' // time; the rates decided, down and up
)

// A Recorder is a controller that writes a log.
type Recorder struct {
	*Controller
	to      io.Writer
	line    []byte
	at      unit.Instant
	counted Counters
	numbers map[uint32]int64 // of flows
	given   int64            // of them
	err     error
}

// NewRecorder begins a log of a controller.
func NewRecorder(c *Controller, now unit.Instant, to io.Writer) *Recorder {
	r := &Recorder{Controller: c}
	r.Restart(now, to)
	return r
}

// Restart goes on with another log, which is whole by itself.
func (r *Recorder) Restart(now unit.Instant, to io.Writer) {
	p := r.p
	p.Learned = nil
	for d := range r.ways {
		p.Rates[d].Least, p.Rates[d].Most = r.ways[d].policy.Least, r.ways[d].policy.proven
	}
	text, err := json.Marshal(p)
	*r = Recorder{Controller: r.Controller, to: to, err: err}
	r.line = append(r.line, logHeader+"\n"...)
	r.begin(logBegun, now)
	r.line = append(append(r.line, ' '), text...)
	r.end()
	for d := range r.ways {
		r.write(logApplied, now, int64(d), int64(r.ways[d].policy.rate))
	}
}

// Err returns why the log could not be written any more.
func (r *Recorder) Err() error { return r.err }

func (r *Recorder) begin(kind byte, at unit.Instant) {
	r.line = strconv.AppendInt(append(r.line, kind, ' '), int64(at-r.at), 10)
	r.at = at
}

func (r *Recorder) end() {
	if r.err == nil {
		_, r.err = r.to.Write(append(r.line, '\n'))
	}
	r.line = r.line[:0]
}

func (r *Recorder) write(kind byte, at unit.Instant, numbers ...int64) {
	r.begin(kind, at)
	for _, n := range numbers {
		r.line = strconv.AppendInt(append(r.line, ' '), n, 10)
	}
	r.end()
}

// Ask implements Decider. One that is not due changes nothing, and is not written.
func (r *Recorder) Ask(now unit.Instant) (int, bool) {
	if now >= r.sources.due(r.every(now)) {
		r.write(logAsked, now)
	}
	return r.Controller.Ask(now)
}

// Delay implements Decider.
func (r *Recorder) Delay(d Delay) {
	flag := map[bool]int64{true: 1}
	source, operator := int64(d.Source), int64(d.Operator)
	if d.Passive {
		source, operator = r.number(d.Source), r.number(d.Operator)
	}
	r.write(logDelay, d.At, source, operator, flag[d.Passive], int64(d.RTT), flag[d.OneWay], int64(d.Up), int64(d.Down))
	r.Controller.Delay(d)
}

// number stands for what a flow is told by, which may be made of an address.
func (r *Recorder) number(id uint32) int64 {
	n, is := r.numbers[id]
	if !is {
		if len(r.numbers) >= mostNumbers || r.numbers == nil {
			r.numbers = map[uint32]int64{}
		}
		r.given++
		n = r.given
		r.numbers[id] = n
	}
	return n
}

// Count implements Decider.
func (r *Recorder) Count(c Counters) {
	n := make([]int64, 0, 8)
	if c.Call != r.counted.Call {
		r.write(logCall, c.At, map[bool]int64{true: 1}[c.Call])
	}
	var lost [4]int64
	for d := range c.Way {
		is, was := &c.Way[d], &r.counted.Way[d]
		lost[2*d], lost[2*d+1] = int64(is.Seen-was.Seen), int64(is.Lost-was.Lost)
	}
	if lost != [4]int64{} {
		r.write(logLost, c.At, lost[:]...)
	}
	for d := range c.Way {
		is, was := &c.Way[d], &r.counted.Way[d]
		n = append(n, int64(is.Bytes-was.Bytes), int64(is.Backlog-was.Backlog), int64(is.Drops-was.Drops), int64(is.Acked-was.Acked))
	}
	r.write(logCounted, c.At, n...)
	r.counted = c
	r.Controller.Count(c)
}

// Applied implements Decider. A rate that is known is not written.
func (r *Recorder) Applied(now unit.Instant, d Direction, rate unit.Rate) {
	if float64(rate) != r.ways[d].policy.rate {
		r.write(logApplied, now, int64(d), int64(rate))
	}
	r.Controller.Applied(now, d, rate)
}

// Step implements Decider.
func (r *Recorder) Step(now unit.Instant) Decision {
	out := r.Controller.Step(now)
	r.write(logStepped, now, int64(out.Rate[Down]), int64(out.Rate[Up]))
	return out
}

// NewLine is Controller.NewLine.
func (r *Recorder) NewLine(now unit.Instant) {
	r.write(logNewLine, now)
	r.Controller.NewLine(now)
}

// Wall is Controller.Wall.
func (r *Recorder) Wall(monday unit.Instant) {
	r.write(logWall, monday)
	r.Controller.Wall(monday)
}

// A Replayed is one step of a log, run again.
type Replayed struct {
	Now        unit.Instant
	Decision   Decision
	Recorded   [2]unit.Rate // that were decided when the log was written
	Controller *Controller
}

// Replay runs a log through a controller of its own. What had been learnt by the hour of
// the week is not in it. A last line that is not whole is left out.
func Replay(log io.Reader, each func(Replayed)) error {
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 64<<10)
	if !lines.Scan() || lines.Text() != logHeader {
		return fmt.Errorf("replay: the file does not begin with %q; the daemon writes one where the configuration has decisions = \"FILE\"", logHeader)
	}
	var c *Controller
	var at unit.Instant
	var counted Counters
	for n := 2; lines.Scan(); n++ {
		line := lines.Bytes()
		v, rest, err := logNumbers(line)
		bad := func(err error) error { return fmt.Errorf("replay: line %d: %w", n, err) }
		if err != nil {
			if lines.Scan() {
				return bad(err)
			}
			return lines.Err()
		}
		at += unit.Instant(v[0])
		if line[0] == logBegun {
			var p Params
			if err := json.Unmarshal(rest, &p); err != nil {
				return bad(err)
			}
			if c, err = New(p, at); err != nil {
				return bad(err)
			}
			continue
		}
		if c == nil {
			return bad(fmt.Errorf("%q comes before the parameters", line))
		}
		switch line[0] {
		case logAsked:
			c.Ask(at)
		case logDelay:
			c.Delay(Delay{At: at, Source: uint32(v[1]), Operator: uint32(v[2]), Passive: v[3] != 0, RTT: time.Duration(v[4]), OneWay: v[5] != 0, Up: time.Duration(v[6]), Down: time.Duration(v[7])})
		case logCounted:
			counted.At = at
			for d := range counted.Way {
				w, x := &counted.Way[d], v[1+4*d:]
				w.Bytes, w.Backlog, w.Drops, w.Acked = w.Bytes+unit.Size(x[0]), w.Backlog+unit.Size(x[1]), w.Drops+uint64(x[2]), w.Acked+unit.Size(x[3])
			}
			c.Count(counted)
		case logApplied:
			c.Applied(at, Direction(v[1]&1), unit.Rate(v[2]))
		case logNewLine:
			c.NewLine(at)
		case logWall:
			c.Wall(at)
		case logCall:
			counted.Call = v[1] != 0
		case logLost:
			for d := range counted.Way {
				w, x := &counted.Way[d], v[1+2*d:]
				w.Seen, w.Lost = w.Seen+uint64(x[0]), w.Lost+uint64(x[1])
			}
		case logStepped:
			each(Replayed{at, c.Step(at), [2]unit.Rate{unit.Rate(v[1]), unit.Rate(v[2])}, c})
		}
	}
	return lines.Err()
}

// logNumbers reads the numbers of a line, as many as its kind has; rest is what follows.
func logNumbers(line []byte) (v [9]int64, rest []byte, err error) {
	want := map[byte]int{logBegun: 1, logAsked: 1, logDelay: 8, logCounted: 9, logApplied: 3, logNewLine: 1, logWall: 1, logCall: 2, logLost: 5, logStepped: 3}
	if len(line) < 2 || want[line[0]] == 0 {
		return v, nil, fmt.Errorf("%.40q is no line of a log", line)
	}
	rest = line[2:]
	for i := range want[line[0]] {
		var field []byte
		field, rest, _ = bytes.Cut(rest, []byte(" "))
		if v[i], err = strconv.ParseInt(string(field), 10, 64); err != nil {
			return v, nil, fmt.Errorf("%.40q is no line of a log: %w", line, err)
		}
	}
	return v, rest, nil
}
