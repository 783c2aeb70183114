package simlab

import (
	"testing"
	"time"

	"unbloat/lab"
	"unbloat/lab/scenario"
	"unbloat/testkit/await"
)

// A flow of 1.44 Mbit/s beside 16 uploads of its own machine loses most of its
// packets behind a fair queue, and none where steady flows go first.
func TestSteadyBesideUploads(t *testing.T) {
	r, err := Run(t.Context(), seed(t, "steady"), Options{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	lost := func(c lab.CaseResult) float64 {
		for _, l := range c.Loads {
			if l.Kind == scenario.Game {
				return l.Latency.Loss
			}
		}
		t.Fatalf("case %s has no such flow", c.Name)
		return 0
	}
	for _, c := range r.Cases {
		switch got := lost(c); {
		case c.Name == "cake" && got < 0.5:
			t.Errorf("behind a fair queue it loses %.3f", got)
		case c.Name == "plan" && got > 0.001:
			t.Errorf("where steady flows go first it loses %.3f", got)
		}
	}
}

// A machine with twenty flows just below the bound takes nothing from another's
// call, nor more than its share from a third's uploads.
func TestAbuserOfSteadyFlows(t *testing.T) {
	r, err := Run(t.Context(), seed(t, "call-webrtc-abuser"), Options{Cases: []string{"plan"}, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range r.Cases[0].Loads {
		switch {
		case l.Kind == scenario.WebRTC && (l.Call.MOS() < 4 || l.Call.Up.VideoBps < 1.3e6):
			t.Errorf("the call has %+v", l.Call.Up)
		case l.Kind == scenario.Upload && l.GoodputBps < 1.25e6: // a third of what the call leaves is 1.4 Mbit/s
			t.Errorf("the uploads have %.0f bit/s", l.GoodputBps)
		}
	}
}

// Pictures that a home sends at once leave whole beside forty peers' uploads. With
// CAKE's usual interval each of a call on the peers' machine loses a packet.
func TestPicturesLeaveWhole(t *testing.T) {
	await.NotShort(t)
	lost := func(interval time.Duration) (most float64) {
		s := seed(t, "call-webrtc-peers")
		for i := range s.Cases {
			if f := s.Cases[i].Router.Fix; f != nil {
				f.Interval = interval
			}
		}
		r, err := Run(t.Context(), s, Options{Cases: []string{"plan"}, Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range r.Cases[0].Loads {
			if l.Call != nil {
				most = max(most, l.Call.Up.PacketLoss)
			}
		}
		return most
	}
	if got := lost(0); got > 0.002 {
		t.Errorf("as planned a call loses %.4f", got)
	}
	if got := lost(100 * time.Millisecond); got < 0.005 {
		t.Errorf("with CAKE's usual interval a call loses %.4f: it is no test of the plan's", got)
	}
}
