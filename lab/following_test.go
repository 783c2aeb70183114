package lab_test

import (
	"errors"
	"io/fs"
	"math"
	"slices"
	"testing"
	"time"

	"unbloat/internal/measure/verdict"
	"unbloat/lab"
	"unbloat/lab/household"
	"unbloat/lab/scenario"
	"unbloat/scenarios"
	"unbloat/testkit/labtest"
	"unbloat/unit"
)

// followScenario reads an embedded scenario with its trace. One whose trace does not
// come with unbloat is skipped, unless somebody says where it is.
func followScenario(t *testing.T, name string) *scenario.Scenario {
	t.Helper()
	text, err := scenarios.Text(name)
	if err != nil {
		t.Fatal(err)
	}
	s, err := scenario.Read(name+".toml", text, scenarios.Trace)
	var missing *scenarios.MissingTraceError
	switch {
	case errors.As(err, &missing), errors.Is(err, fs.ErrNotExist):
		t.Skipf("SKIPPED: %v", err)
	case err != nil:
		t.Fatal(err)
	}
	return s
}

// followed is what a case gave.
type followed struct {
	mean, p95 float64 // ms
	down, up  float64 // Mbit/s
	frozen    float64 // s, of a call, in both directions, without outages of the line
	shapers   lab.ShaperRates
	result    lab.CaseResult
}

func (f followed) sum() float64 { return f.down + f.up }

// follow runs cases of a line that varies, and returns them by name. Without
// cake-autorate its case is left out.
func (d *draw) follow(s *scenario.Scenario, names ...string) map[string]followed {
	d.Helper()
	labtest.NeedKernel(d)
	cases, err := lab.Cases(s, names)
	if err != nil {
		d.Fatal(err)
	}
	cases, why := lab.Runnable(cases)
	for _, w := range why {
		d.Logf("left out: %v", w)
	}
	names = nil
	for _, c := range cases {
		names = append(names, c.Name)
	}
	r, err := lab.Run(d.Context(), s, lab.Options{Engine: lab.Virtual, Cases: names, Seed: d.Seed, Programs: labtest.Programs(d)})
	if err != nil {
		d.Fatal(err)
	}
	out := map[string]followed{}
	for _, c := range r.Cases {
		q := c.Test.Loaded.Latency.RTTMs
		f := followed{mean: q.Mean, p95: q.P95, down: c.Test.Loaded.GoodputDownBps / 1e6, up: c.Test.Loaded.GoodputUpBps / 1e6, result: c}
		for _, l := range c.Loads {
			if l.Call != nil {
				f.frozen += l.Call.Down.RoutedS + l.Call.Up.RoutedS
			}
		}
		if c.Shapers != nil {
			f.shapers = *c.Shapers
		}
		out[c.Name] = f
		d.Logf("%s %-13s seed %d: mean %.1f p50 %.1f p95 %.1f p99 %.1f max %.1f ms; %.2f / %.2f Mbit/s; frozen %.2f s; %.0f s of line time in %.1f s", s.Name, c.Name, r.Seed,
			q.Mean, q.P50, q.P95, q.P99, q.Max, f.down, f.up, f.frozen, c.VirtualSeconds, c.WallSeconds)
	}
	return out
}

// narrower makes everything of a line that follows 50/10 Mbit/s slower by day: with two
// packets of five, line time passes as much faster.
func narrower(s *scenario.Scenario) {
	if labtest.Long() {
		return
	}
	const of = 0.4
	for _, r := range []*unit.Rate{&s.Line.Down, &s.Line.Up} {
		*r = share(*r, of)
	}
	for i := range s.Line.Vary {
		v := &s.Line.Vary[i]
		v.Down, v.Up = share(v.Down, of), share(v.Up, of)
	}
	for i := range s.Cases {
		if x := s.Cases[i].Router.Daemon; x != nil {
			x.Down, x.Up = share(x.Down, of), share(x.Up, of)
			x.LeastDown, x.LeastUp, x.MostDown, x.MostUp = share(x.LeastDown, of), share(x.LeastUp, of), share(x.MostDown, of), share(x.MostUp, of)
		}
		if x := s.Cases[i].Router.Fix; x != nil {
			x.Down, x.Up = share(x.Down, of), share(x.Up, of)
		}
	}
	s.Line.BufferDown, s.Line.BufferUp = s.Line.BufferDown*2/5, s.Line.BufferUp*2/5
}

// stepped makes a line fall to a third and come back, by day in a phase that ends twice
// as long after the rise as the fall came after its beginning: so a third of the rate for
// the rest of it would be seen. At night the scenario has its own times.
func stepped(s *scenario.Scenario, load, low time.Duration) {
	if labtest.Long() {
		return
	}
	began := s.Test.Idle
	first, last := s.Line.Vary[len(s.Line.Vary)-2], s.Line.Vary[len(s.Line.Vary)-1]
	first.At, last.At = began+load, began+load+low
	s.Line.Vary = append(slices.Clone(s.Line.Vary[:len(s.Line.Vary)-2]), first, last)
	s.Test.Seconds = 3*load + low
}

// lasting gives a phase a length by day.
func lasting(s *scenario.Scenario, by time.Duration) {
	if !labtest.Long() {
		s.Test.Seconds = by
	}
}

// An outage is when a way of the line carries nearly nothing; a change that is not
// exact leaves a way that it does not name as it was.
func TestOutages(t *testing.T) {
	began := unit.Instant(7 * time.Second)
	up, down := lab.Outages(scenario.Line{Down: unit.MbitPerSecond, Up: unit.MbitPerSecond, Vary: []scenario.Change{
		{At: time.Second, Down: unit.MbitPerSecond, Exact: true},                          // nothing up
		{At: 2 * time.Second, Down: 60 * unit.KbitPerSecond, Up: 64 * unit.KbitPerSecond}, // up again, down nearly nothing
		{At: 3 * time.Second, Up: unit.MbitPerSecond},
		{At: 4 * time.Second, Down: unit.MbitPerSecond},
		{At: 5 * time.Second, Up: 10 * unit.KbitPerSecond},
	}}, began)
	at := func(s time.Duration) unit.Instant { return began.Add(s * time.Second) }
	if want := []household.Freeze{{From: at(1), To: at(2)}, {From: at(5), To: math.MaxInt64}}; !slices.Equal(up, want) {
		t.Errorf("up %v, want %v", up, want)
	}
	if want := []household.Freeze{{From: at(2), To: at(3)}, {From: at(3), To: at(4)}}; !slices.Equal(merge(down), merge(want)) {
		t.Errorf("down %v, want %v", down, want)
	}
}

// merge joins times that touch.
func merge(all []household.Freeze) (out []household.Freeze) {
	for _, f := range all {
		if n := len(out); n > 0 && out[n-1].To == f.From {
			out[n-1].To = f.To
		} else {
			out = append(out, f)
		}
	}
	return out
}

func needLong(t *testing.T) {
	t.Helper()
	if !labtest.Long() {
		t.Skip("SKIPPED: it takes minutes; `make test-long` runs it")
	}
}

// by takes the bound of the short form by day, and the promise at night.
func by(day, night float64) float64 {
	if labtest.Long() {
		return night
	}
	return day
}

// What a short line that falls to a third and comes back has by day. A controller that never cuts
// has a mean of 760 ms and more, one that never rises carries 9.4 Mbit/s and less;
// ours has 42 to 48 ms and 12 to 17 Mbit/s. A p95 of so short a phase would be the
// fall alone.
const (
	meanByDay = 60 // ms
	sumByDay  = 12 // Mbit/s
)

// On the real kernel the daemon follows a line that falls to a third and comes back:
// neither bloat nor waste.
func TestFollowStepsInLab(t *testing.T) {
	t.Parallel()
	overDraws(t, func(d *draw) {
		s := followScenario(t, "follow-steps")
		narrower(s)
		stepped(s, 8*time.Second, 6*time.Second)
		names := []string{"follows"}
		if labtest.Long() {
			names = append(names, "cake-autorate", "oracle")
		}
		all := d.follow(s, names...)
		f := all["follows"]
		if labtest.Long() {
			d.AtMost("p95, ms", f.p95, 50)
		}
		d.AtMost("mean, ms", f.mean, by(meanByDay, 38))
		d.AtLeast("down + up, Mbit/s", f.sum(), by(sumByDay, 35.5))
		if peer, ok := all["cake-autorate"]; ok {
			d.AtMost("p95, of cake-autorate's", f.p95/peer.p95, 1)
			d.AtLeast("goodput, of cake-autorate's", f.sum()/peer.sum(), 1)
		}
	})
}

// With load in one direction the other one's rate is not cut.
func TestFollowOneDirectionInLab(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		name  string
		other func(lab.ShaperRates) lab.ShaperRate
		usual float64
	}{
		{"follow-steps-down", func(s lab.ShaperRates) lab.ShaperRate { return s.Up }, by(3.8e6, 9.5e6)},
		{"follow-steps-up", func(s lab.ShaperRates) lab.ShaperRate { return s.Down }, by(18e6, 45e6)},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			overDraws(t, func(d *draw) {
				s := followScenario(t, x.name)
				narrower(s)
				stepped(s, 4*time.Second, 5*time.Second)
				f := d.follow(s, "follows")["follows"]
				d.AtLeast("the other direction's least rate, of its usual one", x.other(f.shapers).Least/x.usual, 0.999)
			})
		})
	}
}

// On a line that does not vary little is lost against a plan that fits it.
func TestFollowSteadyInLab(t *testing.T) {
	t.Parallel()
	overDraws(t, func(d *draw) {
		f, fixed := d.besidePlan("follow-steady", 20*time.Second)
		d.AtLeast("goodput, of the plan's", f.sum()/fixed.sum(), by(0.9, 0.95))
		d.AtMost("p95 above the plan's, ms", f.p95-fixed.p95, by(20, 10))
	})
}

// besidePlan runs a scenario's line followed, and with a plan's fixed rates.
func (d *draw) besidePlan(name string, byDay time.Duration) (follows, fixed followed) {
	s := followScenario(d.T, name)
	narrower(s)
	lasting(s, byDay)
	all := d.follow(s, "fixed", "follows")
	return all["follows"], all["fixed"]
}

// bloated returns how many seconds in a row had a p95 above a bound, in ms.
func bloated(line *verdict.Timeline, bound float64) (most int) {
	var second []float64
	n, next := 0, line.StartS+1
	for i, at := range line.TS {
		if at < line.StartS || at >= line.EndS || line.RTTMs[i] == nil {
			continue
		}
		if at >= next && len(second) > 0 {
			slices.Sort(second)
			if n++; second[len(second)*95/100] <= bound {
				n = 0
			}
			most, next, second = max(most, n), next+1, nil
		}
		second = append(second, *line.RTTMs[i])
	}
	return most
}

// lastMinute returns what a case carried at its end, in Mbit/s.
func lastMinute(line *verdict.Timeline) (sum float64) {
	n := int(60 / line.BinS)
	for _, way := range [][]float64{line.DownMbps, line.UpMbps} {
		last := way[max(len(way)-n, 0):]
		for _, x := range last {
			sum += x / float64(len(last))
		}
	}
	return sum
}

// What a line really carries is found out where nobody has said the most, without bloat;
// beside a call nothing is tried. By day TestFollowLearnsTheMost has it in the simulator.
func TestFollowLearnsInLab(t *testing.T) {
	t.Parallel()
	needLong(t)
	overDraws(t, func(d *draw) {
		s := followScenario(t, "follow-learns")
		all := d.follow(s, "fixed", "follows")
		f, fixed := all["follows"].result.Test.Loaded.Series, all["fixed"].result.Test.Loaded.Series
		d.AtLeast("the last minute, of a plan's for 95 % of the line", lastMinute(f)/lastMinute(fixed), 0.92/0.95)
		d.AtMost("seconds in a row with more than 30 ms", float64(bloated(f, unit.Ms(s.Line.RTT)+30)), 1)

		s.Test.Seconds = 30 * time.Second
		s.Loads = append(s.Loads, scenario.Load{Kind: scenario.WebRTC, Flows: 1, Host: 3, Bitrate: 800 * unit.KbitPerSecond})
		most, said := d.follow(s, "follows")["follows"].shapers, s.Cases[len(s.Cases)-1].Router.Daemon
		d.AtMost("beside a call, of what is said to be there", max(most.Down.Most/float64(said.Down), most.Up.Most/float64(said.Up)), 1.001)
	})
}

// A line whose own delay is 40 ms longer under load is used all the same.
func TestFollowFloorInLab(t *testing.T) {
	t.Parallel()
	overDraws(t, func(d *draw) {
		s := followScenario(t, "follow-floor")
		narrower(s)
		lasting(s, 25*time.Second)
		d.AtLeast("down, of the line", 1e6*d.follow(s, "follows")["follows"].down/float64(s.Line.Down), by(0.7, 0.85))
	})
}

// After an hour without load the first second of a greedy upload is without bloat.
func TestFollowAfterIdleInLab(t *testing.T) {
	t.Parallel()
	overDraws(t, func(d *draw) {
		s := followScenario(t, "follow-steps-up")
		s.Line.Vary = nil
		s.Test.Idle, s.Test.Seconds = time.Duration(by(5, 59))*time.Minute, 5*time.Second // a phase is no longer than an hour
		c := d.follow(s, "follows")["follows"].result
		line := c.Test.Loaded.Series
		var first []float64
		for i, at := range line.TS {
			if at >= line.StartS && at < line.StartS+1 && line.RTTMs[i] != nil {
				first = append(first, *line.RTTMs[i])
			}
		}
		slices.Sort(first)
		if len(first) < 40 {
			t.Fatalf("%d answers in the first second", len(first))
		}
		d.AtMost("p95 in the first second, ms", first[len(first)*95/100], 100)
	})
}

// When no reflector answers any more, the connections' own round trips are followed.
func TestFollowSilentInLab(t *testing.T) {
	t.Parallel()
	overDraws(t, func(d *draw) {
		s := followScenario(t, "follow-silent")
		narrower(s)
		if !labtest.Long() {
			s.Line.Vary[0].At = s.Test.Idle
		}
		stepped(s, 12*time.Second, 6*time.Second)
		f := d.follow(s, "follows")["follows"]
		if labtest.Long() {
			d.AtMost("p95, ms", f.p95, 60)
		}
		d.AtMost("mean, ms", f.mean, by(meanByDay, 60))
		d.AtLeast("down + up, Mbit/s", f.sum(), by(sumByDay, 35.5))
	})
}

// callLoss is the share of a call's packets that was lost, of both ways together.
func callLoss(d *draw, f followed) float64 {
	c := loadOf(d, f.result, scenario.WebRTC).Call
	return c.Up.PacketLoss + c.Down.PacketLoss
}

// A queue that drops what waits longest shows congestion as loss, and nobody answers ICMP
// timestamps: a call beside four downloads and four uploads loses at most a third of what
// it does with cake-autorate, and little is lost against shapers that know the line.
func TestFollowHeadDropInLab(t *testing.T) {
	t.Parallel()
	// Of cake-autorate (commit 94238be) on this line, where it is not here.
	const autorates = 0.0424
	overDraws(t, func(d *draw) {
		s := followScenario(t, "follow-headdrop")
		lasting(s, 40*time.Second)
		names := []string{"follows", "oracle"}
		if labtest.Long() {
			names = append(names, "cake-autorate")
		}
		all := d.follow(s, names...)
		f := all["follows"]
		theirs := autorates
		if peer, ok := all["cake-autorate"]; ok {
			theirs = callLoss(d, peer)
		}
		d.AtMost("lost of the call, of cake-autorate's", callLoss(d, f)/theirs, by(0.4, 1.0/3)) // a day's 40 s vary more than a night's 120
		d.AtLeast("goodput, of the oracle's", f.sum()/all["oracle"].sum(), 0.85)
	})
}

// What a radio link loses whatever it carries cuts nothing.
func TestFollowRadioLossInLab(t *testing.T) {
	t.Parallel()
	overDraws(t, func(d *draw) {
		f, fixed := d.besidePlan("follow-radio-loss", time.Minute)
		d.AtLeast("goodput, of the plan's", f.sum()/fixed.sum(), by(0.9, 0.95))
	})
}

// A line that varies as Wi-Fi does, its level another each second or so, has neither
// much delay nor waste. By day this stands for the comparisons below, whose
// peer no Debian has.
func TestFollowWiFiInLab(t *testing.T) {
	t.Parallel()
	overDraws(t, func(d *draw) {
		s := followScenario(t, "follow-wifi")
		lasting(s, 20*time.Second)
		f := d.follow(s, "follows")["follows"]
		d.AtMost("p95, ms", f.p95, by(80, 90))              // with fixed rates 178 by day, 3462 at night; one that never cuts has 484
		d.AtLeast("down + up, Mbit/s", f.sum(), by(40, 36)) // one that never rises has 33
	})
}

// While a line falls to a third and comes back, a video call beside a download and an
// upload hardly stands still, and is heard.
func TestFollowCallInLab(t *testing.T) {
	t.Parallel()
	overDraws(t, func(d *draw) {
		s := followScenario(t, "follow-steps")
		narrower(s)
		stepped(s, 4*time.Second, 6*time.Second)
		for i := range s.Loads {
			s.Loads[i].Flows, s.Loads[i].Host = 1, 2
		}
		s.Loads = append(s.Loads, scenario.Load{Kind: scenario.WebRTC, Flows: 1, Host: 1, Bitrate: 800 * unit.KbitPerSecond})
		f := d.follow(s, "follows")["follows"]
		d.AtMost("frozen, s", f.frozen, 1)
		d.AtLeast("sound, MOS", loadOf(d, f.result, scenario.WebRTC).Call.MOS(), 3.8)
	})
}

// betterThanPeer holds a comparison with cake-autorate: better in p95 and in goodput on
// all lines but one, and on that one neither more than 5 % worse.
func betterThanPeer(t *testing.T, names ...string) {
	t.Helper()
	needLong(t)
	if _, err := lab.FindAutorate(); err != nil {
		t.Skipf("SKIPPED: %v", err)
	}
	won := 0
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			var delay, goodput float64 // by how much more than the peer's, summed over the draws
			overDraws(t, func(d *draw) {
				all := d.follow(followScenario(t, name), "cake-autorate", "follows")
				f, peer := all["follows"], all["cake-autorate"]
				delay += f.p95/peer.p95 - 1
				goodput += f.sum()/peer.sum() - 1
				d.AtMost("p95, of cake-autorate's", f.p95/peer.p95, 1.05)
				d.AtLeast("goodput, of cake-autorate's", f.sum()/peer.sum(), 0.95)
			})
			if delay < 0 && goodput > 0 {
				won++
			}
		})
	}
	if won < len(names)-1 {
		t.Errorf("better than cake-autorate on %d of %d lines", won, len(names))
	}
}

// Lines that vary as satellites, cable, Wi-Fi and LTE do.
func TestFollowVaryingLinesInLab(t *testing.T) {
	betterThanPeer(t, "follow-starlink", "follow-cable", "follow-wifi", "follow-lte")
}

// Recorded mobile lines, where there are any.
func TestFollowRecordedLinesInLab(t *testing.T) {
	betterThanPeer(t, "follow-lte-tmobile", "follow-lte-att", "follow-lte-verizon", "follow-umts-tmobile")
}

// A video call freezes for three tenths less than with cake-autorate; what an outage of
// the line brings is left out.
func TestFollowCallsInLab(t *testing.T) {
	needLong(t)
	if _, err := lab.FindAutorate(); err != nil {
		t.Skipf("SKIPPED: %v", err)
	}
	for _, name := range []string{"follow-call-lte-tmobile", "follow-call-lte-att", "follow-call-lte-verizon", "follow-call-umts-tmobile"} {
		t.Run(name, func(t *testing.T) {
			var ours, theirs float64
			overDraws(t, func(d *draw) {
				all := d.follow(followScenario(t, name), "cake-autorate", "follows")
				ours, theirs = ours+all["follows"].frozen, theirs+all["cake-autorate"].frozen
			})
			// Of the sums: on some draws a call hardly freezes with either.
			if ours > 0.7*theirs {
				t.Errorf("frozen for %.1f s; with cake-autorate %.1f s", ours, theirs)
			}
		})
	}
}
