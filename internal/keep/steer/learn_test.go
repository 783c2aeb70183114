package steer_test

import (
	"io/fs"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"unbloat/internal/keep/follow"
	"unbloat/internal/keep/steer"
	"unbloat/testkit/await"
	"unbloat/unit"
)

// A disk is a file, and who wrote it when.
type disk struct {
	mu    sync.Mutex
	text  []byte
	saved []time.Time
	full  func() bool // nil: never
}

func (d *disk) memory() *steer.Memory {
	return &steer.Memory{
		Load: func() ([]byte, error) {
			d.mu.Lock()
			defer d.mu.Unlock()
			if d.text == nil {
				return nil, fs.ErrNotExist
			}
			return slices.Clone(d.text), nil
		},
		Save: func(b []byte) error {
			d.mu.Lock()
			defer d.mu.Unlock()
			if d.full != nil && d.full() {
				return &fs.PathError{Op: "write", Path: "rates", Err: syscall.ENOSPC}
			}
			d.text = b
			d.saved = append(d.saved, time.Now())
			return nil
		},
	}
}

// What is learnt is written at most once an hour, and at the end; it comes back after a
// restart; what is damaged is told, and begins anew.
func TestLearns(t *testing.T) {
	await.NotShort(t)
	synctest.Test(t, func(t *testing.T) {
		var d disk
		began := time.Now()
		wall := func() time.Time { // a Wednesday, 17:00
			return time.Date(2026, 11, 25, 17, 0, 0, 0, time.UTC).Add(time.Since(began))
		}
		run := func(lasts time.Duration) []string {
			l := &line{capacity: 30e6, rate: 28e6}
			var told []string
			c := config(l, &told)
			c.Memory, c.Wall = d.memory(), wall
			_, end := begun(t, c)
			time.Sleep(lasts)
			end()
			return told
		}
		if told := run(2*time.Hour + 5*time.Minute); len(told) > 0 {
			t.Errorf("told %q", told)
		}
		if n := len(d.saved); n != 3 {
			t.Errorf("written %d times in two hours and at the end", n)
		}
		for i := 1; i < len(d.saved)-1; i++ {
			if apart := d.saved[i].Sub(d.saved[i-1]); apart < time.Hour {
				t.Errorf("written twice within %v", apart)
			}
		}
		first := string(d.text)
		if _, err := follow.DecodeLearned(d.text); err != nil || !strings.Contains(first, "\n65 ") || strings.Contains(first, "\n64 ") {
			t.Errorf("Wednesday's hour from 17:00 is the 65th: %v\n%s", err, first)
		}
		run(65 * time.Minute)
		if len(d.saved) != 5 || !strings.Contains(string(d.text), "\n65 ") || len(d.text) < len(first) {
			t.Errorf("after a restart, written %d times:\n%s\nbefore:\n%s", len(d.saved), d.text, first)
		}
		d.text = d.text[:len(d.text)/2]
		if told := run(time.Minute); len(told) != 1 || !strings.Contains(told[0], "begins anew") {
			t.Errorf("of a damaged file it told %q", told)
		}
	})
}

// The most is learnt where nobody has given it, and is there after a restart; beside a
// call it is not.
func TestLearnsTheMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d disk
		run := func(call int) unit.Rate {
			l := &line{capacity: 30e6, rate: 20e6, call: call}
			var told []string
			c := config(l, &told)
			c.Memory, c.Calls = d.memory(), [2][]int{follow.Down: {8, 6}}
			c.Params.Rates[follow.Down] = follow.BoundsOf(0, 20*unit.MbitPerSecond, 0, 20*unit.MbitPerSecond)
			f, end := begun(t, c)
			time.Sleep(2 * time.Minute)
			most := f.View().Down.Most
			end()
			return most
		}
		if most := run(50); most > 20*unit.MbitPerSecond*102/100 {
			t.Errorf("beside a call it tries %v", most)
		}
		first := run(20) // probes, and names that are looked up
		if first.Mbit() < 27 || first.Mbit() > 31 {
			t.Errorf("on a line of 30 Mbit/s the most is %v", first)
		}
		if again := run(50); again < first {
			t.Errorf("%v was learnt, and after a restart it is %v", first, again)
		}
	})
}

// On a disk that is full for three hours the line is followed on, that is told once,
// and all that was learnt is saved when there is room.
func TestLearnsOnFullDisk(t *testing.T) {
	await.NotShort(t)
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		d := disk{full: func() bool { return time.Since(began) < 3*time.Hour+30*time.Minute }}
		l := &line{capacity: 30e6, rate: 28e6}
		var told []string
		c := config(l, &told)
		c.Memory = d.memory()
		c.Wall = func() time.Time { return time.Date(2026, 11, 25, 17, 0, 0, 0, time.UTC).Add(time.Since(began)) }
		_, end := begun(t, c)
		time.Sleep(4*time.Hour + 5*time.Minute)
		end()
		if len(told) != 2 || !strings.Contains(told[0], "no space left on device") || !strings.Contains(told[1], "saved again") {
			t.Errorf("told %q", told)
		}
		if len(d.saved) != 2 || !strings.Contains(string(d.text), "\n65 ") { // once there is room, and in the end
			t.Errorf("saved at %v:\n%s", d.saved, d.text)
		}
	})
}

// While the router's clock has not been set, nothing is learnt for the wrong hour.
func TestClockNotSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d disk
		l := &line{capacity: 30e6, rate: 28e6}
		var told []string
		c := config(l, &told)
		c.Memory = d.memory() // the bubble's time is of the year 2000
		f, err := steer.New(c)
		if err != nil {
			t.Fatal(err)
		}
		go f.Run(t.Context())
		time.Sleep(61 * time.Minute)
		if len(d.saved) > 0 {
			t.Errorf("written: %s", d.text)
		}
	})
}
