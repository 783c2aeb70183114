package verdict

import (
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"unbloat/internal/measure/probe"
	"unbloat/reason"
	"unbloat/unit"
)

// Seed 003: 1 Mbit/s up and a modem that holds 3 s, which is 375 kB or 250
// packets.
func TestQueueOfSeed003(t *testing.T) {
	p := &Phase{FlowsUp: 4, GoodputUpBps: 1e6 * payload / frame, Latency: Latency{Received: 100, UpMs: Quantiles{P50: 3000}}}
	q := queue(p)
	if q == nil || q.Direction != "up" || math.Abs(float64(q.Bytes)-375e3) > 10 || q.Packets != 248 {
		t.Errorf("%+v", q)
	}
	p.Latency = Latency{Received: 100, OneWayUnknown: true, IncreaseMs: Quantiles{P50: 3000}}
	if q := queue(p); q == nil || q.Direction != "up" || q.Packets != 248 {
		t.Errorf("one way unknown: %+v", q)
	}
	if q := queue(&Phase{Latency: Latency{Received: 100}}); q != nil {
		t.Errorf("idle: %+v", q)
	}
}

// A call with a short delay has the best quality of G.711, and worse figures
// never improve it.
func TestVoice(t *testing.T) {
	if v := Call(Latency{Received: 1, RTTMs: Quantiles{P95: 20}}); v.R < 92 || v.MOS < 4.35 || v.MOS > 4.5 {
		t.Errorf("good: %+v", v)
	}
	if v := Call(Latency{Received: 1, RTTMs: Quantiles{P95: 3000}}); v.MOS > 1.1 {
		t.Errorf("bad: %+v", v)
	}
	if v := Call(Latency{Received: 1, RTTMs: Quantiles{P95: 20}, LossUp: 0.05}); v.MOS > 4 || v.MOS < 3 {
		t.Errorf("5 %% loss: %+v", v) // G.711 with loss concealment: R 77
	}
	rapid.Check(t, func(t *rapid.T) {
		a := Latency{Received: 1, RTTMs: Quantiles{P95: rapid.Float64Range(0, 2000).Draw(t, "rtt")}, LossDown: rapid.Float64Range(0, 1).Draw(t, "loss")}
		b := a
		b.RTTMs.P95 += rapid.Float64Range(0, 1000).Draw(t, "more delay")
		b.LossDown = min(1, b.LossDown+rapid.Float64Range(0, 0.5).Draw(t, "more loss"))
		if x, y := Call(a), Call(b); y.R > x.R || x.R < 0 || x.R > 100 || x.MOS < 1 || x.MOS > 4.5 {
			t.Fatalf("%+v, then %+v", x, y)
		}
	})
}

// The draft's figure: fresh and loaded connections have equal weight. Without
// them the probes count.
func TestRPM(t *testing.T) {
	raw := Raw{From: 0, To: 1000}
	for i := range 20 {
		raw.Samples = append(raw.Samples, probe.Sample{Sent: unit.Instant(i), Received: unit.Instant(i).Add(100 * time.Millisecond), Fate: probe.Answered})
	}
	if got := rpm(raw); got != 600 {
		t.Errorf("of probes: %v", got)
	}
	ms := []time.Duration{30 * time.Millisecond}
	raw.Fresh = Handshakes{ms, ms, ms}
	for i := range 20 {
		raw.OnLoad = append(raw.OnLoad, probe.Sample{Sent: unit.Instant(i), Received: unit.Instant(i).Add(90 * time.Millisecond), Fate: probe.Answered})
	}
	if got := rpm(raw); got != 1000 { // mean of 30 and 90 ms
		t.Errorf("of HTTP: %v", got)
	}
}

// Other traffic of more than a twentieth of the load makes a phase invalid; our
// own headers, acknowledgements and probes do not.
func TestOthers(t *testing.T) {
	p := &Phase{GoodputDownBps: 100e6, Seconds: 10}
	for _, c := range []struct {
		down float64
		bad  bool
	}{{100e6 * 1514 / 1448, false}, {108e6, false}, {116e6, true}} {
		raw := Raw{Wire: Counted{Known: true, Down: c.down, Up: 4e6}}
		p.OthersDownBps, p.OthersUpBps = others(raw, p)
		if why := tooManyOthers(p); (why != nil) != c.bad || c.bad && why.Code != reason.OthersTraffic {
			t.Errorf("%v: %v", c.down, why)
		}
	}
}

// The part of an upload in a queue beyond the interface is ours, even if the
// probes cannot tell the directions apart. The rest is other traffic.
func TestOthersIsNotTheQueue(t *testing.T) {
	second := Quantiles{Max: 1000}
	for name, l := range map[string]Latency{"stamped": {UpMs: second}, "round trips": {IncreaseMs: second, OneWayUnknown: true}} {
		p := &Phase{GoodputUpBps: 5e6, Seconds: 6.5, Latency: l}
		grown := 5e6 * ownOverhead / p.Seconds
		for _, c := range []struct {
			others float64
			bad    bool
		}{{0, false}, {1e6, true}} {
			raw := Raw{Wire: Counted{Known: true, Up: 5e6*ownOverhead + grown + c.others}}
			p.OthersDownBps, p.OthersUpBps = others(raw, p)
			if why := tooManyOthers(p); (why != nil) != c.bad {
				t.Errorf("%s, %.0f bit/s of others: %v", name, c.others, why)
			}
		}
	}
}

// If the kernel counts the load's own segments, holes that are open at its end
// do not count as other traffic. Bytes beyond that count do.
func TestOthersIsNotBehindAHole(t *testing.T) {
	p := &Phase{GoodputDownBps: 6.7e6, GoodputUpBps: 0.8e6, Seconds: 7.75}
	const wire = 8e6 // of which a million bytes wait behind holes
	for _, c := range []struct {
		own  bool
		more float64
		bad  bool
	}{{true, 0, false}, {true, 1e6, true}, {false, 0, true}} {
		raw := Raw{Wire: Counted{Known: true, Down: wire + c.more, Up: 1e6 + c.more, OwnKnown: c.own, OwnDown: wire, OwnUp: 1e6}}
		p.OthersDownBps, p.OthersUpBps = others(raw, p)
		if why := tooManyOthers(p); (why != nil) != c.bad {
			t.Errorf("own count %v, %.0f bit/s more: %v", c.own, c.more, why)
		}
	}
}

// The median of several runs is one of them, and half of them must be valid.
func TestMedianRun(t *testing.T) {
	run := func(valid bool, increase float64) *Test {
		r := &Test{Valid: valid, Idle: &Phase{}, Upload: &Phase{Latency: Latency{IncreaseMs: Quantiles{P95: increase}}}}
		if !valid {
			r.InvalidReasons = []string{"x"}
		}
		return r
	}
	if got := MedianRun([]*Test{run(true, 30), run(true, 10), run(true, 20)}); !got.Valid || got.WorstIncrease() != 20 || len(got.Runs) != 3 {
		t.Errorf("%+v", got)
	}
	if got := MedianRun([]*Test{run(true, 30), run(false, 10), run(true, 20)}); !got.Valid || got.WorstIncrease() != 30 {
		t.Errorf("one invalid: %v", got.WorstIncrease())
	}
	if got := MedianRun([]*Test{run(true, 30), run(false, 10), run(false, 20)}); got.Valid || !strings.Contains(got.InvalidReasons[0], "1 of 3") {
		t.Errorf("two invalid: %+v", got)
	}
}

// A changed path makes a test invalid. A wireless link is noted.
func TestPathChange(t *testing.T) {
	why := invalid(Raw{Name: PhaseDownload, PathChanges: 1}, &Phase{Latency: Latency{Received: 100}}, MaxLatenessMs)
	if len(why) != 1 || !strings.Contains(why[0].Text(reason.English(), reason.Terminal), "path") {
		t.Errorf("%q", why)
	}
}
