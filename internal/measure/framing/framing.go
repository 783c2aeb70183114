// Package framing finds out what a line adds to each packet: how many bytes, how
// short a packet can be there, and whether it is cut into cells. A shaper that
// counts less than the line carries is too fast with small packets, and the queue
// is the modem's again.
//
// # The arithmetic
//
// A full line carries so many bytes a second, and a packet of n bytes of IP
// occupies W(n) of them, so packets of one size arrive W(n)/R apart:
//
//	W(n) = max(n + overhead, mpu)                 no cells
//	W(n) = 53 × ⌈(n + overhead) / 48⌉             cells: ATM, of whose 53 bytes 48 carry data
//
// Without cells the time per packet is a straight line over n: its slope is 1/R,
// and where it meets zero, at −n, is the overhead. Below mpu − overhead it is
// flat. With cells it is a staircase, and which n begins a step says what the
// overhead is modulo 48; how high the staircase is above zero says the rest.
//
// What is usual: ATM with LLC/SNAP and a bridged frame 32, with PPPoE 40, without
// LLC/SNAP 8 less; Ethernet 38 with preamble and gap (84 at least), 18 with its
// check sequence alone, as DOCSIS counts (64 at least); 8 more for PPPoE, 4 more
// for a VLAN. PTM (VDSL2) puts a byte before each 64 of the whole stream: as
// that is the same for all sizes, it is seen as a lower rate, and the overhead is in bytes of that.
//
// # The trains
//
// Datagrams go in trains of one size each, sizes in random order, faster than
// the line carries them. 49 sizes in a row from the smallest packet on show where
// a step or a flat part is, to the byte; five up to 1,400 bytes show the slope.
// What is lost beyond the line is lost of all sizes, and changes nothing but the rate.
// The first quarter of each train does not count: queue and jitter are still
// the train's before.
//
// They go in two passes, the second faster. On a line that is full of nothing
// else the time per packet is the same in both: there lies the proof that the
// line was full, and that nobody else's packets came between.
//
// # The certainty
//
// The fit is by least squares over trains, each train's time being known as well as
// another's. An interval is from the bootstrap: trains are drawn again within their
// sizes, and all is fitted again. With cells it has every overhead that fits as well.
// An answer is sure only if every draw gives the same kind and the same byte, both
// passes agree, and no size lies beside the fit.
package framing

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"unbloat/internal/measure/probe"
	"unbloat/reason"
	"unbloat/unit"
)

// A Train is what became of a train of datagrams. Sender and receiver have clocks
// of their own.
type Train struct {
	Pass int       // trains of one pass are sent at one multiple of the line's rate
	Size unit.Size // of a packet, in bytes of IP
	Sent probe.SentTrain
	Came probe.Run
}

// An Estimate is what a line adds to each packet, in one direction.
type Estimate struct {
	Overhead int       `json:"overhead"` // bytes that the line adds to an IP packet
	MPU      int       `json:"mpu"`      // least bytes that a packet occupies; 0: not seen, all sizes are above it
	ATM      bool      `json:"atm"`      // cut into cells of 48 bytes, which occupy 53
	Rate     unit.Rate `json:"rate_bps"` // of the line's own bytes
	// The overhead lies between these with 99 %.
	Low  float64 `json:"overhead_low"`
	High float64 `json:"overhead_high"`
	Sure bool    `json:"sure"`
	// Why it is not sure; zero if it is.
	Why reason.Reason `json:"why,omitzero"`
	// Time per packet by size, as measured; for a picture.
	Sizes []SizeTime `json:"sizes,omitempty"`
}

// A SizeTime is the time that a packet of a size occupies the line.
type SizeTime struct {
	Size unit.Size `json:"ip_bytes"`
	Us   float64   `json:"time_us"`
}

// Wire returns the bytes that an IP packet of n bytes occupies on the line.
func (e Estimate) Wire(n unit.Size) unit.Size {
	n = max(n+unit.Size(e.Overhead), unit.Size(e.MPU))
	if e.ATM {
		return (n + cellData - 1) / cellData * cellBytes
	}
	return n
}

// ATM's cells.
const (
	cellData  = 48
	cellBytes = 53
)

// What makes an answer sure. TestGrid finds each of them.
const (
	draws      = 200   // of the bootstrap
	fewTrains  = 60    // less say nothing of their own noise
	fewSizes   = 12    // of different packets
	fewPackets = 6     // that arrived of a train: fewer have no middle
	fullBy     = 1.05  // arrivals are that much farther apart than departures where the line is full
	offByte    = 0.2   // the estimate is no farther from a whole byte
	offCell    = 0.2   // a size is no farther from a whole cell
	agreeByte  = 0.003 // passes differ by less, noise included: others' packets shift the overhead by up to 60 bytes × that
	agreeCell  = 0.01  // the same where a size must only be told from the next cell, and the rate shifts
	evenCell   = 0.03  // with cells, trains differ by less from the fit: steps are so high that others' packets hide in them
	strong     = 30    // N ln(ratio of squares) by which another kind of framing is not chance
	// A bootstrap of k values knows a variance by (k−1)/k; a size has about four trains.
	widen = 1.155
)

// Estimated estimates the framing of a line from trains. The same trains and the
// same random numbers give the same estimate.
func Estimated(trains []Train, rng *rand.Rand) Estimate {
	t := tabulate(trains)
	if len(t.rows) < fewTrains || len(t.sizes) < fewSizes {
		return Estimate{Why: reason.Of(reason.FramingFew, "trains", len(t.rows), "least", fewTrains)}
	}
	size, full := t.full()
	if full {
		t.dropUnqueued()
	}
	t.dropOutliers()
	all := t.sums(t.rows)
	f := all.best()
	e := f.estimate()
	e.Sizes = all.times()
	alike := e.bootstrap(t, f, rng)
	ratio, noise, uneven := t.passes(f)
	agree := agreeByte
	if f.cells {
		agree = agreeCell
	}
	whole := math.Round(f.overhead)
	exact := e.Low > whole-0.5 && e.High < whole+0.5
	switch {
	case t.policed(f):
		e.Why = reason.Of(reason.FramingPoliced)
	case !full:
		e.Why = reason.Of(reason.FramingNotFull, "bytes", int(size))
	case math.Abs(ratio-1) > max(agree, 3*noise):
		e.Why = reason.Of(reason.FramingOthers, "share", math.Abs(ratio-1))
	case math.Abs(ratio-1)+2*noise > agree, !exact, !alike, f.cells && uneven > evenCell:
		e.Why = reason.Of(reason.FramingNoisy, "low", e.Low, "high", e.High)
	case !f.cells && math.Abs(f.overhead-whole) > offByte, !all.fits(f), whole < 0 || whole > maxOverhead:
		e.Why = reason.Of(reason.FramingNoFit)
	default:
		e.Sure = true
	}
	return e
}

// maxOverhead is the most that is looked for: more than any stack of tunnels here.
const maxOverhead = 127

// estimate is the fit as an answer.
func (f fit) estimate() Estimate {
	e := Estimate{Overhead: int(math.Round(f.overhead)), ATM: f.cells, Low: f.overhead, High: f.overhead, Rate: unit.Rate(8 / f.perByte)}
	if f.kink > 0 {
		e.MPU = int(f.kink) + e.Overhead
	}
	return e
}

// bootstrap sets the interval, and reports whether all draws give the same kind
// of framing and the same least packet, with cells also the same overhead.
func (e *Estimate) bootstrap(t *table, f fit, rng *rand.Rand) (alike bool) {
	alike = true
	overheads := make([]float64, draws)
	for i := range overheads {
		g := t.sums(t.drawn(rng)).best()
		overheads[i] = f.overhead + widen*(g.overhead-f.overhead)
		alike = alike && g.cells == f.cells && g.kink == f.kink && (!f.cells || g.overhead == f.overhead)
	}
	slices.Sort(overheads)
	e.Low, e.High = min(overheads[draws/200], f.overhead), max(overheads[draws-1-draws/200], f.overhead)
	if all := t.sums(t.rows); f.cells { // which size begins a cell is not known where no train of it came
		for overhead := range t.cells {
			if !all.better(f, all.steps(overhead)) {
				e.Low, e.High = min(e.Low, float64(overhead)), max(e.High, float64(overhead))
			}
		}
	}
	return alike
}

// A row is a train that counts.
type row struct {
	size     int // its place in table.sizes
	pass     int
	packets  float64
	seconds  float64 // that they took
	gaps     [2]float64
	counts   [2]float64
	lag, end float64 // behind the sender, of its first and its last packet
}

// A table is all trains that count, by size.
type table struct {
	sizes []float64 // ascending
	rows  []row     // by size
	of    [][2]int  // of each size: its rows, from and to
	lost  float64   // share of packets
	// cells is how many bytes of cells a packet of each size fills, by overhead.
	cells [maxOverhead + 1][]float64
}

func tabulate(trains []Train) *table {
	t := &table{}
	place := map[unit.Size]int{}
	for _, x := range trains {
		place[x.Size] = 0
	}
	var sizes []unit.Size
	for s := range place {
		sizes = append(sizes, s)
	}
	slices.Sort(sizes)
	for i, s := range sizes {
		place[s] = i
		t.sizes = append(t.sizes, float64(s))
	}
	sent, came := 0, 0
	for _, x := range trains {
		sent, came = sent+x.Sent.Packets, came+x.Came.Received
		from, to := x.Came.Marks[1], x.Came.Marks[probe.RunMarks-1]
		if x.Came.Received < fewPackets || x.Sent.Packets < 2 || to <= from {
			continue
		}
		n := x.Came.Received - 1
		t.rows = append(t.rows, row{
			size: place[x.Size], pass: x.Pass,
			packets: float64(n - x.Came.Mark(1)), seconds: to.Sub(from).Seconds(),
			gaps:   [2]float64{x.Sent.Last.Sub(x.Sent.First).Seconds(), to.Sub(x.Came.Marks[0]).Seconds()},
			counts: [2]float64{float64(x.Sent.Packets - 1), float64(n)},
			lag:    x.Came.Marks[0].Sub(x.Sent.First).Seconds(), end: to.Sub(x.Sent.Last).Seconds(),
		})
	}
	slices.SortStableFunc(t.rows, func(a, b row) int { return a.size - b.size })
	for overhead := range t.cells {
		for _, n := range t.sizes {
			t.cells[overhead] = append(t.cells[overhead], cellBytes*math.Ceil((n+float64(overhead))/cellData))
		}
	}
	t.lost = 1 - float64(came)/float64(max(1, sent))
	t.index()
	return t
}

// index notes which rows each size has.
func (t *table) index() {
	t.of = make([][2]int, len(t.sizes))
	for i, r := range t.rows {
		if t.of[r.size][1] == 0 {
			t.of[r.size][0] = i
		}
		t.of[r.size][1] = i + 1
	}
}

// dropOutliers leaves out the few trains that something came between: those more than five
// usual deviations beside the middle one of their size, and more than a hundredth of their
// time; at most a tenth. A fit is no judge of them: one that is wrong about a size would leave
// out all of its trains, and then be right.
func (t *table) dropOutliers() {
	middle := make([]float64, len(t.sizes)) // seconds per packet
	for i, of := range t.of {
		var each []float64
		for _, r := range t.rows[of[0]:of[1]] {
			each = append(each, r.seconds/r.packets)
		}
		if slices.Sort(each); len(each) > 0 {
			middle[i] = each[(len(each)-1)/2] // of two the shorter: what comes between takes time
		}
	}
	off := make([]float64, len(t.rows))
	for i, r := range t.rows {
		off[i] = math.Abs(r.seconds - r.packets*middle[r.size])
	}
	sorted := slices.Sorted(slices.Values(off))
	bound := max(5*1.4826*sorted[len(sorted)/2], sorted[len(sorted)*9/10])
	kept := t.rows[:0:0]
	for i, r := range t.rows {
		if off[i] <= max(bound, r.seconds/100) {
			kept = append(kept, r)
		}
	}
	t.rows = kept
	t.index()
}

// drawn draws as many trains again as each size has.
func (t *table) drawn(rng *rand.Rand) []row {
	out := make([]row, 0, len(t.rows))
	for _, of := range t.of {
		for range of[1] - of[0] {
			out = append(out, t.rows[of[0]+rng.IntN(of[1]-of[0])])
		}
	}
	return out
}

// full reports whether packets of each size came slower than they were sent, in half of its
// trains: a sender that was held up once is not too slow. If not, it returns the first
// size of which they did not.
func (t *table) full() (size float64, full bool) {
	for i, of := range t.of {
		var slower []float64
		for _, r := range t.rows[of[0]:of[1]] {
			slower = append(slower, r.slower())
		}
		if slices.Sort(slower); len(slower) > 0 && slower[len(slower)/2] < fullBy {
			return t.sizes[i], false
		}
	}
	return 0, true
}

// slower returns by what packets of a train came farther apart than they were sent.
func (r row) slower() float64 { return r.gaps[1] / r.counts[1] * r.counts[0] / r.gaps[0] }

// dropUnqueued leaves out the trains that came as fast as they were sent: the line was idle
// before, and let some pass at once, as token buckets do.
func (t *table) dropUnqueued() {
	t.rows = slices.DeleteFunc(t.rows, func(r row) bool { return r.slower() < fullBy })
	t.index()
}

// policed reports whether packets were lost and the others hardly waited: a
// policer has no queue.
func (t *table) policed(f fit) bool {
	least, most := math.Inf(1), math.Inf(-1)
	for _, r := range t.rows {
		least, most = min(least, r.lag, r.end), max(most, r.lag, r.end)
	}
	return t.lost > 0.05 && most-least < 4*f.time(t.sizes[len(t.sizes)-1])
}

// passes returns how much slower the first pass's packets came than the last's,
// 1 if the same, the standard error of that, and by which share trains differ from the fit.
func (t *table) passes(f fit) (ratio, noise, uneven float64) {
	var xy, xx [2]float64
	sse := 0.0
	for _, r := range t.rows {
		x := r.packets * f.time(t.sizes[r.size])
		p := min(r.pass, 1)
		xy[p] += x * r.seconds
		xx[p] += x * x
		sse += (r.seconds - x) * (r.seconds - x)
		uneven += (r.seconds/x - 1) * (r.seconds/x - 1)
	}
	if xx[0] == 0 || xx[1] == 0 {
		return 1, math.Inf(1), 0
	}
	trains := float64(len(t.rows))
	noise = math.Sqrt(sse / trains * (1/xx[0] + 1/xx[1]))
	return (xy[0] / xx[0]) / (xy[1] / xx[1]), noise, math.Sqrt(uneven / trains)
}

// times returns the time per packet of each size.
func (s sums) times() []SizeTime {
	out := make([]SizeTime, 0, len(s.n))
	for i, n := range s.n {
		if s.mm[i] > 0 {
			out = append(out, SizeTime{Size: unit.Size(n), Us: float64(time.Duration(s.ms[i]/s.mm[i]*1e9).Nanoseconds()) / 1e3})
		}
	}
	return out
}
