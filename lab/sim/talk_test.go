package sim

import (
	"slices"
	"testing"
	"time"

	"unbloat/lab/aqm"
	"unbloat/unit"
)

// chatter sends frames of growing size each millisecond, and notes what it hears.
type chatter struct {
	sent  []unit.Instant
	size  unit.Size
	heard []int
	when  []unit.Instant
	last  bool // is not to be woken again
}

func (c *chatter) Wake(now unit.Instant) ([]unit.Size, unit.Instant) {
	c.sent = append(c.sent, now, now)
	if c.last {
		return []unit.Size{c.size, c.size}, now
	}
	return []unit.Size{c.size, c.size}, now.Add(time.Millisecond)
}

func (c *chatter) Hear(now unit.Instant, n int) {
	c.heard, c.when = append(c.heard, n), append(c.when, now)
}

// Each end of a talk hears the other's frames in order, half a round trip and
// the line's time later; a router sees both ways as one flow, which the home
// opened. What does not fit the modem is never heard of.
func TestTalk(t *testing.T) {
	n := line(t, 100e6, 10e6, 20*time.Millisecond, 100e3, 100e3, 1)
	home, away := &chatter{size: 100}, &chatter{size: 1000}
	if err := n.AddTalk(TalkParams{Host: 3, Home: home, Away: away, Start: 5e6, Stop: 105e6, Port: 3478}); err != nil {
		t.Fatal(err)
	}
	var seen [2]Seen
	for d, rate := range []unit.Rate{9e6, 90e6} {
		if err := n.Shape(Direction(d), Shaping{
			Mark: func(_ unit.Instant, s Seen) uint8 { seen[d] = s; return 0 },
			Queue: func(drop aqm.DropFunc) (aqm.Queue, error) {
				p := aqm.DefaultCake(rate)
				p.Drop = drop
				return aqm.NewCake(p)
			}}); err != nil {
			t.Fatal(err)
		}
	}
	n.RunUntil(1e9)
	for _, c := range []struct{ talks, hears *chatter }{{home, away}, {away, home}} {
		if len(c.talks.sent) != 200 || len(c.hears.heard) != 200 || !slices.IsSorted(c.hears.heard) {
			t.Fatalf("%d frames sent, heard %v", len(c.talks.sent), c.hears.heard)
		}
		for i, at := range c.hears.when {
			if d := at.Sub(c.talks.sent[i]); d < 10*time.Millisecond || d > 12*time.Millisecond {
				t.Errorf("frame %d took %v", i, d)
			}
		}
	}
	up, down := seen[Up], seen[Down]
	if up.Flow != down.Flow || up.Opened != Up || down.Opened != Up || !up.Datagram || up.Port != 3478 || down.Port != 3478 || up.Size != 100 || down.Size != 1000 {
		t.Errorf("a router sees %+v and %+v", up, down)
	}
	if k := n.packets.inUse(); k != 0 {
		t.Errorf("%d packets are left on their way", k)
	}

	full := line(t, 100e6, 1e6, 20*time.Millisecond, 100e3, 10e3, 1)
	home, away = &chatter{size: 1000}, &chatter{size: 100, last: true}
	if err := full.AddTalk(TalkParams{Host: 1, Home: home, Away: away, Stop: 100e6}); err != nil {
		t.Fatal(err)
	}
	full.RunUntil(2e9)
	if got := len(away.heard); got < 10 || got > 40 || !slices.IsSorted(away.heard) {
		t.Errorf("of 200 frames of 16 Mbit/s, %d crossed a line of 1 Mbit/s", got)
	}
	if len(home.heard) != 2 {
		t.Errorf("an end that is not to be woken again was heard %d times", len(home.heard))
	}
	if k := full.packets.inUse(); k != 0 {
		t.Errorf("%d packets are left on their way", k)
	}
	if err := full.AddTalk(TalkParams{Host: 1, Home: home}); err == nil {
		t.Error("a talk of one end was taken")
	}
}
