package steer

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"

	"unbloat/internal/keep/follow"
	"unbloat/unit"
)

// A Memory keeps what is learnt of a line over restarts.
type Memory struct {
	Load func() ([]byte, error) // an error that wraps fs.ErrNotExist: there is nothing yet
	Save func([]byte) error     // at once or not at all
}

const (
	saveEvery = time.Hour // flash wears out
	wallEvery = time.Minute
	// A clock that shows less has not been set since the router was switched on.
	firstYear = 2025
)

// A notebook keeps what a controller learns. It is of the Follower's goroutine.
type notebook struct {
	memory  *Memory
	learned *follow.Learned
	wall    func() time.Time
	walled  bool
	asked   unit.Instant // when the clock on the wall was looked at
	saved   unit.Instant // or when this began
	count   uint64       // what had been learnt by then
	saving  sync.WaitGroup
	lost    atomic.Bool // the last text could not be saved
}

// openNotebook reads what is known from before. What is damaged is told, and forgotten.
func openNotebook(m *Memory, wall func() time.Time, now unit.Instant, tell func(string)) *notebook {
	n := &notebook{memory: m, learned: &follow.Learned{}, wall: wall, saved: now}
	if n.wall == nil {
		n.wall = time.Now
	}
	if m == nil {
		return n
	}
	text, err := m.Load()
	if errors.Is(err, fs.ErrNotExist) {
		return n
	}
	if err == nil {
		var l *follow.Learned
		if l, err = follow.DecodeLearned(text); err == nil {
			n.learned = l
		}
	}
	if err != nil && tell != nil {
		tell(fmt.Sprintf("%v; learning begins anew", err))
	}
	return n
}

// round tells the controller the time, and saves what it has learnt, if it is time to.
func (n *notebook) round(now unit.Instant, c *follow.Controller, tell func(string)) {
	if !n.walled || now.Sub(n.asked) >= wallEvery {
		n.asked = now
		if wall := n.wall(); wall.Year() >= firstYear {
			n.walled = true
			c.Wall(now.Add(-sinceMonday(wall)))
		}
	}
	if n.memory == nil || now.Sub(n.saved) < saveEvery || c.Learned() == n.count && !n.lost.Load() {
		return
	}
	n.save(now, c, tell)
}

// save writes what is learnt.
func (n *notebook) save(now unit.Instant, c *follow.Controller, tell func(string)) {
	n.saved, n.count = now, c.Learned()
	text := n.learned.Encode()
	n.saving.Go(func() { // a disk may take its time, and the line does not wait
		err := n.memory.Save(text)
		was := n.lost.Swap(err != nil)
		switch {
		case tell == nil:
		case err != nil && !was:
			tell(fmt.Sprintf("save the learned rates: %v; they are in memory until the daemon ends, and saved when that is possible again", err))
		case err == nil && was:
			tell("the learned rates are saved again")
		}
	})
}

// close saves what was learnt since.
func (n *notebook) close(now unit.Instant, c *follow.Controller, tell func(string)) {
	if n.memory != nil && (c.Learned() != n.count || n.lost.Load()) {
		n.saving.Wait()
		n.save(now, c, tell)
	}
	n.saving.Wait()
}

// sinceMonday returns how long ago, by its hours, the week began that a clock shows.
func sinceMonday(wall time.Time) time.Duration {
	const day = 24 * time.Hour
	days := (int(wall.Weekday()) + 6) % 7
	return time.Duration(days)*day + time.Duration(wall.Hour())*time.Hour + time.Duration(wall.Minute())*time.Minute +
		time.Duration(wall.Second())*time.Second + time.Duration(wall.Nanosecond())
}
