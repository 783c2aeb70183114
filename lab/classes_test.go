package lab_test

import (
	"testing"

	"unbloat/internal/measure/verdict"
	"unbloat/testkit/labtest"
)

// A hundred connections in each direction, and a call's packets on the same
// machine: the articles' open problem. Without classes packets of the call are
// lost or wait; with classes they wait for a full packet or two.
func TestManyConnections(t *testing.T) {
	t.Parallel()
	overDraws(t, func(d *draw) {
		clearBesideMany(d, "ours", d.run("many", "ours")["ours"].Test.Loaded)
		if !labtest.Long() {
			return
		}
		// The tuner's result is as good.
		tuned := d.tuning("many")
		keptRates(d, tuned)
		if !tuned.Tune.GoalHeld {
			d.Errorf("tuning did not hold its goal: %s", tuned.Tune.Reason)
		}
		clearBesideMany(d, "tuned", tuned.Test.Loaded)
		cases := d.run("many", "fq_codel", "cake")
		for _, name := range []string{"fq_codel", "cake"} {
			d.AtLeast(name+": p95 increase, ms", cases[name].Test.Loaded.Latency.IncreaseMs.P95, 100)
			d.AtLeast(name+": loss", cases[name].Test.Loaded.Latency.Loss, 0.01)
		}
	})
}

func clearBesideMany(d *draw, name string, p *verdict.Phase) {
	d.AtMost(name+": p95 increase, ms", p.Latency.IncreaseMs.P95, 7)
	d.AtMost(name+": loss", p.Latency.Loss, 0)
	d.AtLeast(name+": goodput down, of the line", p.GoodputDownBps/30e6, 0.78)
	d.AtLeast(name+": goodput up, of the line", p.GoodputUpBps/5e6, 0.80)
}

// A hundred uploads at 1 Mbit/s: a full packet takes 12.7 ms, and no packet can
// interrupt it.
func TestSlowMany(t *testing.T) {
	t.Parallel()
	overDraws(t, func(d *draw) {
		cases := d.run("slow-many", oursAndNightly("fq_codel", "cake")...)
		if labtest.Long() {
			keptWithin(d, cases["ours"], 100)
		}
		ours := cases["ours"].Test.Loaded
		d.AtMost("p95 increase, ms", ours.Latency.IncreaseMs.P95, 15)
		d.AtMost("loss", ours.Latency.Loss, 0)
		// Behind the others it depends on which flows share the probe's queue: CAKE loses
		// most of what the probe sends.
		for name, least := range map[string]struct{ ms, loss float64 }{"fq_codel": {300, 0.02}, "cake": {150, 0.85}} {
			if c, ok := cases[name]; ok {
				d.AtLeast(name+": p95 increase, ms", c.Test.Loaded.Latency.IncreaseMs.P95, least.ms)
				d.AtLeast(name+": loss", c.Test.Loaded.Latency.Loss, least.loss)
			}
		}
	})
}

// The same without CAKE: each class is an HTB class with its own fq_codel, and
// one more is for acknowledgements.
func TestManyHTB(t *testing.T) {
	t.Parallel()
	overDraws(t, func(d *draw) {
		cases := d.run("many-htb", oursAndNightly("fq_codel")...)
		ours := cases["ours"]
		d.AtMost("p95 increase, ms", ours.Test.Loaded.Latency.IncreaseMs.P95, 15)
		d.AtMost("loss", ours.Test.Loaded.Latency.Loss, 0)
		d.AtLeast("goodput down, of the line", ours.Test.Loaded.GoodputDownBps/30e6, 0.78)
		d.AtLeast("goodput up, of the line", ours.Test.Loaded.GoodputUpBps/5e6, 0.68)
		calls := 0
		for _, l := range ours.Loads {
			if l.Voice != nil {
				calls++
				d.AtLeast("MOS of a call", l.Voice.MOS, 4.2)
				d.AtMost("loss of a call", l.Latency.Loss, 0)
			}
		}
		if calls != 2 {
			d.Errorf("%d calls, not 2", calls)
		}
		if flat, ok := cases["fq_codel"]; ok { // it depends on which flows share its queues
			d.AtLeast("fq_codel: p95 increase, ms", flat.Test.Loaded.Latency.IncreaseMs.P95, 50)
			d.AtLeast("fq_codel: loss", flat.Test.Loaded.Latency.Loss, 0.005)
		}
	})
}

// oursAndNightly names the case "ours", and at night those of others beside it.
func oursAndNightly(others ...string) []string {
	if !labtest.Long() {
		return []string{"ours"}
	}
	return append([]string{"ours"}, others...)
}
