package phases

import (
	"testing"
	"time"
)

func TestPhaseDefaults(t *testing.T) {
	for _, c := range []struct {
		spec       PhaseSpec
		head, tail time.Duration
	}{
		{PhaseSpec{Duration: 10 * time.Second}, 0, 0},
		{PhaseSpec{Duration: 10 * time.Second, FlowsUp: 1}, 2500 * time.Millisecond, 250 * time.Millisecond},
		{PhaseSpec{Duration: 60 * time.Second, FlowsUp: 1}, 2500 * time.Millisecond, 250 * time.Millisecond},
		{PhaseSpec{Duration: 4 * time.Second, FlowsDown: 1}, time.Second, 100 * time.Millisecond},
		{PhaseSpec{Duration: 4 * time.Second, FlowsDown: 1, CutHead: -1, CutTail: -1}, 0, 0},
		{PhaseSpec{Duration: 4 * time.Second, CutHead: time.Second}, time.Second, 0},
	} {
		if got := c.spec.WithDefaults(); got.CutHead != c.head || got.CutTail != c.tail {
			t.Errorf("%+v: cuts %v and %v, want %v and %v", c.spec, got.CutHead, got.CutTail, c.head, c.tail)
		}
	}
}
