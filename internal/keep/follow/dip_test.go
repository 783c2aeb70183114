package follow

import (
	"testing"
	"time"

	"unbloat/unit"
)

// On a line that dips again and again the way up goes back to what it had, as the way
// down does; on one that was steady until now a fall is taken for one.
func TestDipsUpwards(t *testing.T) {
	f := newFluid(t, usual())
	f.load = [2]float64{0, 1e9}
	f.run(10 * time.Second)
	f.capacity[Up] = 3e6
	f.run(800 * time.Millisecond)
	for range 40 {
		f.run(25 * time.Millisecond)
		if rate := f.last.Rate[Up].Mbit(); rate > 4 {
			t.Errorf("%.1f Mbit/s after a fall to 3 on a line that was steady", rate)
		}
	}

	const phases = 8
	mean := 0.0
	for phase := range phases {
		f := newFluid(t, usual())
		f.load = [2]float64{0, 1e9}
		f.run(10*time.Second + time.Duration(phase)*30*time.Millisecond)
		var bytes, carried float64
		for i := range 60 {
			if i == 20 {
				bytes, carried = f.bytes[Up], 0
			}
			// A level that lasts for a second, with a dip of a tenth of one in it.
			level := []float64{8e6, 6e6, 4.5e6, 6e6}[i%4]
			for _, x := range []struct{ share, seconds float64 }{{1, 0.5}, {0.2, 0.1}, {1, 0.4}} {
				f.capacity[Up] = x.share * level
				f.run(time.Duration(x.seconds * 1e9))
				carried += x.share * x.seconds * level
			}
		}
		mean += (f.bytes[Up] - bytes) * 8 / carried / phases
	}
	t.Logf("%.3f of what the line carried", mean)
	if mean < 0.885 {
		t.Errorf("%.3f of what the line carried", mean)
	}
}

// A reflector that loses more than others is noisy. What all lose, the line loses.
func TestLossOfAll(t *testing.T) {
	f := newFluid(t, usual())
	f.load = [2]float64{1e9, 0}
	out := false
	asked := 0
	f.answer = func(_ unit.Instant, i int, _ *Delay) bool {
		if i == 4 {
			asked++
		}
		return !out && (i != 4 || asked%6 == 0)
	}
	f.run(time.Minute)
	if x := &f.c.sources.all[4]; !x.noisy {
		t.Errorf("a reflector that loses %.2f alone is not noisy", x.lost)
	}
	out = true
	f.run(20 * time.Second)
	out = false
	f.run(3 * time.Second)
	for i := range f.c.sources.reflectors {
		if x := &f.c.sources.all[i]; x.noisy && i != 4 {
			t.Errorf("reflector %d is noisy, though the line lost the %.2f", i, x.lost)
		}
	}
}

// While those that are not noisy have not answered lately, the others are heard: a
// controller is blind only when nobody answers.
func TestNoisyBetterThanNobody(t *testing.T) {
	c, err := New(usual(), 0)
	if err != nil {
		t.Fatal(err)
	}
	now := unit.Instant(0)
	for round := range 40 {
		for i := range 6 {
			now = now.Add(50 * time.Millisecond)
			if round == 39 && i == 0 {
				continue // one of the two good ones did not answer the last time
			}
			c.Delay(Delay{At: now, Source: uint32(i), RTT: 30 * time.Millisecond, OneWay: true, Up: 15 * time.Millisecond, Down: 15 * time.Millisecond})
		}
	}
	for i := range 6 {
		c.sources.all[i].noisy = i != 0 && i != 2
	}
	now = now.Add(400 * time.Millisecond)
	if v := c.sources.decide(now, DefaultThreshold); !v.known {
		t.Errorf("nothing is known, though five have answered within the last %v", now.Sub(c.heard)+250*time.Millisecond)
	}
}
