package lab_test

import "testing"

// The ways to shape on a router with weak cores hold the same rates and the same delay;
// without classes, and with a flow table, they cost the processor less.
func TestWeakRouter(t *testing.T) {
	if !long() {
		t.Skip("SKIPPED: five homes at 100 Mbit/s; `make test-long` runs it")
	}
	overDraws(t, func(d *draw) {
		cases := d.run("weak-router", "none", "ifb", "lan", "lan-without-classes", "flow-table")
		d.atLeast("without a shaper: p95 increase, ms", cases["none"].Test.Loaded.Latency.IncreaseMs.P95, 100)
		cost := func(name string) float64 { return cases[name].ProcessorSeconds - cases["none"].ProcessorSeconds }
		for _, name := range []string{"ifb", "lan", "lan-without-classes", "flow-table"} {
			p := cases[name].Test.Loaded
			d.atMost(name+": p95 increase, ms", p.Latency.IncreaseMs.P95, 5)
			d.atMost(name+": loss", p.Latency.Loss, 0)
			d.atLeast(name+": goodput down, of the shaper", p.GoodputDownBps/90e6, 0.9)
			d.atLeast(name+": goodput up, of the shaper", p.GoodputUpBps/19e6, 0.8)
			d.Logf("%s: %.2f s of the processor", name, cost(name))
		}
		d.atMost("flow table: processor, of what the ifb with classes takes", cost("flow-table")/cost("ifb"), 0.8)
	})
}
