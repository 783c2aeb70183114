package verdict

import (
	"strings"
	"testing"
	"time"
)

// A load that did not fill the line is reported for each direction: because the
// queue of the other direction delayed its acknowledgements, or for another
// reason.
func TestUnfilled(t *testing.T) {
	idle := fake{name: PhaseIdle, rtt: always(ms20)}
	lazy := func(r *Raw) { // the download's senders mostly wait for acknowledgements
		for i := range r.DownSenders[0] {
			r.DownSenders[0][i].Busy /= 3
		}
	}
	both := func(rtt time.Duration, up float64, edit func(*Raw)) fake {
		return fake{name: PhaseBoth, rtt: always(rtt), down: 4e6, up: up, edit: edit}
	}
	alike := func(r *Raw) {
		lazy(r)
		for i := range r.UpSenders[0] {
			r.UpSenders[0][i].Busy /= 3
		}
	}
	for _, c := range []struct {
		name      string
		both      fake
		saturated bool
		starved   bool
		says      string
	}{
		{"both full", both(time.Second, 5e6, nil), true, false, ""},
		{"starved", both(time.Second, 5e6, lazy), false, true, "the upload left the download only 4.00 Mbit/s (the down senders had data in flight for only 33 % of the time); the latency is right all the same"},
		{"no queue", both(ms20, 5e6, lazy), false, false, "only the upload was filled"},
		{"neither", both(time.Second, 5e6, alike), false, false, "the load did not fill the line"},
	} {
		got := judge(idle, c.both)
		p := got.Both
		starved := len(p.Unsaturated) == 1 && p.Unsaturated[0].Starved && p.Unsaturated[0].Direction == "down"
		if p.Saturated != c.saturated || starved != c.starved || !strings.HasPrefix(p.FillWords(), c.says) || c.says == "" && p.FillWords() != "" {
			t.Errorf("%s: saturated %v, %+v, %q", c.name, p.Saturated, p.Unsaturated, p.FillWords())
		}
		if full := c.name != "neither"; got.Valid != full {
			t.Errorf("%s: valid %v: %q", c.name, got.Valid, got.InvalidReasons)
		}
	}
	old := &Phase{FlowsDown: 4, FlowsUp: 4} // from a file that does not contain the direction
	if s := old.FillWords(); !strings.Contains(s, "in each direction") {
		t.Error(s)
	}
}
