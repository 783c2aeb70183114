package follow

import (
	"testing"
	"time"

	"unbloat/unit"
)

// fluid is a line on which load flows like water: greedy loads fill the shapers, what
// is beyond the line's rate waits in front of it, and reflectors answer.
type fluid struct {
	c        *Controller
	drive    Decider // c, or what stands before it
	now      unit.Instant
	capacity [2]float64 // bit/s
	load     [2]float64 // bit/s that the home wants
	queue    [2]float64 // bits on the line
	backlog  [2]float64 // bits in the shaper
	bytes    [2]float64
	waiting  []Delay // answers under way
	next     unit.Instant
	base     time.Duration
	oneWay   bool
	room     time.Duration                                       // the longest queue of the line, which drops the rest; 0: there is none
	radio    float64                                             // share that the line loses whatever it carries
	seen     [2]float64                                          // KiB
	lost     [2]float64                                          // of them
	call     bool                                                // somebody talks
	answer   func(at unit.Instant, reflector int, d *Delay) bool // false: none; nil: as it is
	changes  []Decision
	last     Decision
}

const tick = 5 * time.Millisecond

func usual() Params {
	return Params{
		Rates: [2]Bounds{
			{Least: 5 * unit.MbitPerSecond, Usual: 47 * unit.MbitPerSecond, Most: 60 * unit.MbitPerSecond},
			{Least: unit.MbitPerSecond, Usual: 9500 * unit.KbitPerSecond, Most: 12 * unit.MbitPerSecond},
		},
		Reflectors: []Reflector{{Operator: 1}, {Operator: 1}, {Operator: 2}, {Operator: 2}, {Operator: 3}, {Operator: 3}},
	}
}

func newFluid(t testing.TB, p Params) *fluid {
	t.Helper()
	c, err := New(p, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := &fluid{c: c, drive: c, capacity: [2]float64{50e6, 10e6}, base: 30 * time.Millisecond, oneWay: true}
	for d := range f.last.Rate {
		f.last.Rate[d] = p.Rates[d].Usual
	}
	return f
}

// run lets time pass.
func (f *fluid) run(d time.Duration) {
	for until := f.now.Add(d); f.now < until; f.now = f.now.Add(tick) {
		seconds := tick.Seconds()
		for d := Down; d <= Up; d++ {
			rate := float64(f.last.Rate[d])
			wants := f.load[d]*seconds + f.backlog[d]
			if d == Up {
				sent := min(wants, rate*seconds)
				f.backlog[d] = min(wants-sent, 2e5)
				f.bytes[d] += sent / 8
				f.queue[d] = max(f.queue[d]+sent-f.capacity[d]*seconds, 0)
				f.lose(d, sent)
				continue
			}
			// Senders far away keep to the shaper's rate, a little more.
			sent := min(f.load[d], rate*1.02) * seconds
			carried := min(f.queue[d]+sent, f.capacity[d]*seconds)
			f.queue[d] += sent - carried
			f.lose(d, sent)
			f.bytes[d] += carried / 8
			f.backlog[d] = min(max(f.backlog[d]+carried-rate*seconds, 0), 2e5)
		}
		kept := f.waiting[:0]
		for _, a := range f.waiting {
			if a.At > f.now {
				kept = append(kept, a)
				continue
			}
			f.drive.Delay(a)
		}
		f.waiting = kept
		if f.now < f.next {
			continue
		}
		k := Counters{At: f.now, Call: f.call, Way: [2]Count{
			{Bytes: unit.Size(f.bytes[Down]), Backlog: unit.Size(f.backlog[Down] / 8), Seen: uint64(f.seen[Down]), Lost: uint64(f.lost[Down])},
			{Bytes: unit.Size(f.bytes[Up]), Backlog: unit.Size(f.backlog[Up] / 8), Seen: uint64(f.seen[Up]), Lost: uint64(f.lost[Up])},
		}}
		f.drive.Count(k)
		f.last = f.drive.Step(f.now)
		f.next = f.last.Next
		if f.last.Change[Down] || f.last.Change[Up] {
			f.changes = append(f.changes, f.last)
		}
		for {
			i, ok := f.drive.Ask(f.now)
			if !ok {
				break
			}
			up := f.base/2 + time.Duration(f.queue[Up]/f.capacity[Up]*1e9)
			down := f.base/2 + time.Duration(f.queue[Down]/f.capacity[Down]*1e9)
			d := Delay{At: f.now.Add(up + down), Source: uint32(i), RTT: up + down, OneWay: f.oneWay, Up: up + time.Hour, Down: down - time.Hour}
			if f.answer == nil || f.answer(f.now, i, &d) {
				f.waiting = append(f.waiting, d)
			}
		}
	}
}

// lose drops what does not fit into the line's queue, and what the radio loses.
func (f *fluid) lose(d Direction, sent float64) {
	kib := 8.0 * (8 << 10) // bits: down one in eight is followed
	if d == Up {
		kib /= 8
	}
	lost := f.radio * sent
	if most := f.room.Seconds() * f.capacity[d]; f.room > 0 && f.queue[d] > most {
		lost += f.queue[d] - most
		f.queue[d] = most
	}
	f.seen[d] += sent / kib
	f.lost[d] += lost / kib
}

// delay returns what the line's queues add now.
func (f *fluid) delay() time.Duration {
	return time.Duration((f.queue[Down]/f.capacity[Down] + f.queue[Up]/f.capacity[Up]) * 1e9)
}
