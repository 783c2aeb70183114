package simlab

import (
	"slices"
	"testing"
	"time"

	"unbloat/lab"
	"unbloat/lab/household"
	"unbloat/lab/scenario"
	"unbloat/unit"
)

// loadsOf simulates cases of a scenario, and returns the first load of a kind in
// each, by the case's name.
func loadsOf(t *testing.T, name, kind string, cases ...string) map[string]lab.LoadResult {
	t.Helper()
	r, err := Run(t.Context(), seed(t, name), Options{Cases: cases, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]lab.LoadResult{}
	for _, c := range r.Cases {
		i := slices.IndexFunc(c.Loads, func(l lab.LoadResult) bool { return l.Kind == kind })
		out[c.Name] = c.Loads[i]
	}
	return out
}

// A simulated call is clear and has all of its rate on an idle line. Beside
// uploads it is what the lab's is: no call at all behind the modem's queue, poor
// video by its fair share, and nearly all of its video with a rule that lets it
// go first.
func TestSimulatedCall(t *testing.T) {
	idle := loadsOf(t, "call-webrtc-idle", scenario.WebRTC, "none", "plan")
	for name, l := range idle {
		for way, w := range map[string]household.CallWay{"up": l.Call.Up, "down": l.Call.Down} {
			if w.MOS < 4.3 || w.Freezes > 0 || w.Missed() > 0 || w.PacketLoss > 0 || w.VideoBps < 1.45e6 || w.VideoBps > 1.55e6 {
				t.Errorf("idle line, %s, %s: %+v", name, way, w)
			}
		}
	}
	busy := loadsOf(t, "call-webrtc", scenario.WebRTC, "none", "fq_codel", "rule")
	if w := busy["none"].Call.Up; w.MOS > 1.5 || w.Missed() < 0.5 || w.FrozenS == 0 || w.VideoBps > 1.2e6 {
		t.Errorf("behind the modem's queue: %+v", w)
	}
	if w := busy["fq_codel"].Call.Up; w.VideoBps > 1.1e6 || w.MOS < 2 || w.PacketLoss == 0 {
		t.Errorf("with its fair share: %+v", w)
	}
	if w := busy["rule"].Call.Up; w.VideoBps < 1.35e6 || w.MOS < 4.2 || w.PacketLoss > 0.02 {
		t.Errorf("with a rule: %+v", w)
	}
	for name, l := range busy {
		if w := l.Call.Down; w.MOS < 4.2 || w.Missed() > 0.02 {
			t.Errorf("%s, down, where nothing else is: %+v", name, w)
		}
	}
}

// Simulated QUIC fills the line, and its flows share it; a game that a server
// plays is whole on the idle line, and not beside downloads behind a deep queue.
func TestSimulatedQUICAndGames(t *testing.T) {
	quic := loadsOf(t, "call-webrtc-quic", scenario.QUICUpload, "none", "fq_codel")
	if q := quic["fq_codel"]; q.GoodputBps < 3.2e6 || q.QUIC.MostBps > 1.3*q.QUIC.LeastBps {
		t.Errorf("QUIC behind fq_codel: %+v, %+v", q.GoodputBps, q.QUIC)
	}
	s := seed(t, "cloud-game")
	s.Loads = slices.DeleteFunc(s.Loads, func(l scenario.Load) bool { return l.Kind != scenario.CloudGame })
	s.Loads = append(s.Loads, scenario.Load{Kind: scenario.Game, Flows: 1, Host: 2, PPS: 128, BytesDown: 600})
	r, err := Run(t.Context(), s, Options{Cases: []string{"none"}, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	loads := r.Cases[0].Loads
	if p := loads[0].Play; p.Frames < 1780 || p.Missed() > 0 || p.Freezes > 0 || p.InputLoss > 0 || loads[0].GoodputDownBps < 14.5e6 || loads[0].GoodputDownBps > 15.5e6 {
		t.Errorf("a game alone: %.0f bit/s, %+v", loads[0].GoodputDownBps, *p)
	}
	if g := loads[1].GoodputBps; g < 0.6e6 || g > 0.63e6 {
		t.Errorf("128 packets of 600 bytes a second are %.0f bit/s", g)
	}
	if p := loadsOf(t, "cloud-game", scenario.CloudGame, "none")["none"].Play; p.Missed() < 0.5 {
		t.Errorf("a game beside downloads: %+v", *p)
	}
}

// A game that a server plays has its picture beside four downloads where rules make
// it normal and TCP bulk. Pages are another matter: what they begin with stands at
// the provider, without downloads and without a shaper too.
func TestSimulatedGameWithRules(t *testing.T) {
	if p := loadsOf(t, "cloud-game-downloads", scenario.CloudGame, "rule")["rule"].Play; p.Missed() > 0.001 {
		t.Errorf("with rules, beside downloads: %+v", *p)
	}
	s := seed(t, "cloud-game")
	s.Loads = slices.DeleteFunc(s.Loads, func(l scenario.Load) bool { return l.Kind == scenario.Download })
	r, err := Run(t.Context(), s, Options{Cases: []string{"none"}, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range r.Cases[0].Loads {
		if l.Kind == scenario.CloudGame && l.Play.Missed() < 0.1 {
			t.Errorf("beside pages alone, without a shaper: %+v", *l.Play)
		}
	}
}

// The congestion control gives way to a queue that grows and to loss, holds its
// most on a quiet line, and comes back.
func TestGCC(t *testing.T) {
	const most = 1500e3
	g := newGCC(150e3, most)
	now := unit.Instant(time.Second)
	// run reports ten packets each 100 ms for a while. Their delay grows by so much
	// from one to the next; every n-th is lost.
	delay := 10 * time.Millisecond
	run := func(d, grows time.Duration, lostOf int) unit.Rate {
		for end := now.Add(d); now.Before(end); now = now.Add(100 * time.Millisecond) {
			var acks []ack
			lost := 0
			for k := range 10 {
				sent := now.Add(time.Duration(k) * 10 * time.Millisecond)
				if delay += grows; lostOf > 0 && k%lostOf == 0 {
					lost++
					continue
				}
				acks = append(acks, ack{sent, sent.Add(delay), unit.Size(g.rate() / 8 / 100)})
			}
			g.report(now.Add(100*time.Millisecond+delay), acks, lost)
		}
		return g.rate()
	}
	if r := run(5*time.Second, 0, 0); r != most {
		t.Errorf("a quiet line: %v", r)
	}
	if r := run(3*time.Second, 2*time.Millisecond, 0); r > most*0.6 {
		t.Errorf("a queue that grew by 200 ms a second: %v", r)
	}
	delay = 10 * time.Millisecond
	if r := run(40*time.Second, 0, 0); r < most*0.95 {
		t.Errorf("40 s after it: %v", r)
	}
	if r := run(3*time.Second, 0, 3); r > most*0.5 {
		t.Errorf("a third lost: %v", r)
	}
	if r := run(30*time.Second, 0, 0); r < most*0.95 {
		t.Errorf("30 s after it: %v", r)
	}
	if r := run(60*time.Second, 0, 2); r != 150e3 {
		t.Errorf("half is lost for a minute: %v, not the least", r)
	}
}
