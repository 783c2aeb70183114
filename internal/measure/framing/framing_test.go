package framing

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"unbloat/internal/measure/probe"
	"unbloat/reason"
	"unbloat/testkit/await"
	"unbloat/unit"
)

// A wire is what a line does with a packet; the test's own arithmetic.
type wire struct {
	name          string
	overhead, mpu int
	atm           bool
	share         float64 // of the rate that carries data; 0: all
}

func (w wire) bytes(ip int) int {
	n := ip + w.overhead
	if n < w.mpu {
		n = w.mpu
	}
	if w.atm {
		cells := n / 48
		if n%48 > 0 {
			cells++
		}
		return 53 * cells
	}
	return n
}

// wires are the framings of the grid.
func wires() []wire {
	return []wire{
		{name: "ATM LLC bridged", overhead: 32, atm: true},
		{name: "ATM LLC PPPoE", overhead: 40, atm: true},
		{name: "ATM VC bridged", overhead: 24, atm: true},
		{name: "ATM VC PPPoA", overhead: 10, atm: true},
		{name: "PTM with VLAN", overhead: 26, share: 64.0 / 65},
		{name: "DOCSIS", overhead: 18, mpu: 64},
		{name: "Ethernet 14", overhead: 14},
		{name: "Ethernet 18", overhead: 18, mpu: 64},
		{name: "Ethernet 38", overhead: 38, mpu: 84},
		{name: "Ethernet 42", overhead: 42},
		{name: "PPPoE 30", overhead: 30},
		{name: "PPPoE 34", overhead: 34, mpu: 68},
	}
}

// A disturbance is what else happens on a line.
type disturbance struct {
	name    string
	jitter  time.Duration // after the queue, at most; packets keep their order
	cross   float64       // share of the line that others send, in packets of 100 to 1500 bytes
	regular bool          // others' packets come at even distances, as a call's do
	loss    float64       // after the queue
	policer bool          // in place of the queue
	tick    time.Duration // a radio that sends what waits every tick
	slowest time.Duration // of a sender, a packet
	buffer  time.Duration // of the line, at least eight full packets; 0: 250 ms
	stamps  float64       // seconds that a kernel's stamps are late; 0: 15 µs
	thought float64       // what the line was thought to carry, of what it does; 0: exactly that
}

// says is what a reader of the grid's table is told.
func (d disturbance) says() string {
	switch {
	case d.jitter > 0:
		return fmt.Sprintf("jitter of %v", d.jitter)
	case d.cross > 0 && d.regular:
		return fmt.Sprintf("others send %.0f %%, at even distances", 100*d.cross)
	case d.cross > 0:
		return fmt.Sprintf("others send %.0f %%", 100*d.cross)
	case d.loss > 0:
		return fmt.Sprintf("loss of %.1f %%", 100*d.loss)
	case d.policer:
		return "a policer in place of a queue"
	case d.tick > 0:
		return fmt.Sprintf("a radio that sends every %v", d.tick)
	case d.slowest > 0:
		return fmt.Sprintf("a sender that takes %v a packet", d.slowest)
	}
	return d.name
}

// simulate sends both passes over a line and returns what a receiver would know. It
// shares no code with the estimator.
func simulate(w wire, d disturbance, rate unit.Rate, seed uint64) []Train {
	rng := rand.New(rand.NewPCG(seed, 7))
	perByte := 8 / float64(rate)
	if w.share > 0 {
		perByte /= w.share
	}
	var out []Train
	now := 0.0
	buffer := max(cmp.Or(d.buffer, 250*time.Millisecond).Seconds(), 8*1500*perByte)
	for pass := range Passes {
		trains := Trains(rate.Scale(cmp.Or(d.thought, 1)), HeadersIPv4, pass, rng)
		source := probe.NewTrainSource(unit.Instant(now*1e9), trains)
		var sink probe.TrainSink
		free := now // when the line has sent all
		tokens, refilled := 20e3*perByte, now
		other, arrived := now+rng.ExpFloat64()*0.01, 0.0
		clock := unit.Instant(now * 1e9)
		for {
			b, next := source.Poll(clock)
			if b == nil && next == 0 {
				break
			}
			if b == nil {
				clock = next
				continue
			}
			at := float64(clock) / 1e9
			for d.cross > 0 && other < at { // others' packets before ours
				size := 100 + rng.IntN(1401)
				gap := float64(size+w.overhead) * perByte / d.cross
				if d.regular {
					size, gap = 800, float64(800+w.overhead)*perByte/d.cross
				} else {
					gap *= rng.ExpFloat64()
				}
				if free-other < buffer {
					free = max(free, other) + float64(w.bytes(size))*perByte
				}
				other += gap
			}
			takes := float64(w.bytes(len(b)+28)) * perByte
			leaves := at
			switch {
			case d.policer:
				tokens = min(tokens+at-refilled, 20e3*perByte)
				if refilled = at; tokens < takes {
					leaves = -1
				} else {
					tokens -= takes
				}
			case free-at >= buffer:
				leaves = -1
			default:
				free = max(free, at) + takes
				leaves = free
			}
			if leaves >= 0 && rng.Float64() >= d.loss {
				if d.tick > 0 {
					leaves = math.Ceil(leaves/d.tick.Seconds()) * d.tick.Seconds()
				}
				arrived = max(arrived, leaves+0.01+rng.Float64()*d.jitter.Seconds())
				stamp := arrived + math.Abs(rng.NormFloat64())*cmp.Or(d.stamps, 15e-6) // of a kernel
				sink.Receive(unit.Instant(stamp*1e9), len(b))
			}
			clock = clock.Add(d.slowest)
		}
		out = append(out, Join(pass, HeadersIPv4, trains, source.Sent(), sink.Runs())...)
		now = max(free, float64(clock)/1e9) + 1
	}
	return out
}

func estimate(w wire, d disturbance, rate unit.Rate, seed uint64) Estimate {
	return Estimated(simulate(w, d, rate, seed), rand.New(rand.NewPCG(seed, 1)))
}

// wrong says what is not the line's; "" if nothing.
func wrong(e Estimate, w wire, rate unit.Rate) string {
	share := w.share
	if share == 0 {
		share = 1
	}
	mpu := w.mpu
	if mpu <= w.overhead+28+3 || w.atm { // no size lies below it
		mpu = 0
	}
	if e.Overhead != w.overhead || e.ATM != w.atm || e.MPU != mpu || math.Abs(float64(e.Rate)/float64(rate)/share-1) > 0.03 {
		return fmt.Sprintf("said overhead %d, mpu %d, atm %v, %v; it is %d, %d, %v, %v", e.Overhead, e.MPU, e.ATM, e.Rate, w.overhead, mpu, w.atm, rate)
	}
	return ""
}

// The grid: framings × rates × seeds × disturbances. Sure in nine of ten quiet
// cases, with the exact byte; of all that are sure none is wrong. By day one seed, and
// one rate of what is beside the four.
func TestGrid(t *testing.T) {
	await.NotShort(t)
	seeds := uint64(1)
	if os.Getenv("UNBLOAT_LONG") != "" {
		seeds = 5
	}
	// `make compare` takes what begins with ## or | into docs/evidence/framing.md.
	t.Log("## In the simulator: `UNBLOAT_LONG=1 go test -v -run TestGrid ./internal/measure/framing`")
	t.Log("| the line | sure | wrong of these |")
	t.Log("| --- | --- | --- |")
	rates := []unit.Rate{700 * unit.KbitPerSecond, 10 * unit.MbitPerSecond, 100 * unit.MbitPerSecond}
	for i, d := range []disturbance{
		{name: "quiet"}, {name: "jitter", jitter: 5 * time.Millisecond}, {name: "cross", cross: 0.2}, {name: "loss", loss: 0.005},
		{name: "quiet, short buffer", buffer: 40 * time.Millisecond}, {name: "quiet, long buffer", buffer: 3 * time.Second}, {name: "quiet, exact stamps", stamps: 1e-9},
		{name: "quiet, slower than thought", thought: 1.15}, {name: "quiet, faster than thought", thought: 0.87},
		{name: "call", cross: 0.05, regular: true}, {name: "calls", cross: 0.2, regular: true}, {name: "trickle", cross: 0.02},
		{name: "policer", policer: true}, {name: "radio", tick: 4 * time.Millisecond}, {name: "slow sender", slowest: 40 * time.Microsecond},
	} {
		sure, all, not := 0, 0, 0
		why := map[reason.Code]int{}
		for _, w := range wires() {
			of := rates
			if i >= 4 && seeds == 1 {
				of = rates[1:2]
			}
			for _, rate := range of {
				for seed := range seeds {
					e := estimate(w, d, rate, seed+1)
					all++
					why[e.Why.Code]++
					if !e.Sure {
						continue
					}
					sure++
					if s := wrong(e, w, rate); s != "" {
						not++
						t.Errorf("%s, %s at %v, seed %d: sure and wrong: %s (%.2f to %.2f)", d.name, w.name, rate, seed+1, s, e.Low, e.High)
					}
				}
			}
		}
		t.Logf("| %s | %d of %d | %d |", d.says(), sure, all, not)
		t.Logf("%s: %v", d.name, why)
		if strings.HasPrefix(d.name, "quiet") && sure*10 < all*9 {
			t.Errorf("%s: %d of %d sure, nine of ten should be", d.name, sure, all)
		}
		if d.policer && sure > 0 {
			t.Errorf("%s: sure of %d", d.name, sure)
		}
	}
}

// Where nothing came of two sizes next to each other, with cells what begins there is not
// known; and a size of which most trains were disturbed does not bring its neighbours down.
func TestSizesThatDidNotCome(t *testing.T) {
	for _, w := range wires()[:8] {
		trains := simulate(w, disturbance{}, 10*unit.MbitPerSecond, 1)
		for n := unit.Size(28); n < 76; n++ {
			some := slices.DeleteFunc(slices.Clone(trains), func(x Train) bool { return x.Size == n || x.Size == n+1 })
			if e := Estimated(some, rand.New(rand.NewPCG(1, 1))); e.Sure {
				if s := wrong(e, w, 10*unit.MbitPerSecond); s != "" {
					t.Errorf("%s without sizes %d and %d: sure and wrong: %s", w.name, n, n+1, s)
				}
			} else if begins := (w.overhead + int(n)) % 48; w.atm && begins > 1 && begins < 46 {
				t.Errorf("%s without sizes %d and %d: not sure: %s; no cell begins there", w.name, n, n+1, e.Why)
			}
			if n%8 > 0 {
				continue
			}
			late := slices.Clone(trains)
			for i := range late {
				if late[i].Size == n && late[i].Pass == 0 {
					late[i].Came.Marks[probe.RunMarks-1] += unit.Instant(time.Duration(n) * time.Millisecond)
				}
			}
			if e := Estimated(late, rand.New(rand.NewPCG(1, 1))); e.Sure {
				if s := wrong(e, w, 10*unit.MbitPerSecond); s != "" {
					t.Errorf("%s with trains of %d bytes that came late: sure and wrong: %s", w.name, n, s)
				}
			}
		}
	}
}

// A sender that is held up once in a train has not been too slow for the line.
func TestSenderHeldUpOnce(t *testing.T) {
	w := wires()[1]
	trains := simulate(w, disturbance{}, 10*unit.MbitPerSecond, 1)
	held := false
	for i := range trains {
		x := &trains[i]
		if x.Size != 52 {
			continue
		}
		// All came, slower than they were sent by a third.
		x.Sent.Packets = x.Came.Received
		x.Sent.Last = x.Sent.First.Add(x.Came.Marks[probe.RunMarks-1].Sub(x.Came.Marks[0]) * 3 / 4)
		if !held {
			held = true
			x.Sent.First -= unit.Instant(time.Second)
			x.Came.Marks[0] -= unit.Instant(time.Second)
		}
	}
	if e := Estimated(trains, rand.New(rand.NewPCG(1, 1))); !held || !e.Sure || wrong(e, w, 10*unit.MbitPerSecond) != "" {
		t.Errorf("%+v", e)
	}
}

// Law: only the rate knows how fast a clock goes.
func TestScale(t *testing.T) {
	for _, w := range wires()[3:6] {
		trains := simulate(w, disturbance{jitter: 100 * time.Microsecond}, 4*unit.MbitPerSecond, 3)
		for _, by := range []int64{2, 7} {
			scaled := slices.Clone(trains)
			for i := range scaled {
				x := &scaled[i]
				for _, at := range []*unit.Instant{&x.Sent.First, &x.Sent.Last, &x.Came.Marks[0], &x.Came.Marks[1], &x.Came.Marks[2], &x.Came.Marks[3], &x.Came.Marks[4]} {
					*at *= unit.Instant(by)
				}
			}
			a, b := Estimated(trains, rand.New(rand.NewPCG(1, 1))), Estimated(scaled, rand.New(rand.NewPCG(1, 1)))
			if a.Overhead != b.Overhead || a.MPU != b.MPU || a.ATM != b.ATM || a.Sure != b.Sure || math.Abs(a.Low-b.Low) > 1e-6 ||
				math.Abs(float64(b.Rate)*float64(by)/float64(a.Rate)-1) > 1e-5 {
				t.Errorf("%s, slower by %d: %+v, then %+v", w.name, by, a, b)
			}
		}
	}
}

// Law: more noise, a wider interval; and it holds what is true.
func TestNoiseWidens(t *testing.T) {
	for _, w := range wires()[4:6] { // with cells an overhead is exact or not known
		before := 0.0
		for _, jitter := range []time.Duration{0, 200 * time.Microsecond, 2 * time.Millisecond, 20 * time.Millisecond} {
			width, holds := 0.0, 0
			const seeds = 3
			for seed := range uint64(seeds) {
				e := estimate(w, disturbance{jitter: jitter}, 10*unit.MbitPerSecond, seed+1)
				width += (e.High - e.Low) / seeds
				if o := float64(w.overhead); e.Low-1 <= o && o <= e.High+1 {
					holds++
				}
			}
			if width <= before {
				t.Errorf("%s: with %v of jitter the interval is %.3f bytes wide, with less %.3f", w.name, jitter, width, before)
			}
			if before = width; jitter < 20*time.Millisecond && holds < seeds {
				t.Errorf("%s: with %v of jitter %d of %d intervals hold %d bytes", w.name, jitter, holds, seeds, w.overhead)
			}
		}
	}
}

// Trains keep to their bounds, and what is nothing is not sure.
func TestTrains(t *testing.T) {
	for _, rate := range []unit.Rate{LeastRate, 700 * unit.KbitPerSecond, 10 * unit.MbitPerSecond, 100 * unit.MbitPerSecond, MostRate} {
		for _, headers := range []unit.Size{HeadersIPv4, HeadersIPv6} {
			var bytes unit.Size
			var takes time.Duration
			for pass := range Passes {
				trains := Trains(rate, headers, pass, rand.New(rand.NewPCG(1, 2)))
				if err := probe.CheckTrains(trains); err != nil {
					t.Errorf("%v, pass %d: %v", rate, pass, err)
				}
				for _, x := range trains {
					bytes += unit.Size(x.Packets) * (x.Size + headers + sentHeader)
					takes += time.Duration(x.Packets) * x.Gap
				}
			}
			if bytes > 15*unit.MB || takes > 11*time.Second {
				t.Errorf("%v: %v in %v; a direction may have 15 MB and 11 s", rate, bytes, takes)
			}
		}
	}
	for _, trains := range [][]Train{nil, make([]Train, 200)} {
		if e := Estimated(trains, rand.New(rand.NewPCG(1, 1))); e.Sure || e.Why.Code != reason.FramingFew {
			t.Errorf("of %d empty trains: %+v", len(trains), e)
		}
	}
}
