package household

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"unbloat/internal/measure/verdict"
	"unbloat/unit"
)

const ms = unit.Instant(time.Millisecond)

// The E-model of G.107 for speech: nothing but the delay of an idle line, the
// knee above which people begin to speak at once, and loss.
func TestSound(t *testing.T) {
	for _, c := range []struct {
		delayMs, loss, r, mos float64
	}{
		{0, 0, 93.2, 4.41},
		{100, 0, 90.8, 4.36},
		{177.3, 0, 88.9, 4.30},
		{400, 0, 59.1, 3.05}, // 0.024 × 400 + 0.11 × 222.7 = 34.1
		{0, 0.05, 77.4, 3.92},
		{0, 0.251, 45.7, 2.36}, // half of 95
	} {
		if v := verdict.Sound(c.delayMs, c.loss); math.Abs(v.R-c.r) > 0.06 || math.Abs(v.MOS-c.mos) > 0.01 {
			t.Errorf("%v ms, %v lost: R %v, MOS %v; want %v and %v", c.delayMs, c.loss, v.R, v.MOS, c.r, c.mos)
		}
	}
}

// A call's sound: an idle line; packets that never come; a few that come too
// late to wait for, which are lost rather than make all others wait; and a bad
// stretch, which the worst window shows and the mean dilutes.
func TestHear(t *testing.T) {
	const n = 1500 // 30 s
	call := func(delay func(i int) (unit.Instant, bool)) (mean, worst float64) {
		var all []Heard
		for i := range n {
			h := Heard{Sent: unit.Instant(i+1) * 20 * ms}
			if d, ok := delay(i); ok {
				h.Arrived = h.Sent + d
			}
			all = append(all, h)
		}
		return Hear(all, 20*ms, (n+1)*20*ms)
	}
	for _, c := range []struct {
		name        string
		delay       func(i int) (unit.Instant, bool)
		mean, worst float64
	}{
		{"idle", func(int) (unit.Instant, bool) { return 10 * ms, true }, 4.39, 4.39},
		{"nothing comes", func(int) (unit.Instant, bool) { return 0, false }, 1, 1},
		{"every tenth is lost", func(i int) (unit.Instant, bool) { return 10 * ms, i%10 != 0 }, verdict.Sound(30, 0.1).MOS, verdict.Sound(30, 0.1).MOS},
		{"one of 250 takes a second", func(i int) (unit.Instant, bool) {
			if i%250 == 7 {
				return 1000 * ms, true
			}
			return 10 * ms, true
		}, verdict.Sound(30, 1/250.0).MOS, verdict.Sound(30, 1/250.0).MOS},
		{"five seconds of silence", func(i int) (unit.Instant, bool) { return 10 * ms, i < 500 || i >= 750 }, (5*4.39 + 1) / 6, 1},
	} {
		mean, worst := call(c.delay)
		if math.Abs(mean-c.mean) > 0.011 || math.Abs(worst-c.worst) > 0.011 {
			t.Errorf("%s: mean %.2f, worst %.2f; want %.2f and %.2f", c.name, mean, worst, c.mean, c.worst)
		}
	}
}

// A freeze is a gap of more than max(3 × mean, mean + 150 ms); at 30 frames a
// second that is 183 ms, at 5 it is 600.
func TestFreezes(t *testing.T) {
	run := func(every unit.Instant, gap unit.Instant) (count int, frozen time.Duration) {
		var shown []unit.Instant
		at := unit.Instant(0)
		for range 60 {
			at += every
			shown = append(shown, at)
		}
		shown = append(shown, at+gap)
		return Freezes(shown, 0, at+gap+ms)
	}
	for _, c := range []struct {
		every, gap unit.Instant
		count      int
		frozen     unit.Instant
	}{
		{33 * ms, 182 * ms, 0, 0},
		{33 * ms, 184 * ms, 1, 184 * ms},
		{100 * ms, 299 * ms, 0, 0},
		{100 * ms, 301 * ms, 1, 301 * ms},
	} {
		if count, frozen := run(c.every, c.gap); count != c.count || frozen != time.Duration(c.frozen) {
			t.Errorf("frames each %d ms, gap %d ms: %d freezes, %v; want %d, %d ms", c.every/ms, c.gap/ms, count, frozen, c.count, c.frozen/ms)
		}
	}
	if count, frozen := Freezes(nil, 0, 5000*ms); count != 1 || frozen != 5*time.Second {
		t.Errorf("no picture at all: %d freezes, %v", count, frozen)
	}
	if count, frozen := Freezes([]unit.Instant{10 * ms, 40 * ms}, 0, 2000*ms); count != 1 || frozen != 1960*time.Millisecond {
		t.Errorf("a picture that stops: %d freezes, %v", count, frozen)
	}
	// A freeze that began before the window counts from its beginning.
	if count, frozen := Freezes([]unit.Instant{10 * ms, 40 * ms, 2000 * ms}, 1000*ms, 2010*ms); count != 1 || frozen != time.Second {
		t.Errorf("a freeze into the window: %d freezes, %v", count, frozen)
	}
}

// Of a freeze only the seconds of an outage of its own way are left out.
func TestLeaveOut(t *testing.T) {
	freeze := func(from, to unit.Instant) Freeze { return Freeze{from * ms, to * ms} }
	c := CallResult{
		Up:   CallWay{Frozen: []Freeze{freeze(1000, 3000), freeze(5000, 6000)}},
		Down: CallWay{Frozen: []Freeze{freeze(1500, 2500), freeze(8000, 9000)}},
	}
	c.LeaveOut([]Freeze{freeze(500, 1200), freeze(1500, 2000), freeze(6000, 7000)}, []Freeze{freeze(1000, 4000)})
	if c.Up.RoutedS != 2.3 || c.Down.RoutedS != 1 {
		t.Errorf("%.3f s up, %.3f s down; want 2.3 and 1", c.Up.RoutedS, c.Down.RoutedS)
	}
	if c.Up.Frozen != nil || c.Down.Frozen != nil {
		t.Error("the freezes themselves are kept")
	}
}

// film cuts frames into packets as RTP does, the sequence numbers wrapping.
func film(frames int, packets func(n int) (count int, key bool)) (out []Fragment) {
	seq := uint16(65530)
	for n := range frames {
		count, key := packets(n)
		for k := range count {
			out = append(out, Fragment{Seq: seq, First: k == 0, Last: k == count-1, Key: key, No: n, Bytes: 1000})
			seq++
		}
	}
	return out
}

func numbers(shown []Shown) (out []int) {
	for _, s := range shown {
		out = append(out, s.No)
	}
	return out
}

// Frames are shown when they are whole, in order: a packet that is sent again
// lets all that waited for it go. What does not come again needs a key frame,
// which is asked for once in half a second.
func TestViewer(t *testing.T) {
	packets := film(40, func(n int) (int, bool) {
		if n%20 == 0 {
			return 10, true
		}
		return 3, false
	})
	at := func(frame, k int) int { // the index of a packet
		i := 0
		for ; packets[i].No != frame || !packets[i].First; i++ {
		}
		return i + k
	}
	t.Run("all come", func(t *testing.T) {
		var v Viewer
		for i, f := range packets {
			v.Receive(unit.Instant(i)*ms, f)
		}
		if len(v.Shown) != 40 || v.Shown[0].Bytes != 10000 || v.Shown[1].Bytes != 3000 || len(v.waiting) != 0 || v.Wait(1e12) {
			t.Errorf("shown %v, %d wait", numbers(v.Shown), len(v.waiting))
		}
	})
	t.Run("out of order", func(t *testing.T) {
		shuffled := append([]Fragment(nil), packets...)
		random := rand.New(rand.NewPCG(1, 2))
		for i := 0; i+5 <= len(shuffled); i += 5 {
			random.Shuffle(5, func(a, b int) { shuffled[i+a], shuffled[i+b] = shuffled[i+b], shuffled[i+a] })
		}
		var v Viewer
		for i, f := range shuffled {
			v.Receive(unit.Instant(i)*ms, f)
			v.Receive(unit.Instant(i)*ms, f) // and twice
		}
		if len(v.Shown) != 40 {
			t.Errorf("shown %v", numbers(v.Shown))
		}
	})
	t.Run("one comes again", func(t *testing.T) {
		var v Viewer
		late := at(3, 1)
		for i, f := range packets[:at(8, 0)] {
			if i != late {
				v.Receive(unit.Instant(i)*ms, f)
			}
		}
		if got := numbers(v.Shown); len(got) != 3 {
			t.Errorf("shown %v without a packet of the fourth", got)
		}
		if v.Wait(unit.Instant(late)*ms + 400*ms) {
			t.Error("a key frame was asked for after 0.4 s")
		}
		v.Receive(400*ms, packets[late])
		if got := numbers(v.Shown); len(got) != 8 || v.Shown[7].At != 400*ms {
			t.Errorf("shown %v when it came", got)
		}
		if v.Wait(1e12) {
			t.Error("a key frame was asked for, though nothing is missing")
		}
	})
	t.Run("one never comes", func(t *testing.T) {
		var v Viewer
		lost := at(3, 2)
		asked := 0
		for i, f := range packets {
			now := unit.Instant(i) * 20 * ms
			if i != lost {
				v.Receive(now, f)
			}
			if v.Wait(now) {
				asked++
			}
		}
		got := numbers(v.Shown)
		if len(got) != 3+20 || got[2] != 2 || got[3] != 20 {
			t.Errorf("shown %v", got)
		}
		// The gap is known at the next packet, and stands for 49 packets of 20 ms,
		// until the key frame is whole.
		if asked != 2 || len(v.Asked) != 2 {
			t.Errorf("a key frame was asked for %d times", asked)
		}
	})
	t.Run("no key frame", func(t *testing.T) {
		var v Viewer
		for i, f := range packets[at(1, 0):at(20, 0)] {
			v.Receive(unit.Instant(i)*ms, f)
		}
		if len(v.Shown) != 0 || !v.Wait(1000*ms) {
			t.Errorf("shown %v, which nothing could decode", numbers(v.Shown))
		}
	})
}

// The camera keeps to its rate, whatever it is: key frames of ten times the
// mean are made up for. It makes one at the beginning, each ten seconds, and when
// asked, but no two within 300 ms.
func TestCamera(t *testing.T) {
	for _, rate := range []unit.Rate{150e3, 1500e3, 2500e3} {
		c := Camera{Random: rand.New(rand.NewPCG(4, 5))}
		var sum unit.Size
		keys := 0
		for n := range 30 * FramesPerSecond {
			size, key := c.Frame(time.Duration(n)*FrameLength, rate)
			sum += size
			if key {
				keys++
				if want := float64(rate) / 8 / FramesPerSecond * keyFactor; math.Abs(float64(size)-want) > 1 {
					t.Errorf("%v: a key frame of %d bytes, want %.0f", rate, size, want)
				}
			}
		}
		if got := float64(sum) * 8 / 30 / float64(rate); got < 0.98 || got > 1.02 || keys != 3 {
			t.Errorf("%v: %.3f of it, %d key frames", rate, got, keys)
		}
	}
	c := Camera{Random: rand.New(rand.NewPCG(4, 5))}
	var keys []int
	for n := range 60 {
		c.AskKey()
		if _, key := c.Frame(time.Duration(n)*FrameLength, 1e6); key {
			keys = append(keys, n)
		}
	}
	if len(keys) != 6 || keys[1]-keys[0] != 10 {
		t.Errorf("asked all the time, key frames are %v", keys)
	}
}

// What a game's player saw: frames that lack a packet, and those 50 ms slower
// than the fastest, are bad.
func TestPlay(t *testing.T) {
	var frames []PlayFrame
	for n := range 600 {
		made := unit.Instant(n+1) * unit.Instant(playLength)
		f := PlayFrame{Made: made, Whole: made + 12*ms}
		switch n {
		case 100:
			f.Whole = 0
		case 200:
			f.Whole = made + 12*ms + unit.Instant(playLate) + ms
		case 300:
			f.Whole = made + 12*ms + unit.Instant(playLate) - ms
		}
		frames = append(frames, f)
	}
	inputs := []Heard{{Sent: ms, Arrived: 11 * ms}, {Sent: 2 * ms}, {Sent: 3 * ms, Arrived: 13 * ms}, {Sent: 4 * ms, Arrived: 14 * ms}}
	r := Play(frames, inputs, 0, 601*unit.Instant(playLength))
	if r.Frames != 600 || r.Shown != 599 || r.Late != 1 || r.Freezes != 0 || r.InputLoss != 0.25 || math.Abs(r.Missed()-2.0/600) > 1e-9 {
		t.Errorf("%+v", r)
	}
}

// Flows of a load: a flow that has double its share for three seconds shows.
func TestShares(t *testing.T) {
	flow := func(rate func(second int) int64) (s verdict.Series) {
		s.Bin = 100 * time.Millisecond
		for i := range 300 {
			s.Bytes = append(s.Bytes, rate(i/10)/10)
		}
		return s
	}
	r := Shares([]verdict.Series{
		flow(func(int) int64 { return 125_000 }),
		flow(func(s int) int64 {
			if s >= 10 && s < 13 {
				return 250_000
			}
			return 125_000
		}),
	}, 0, 30_000*ms)
	if r.LeastBps != 1e6 || r.MostBps != 1.1e6 || r.PeakBps != 2e6 || r.OverS != 3 {
		t.Errorf("%+v", r)
	}
}
