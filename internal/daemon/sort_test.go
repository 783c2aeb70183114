package daemon

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"unbloat/internal/platform"
	"unbloat/unit"
)

// A sorterOf counts its readings, and fails in some of them.
type sorterOf struct {
	at    []time.Duration
	fails func(n int) error
}

func (s *sorterOf) Sort(_ context.Context, _ platform.Runner, now unit.Instant) error {
	s.at = append(s.at, time.Duration(now))
	return s.fails(len(s.at))
}

// Flows are read each second until the end, which waits for the reading that runs.
// What goes wrong is told once, and again after it went well.
func TestSorting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sorterOf{fails: func(n int) error {
			if n == 2 || n == 3 || n == 5 {
				return errors.New("no pf")
			}
			return nil
		}}
		var told []string
		ctx, cancel := context.WithCancel(t.Context())
		x := &sorting{cancel: cancel, done: make(chan struct{})}
		go x.run(ctx, s, nil, func(text string) { told = append(told, text) })
		time.Sleep(5*time.Second + 500*time.Millisecond)
		w := wan{sorting: x}
		w.endSorting()
		if want := []time.Duration{0, 1e9, 2e9, 3e9, 4e9, 5e9}; !slices.Equal(s.at, want) {
			t.Errorf("read at %v, want %v", s.at, want)
		}
		if want := []string{"give flows their classes: no pf", "give flows their classes: no pf"}; !slices.Equal(told, want) {
			t.Errorf("told %q", told)
		}
		time.Sleep(3 * time.Second)
		if len(s.at) != 6 || w.sorting != nil {
			t.Errorf("%d readings after the end", len(s.at)-6)
		}
	})
}
