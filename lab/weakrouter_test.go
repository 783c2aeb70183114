package lab_test

import (
	"testing"

	"unbloat/testkit/labtest"
)

// The ways to shape on a router with weak cores hold the same rates and the same delay;
// without classes, and with a flow table, they cost the processor less.
func TestWeakRouter(t *testing.T) {
	if !labtest.Long() {
		t.Skip("SKIPPED: five homes at 100 Mbit/s; `make test-long` runs it")
	}
	overDraws(t, func(d *draw) {
		cases := d.run("weak-router", "none", "ifb", "lan", "lan-without-classes", "flow-table")
		d.AtLeast("without a shaper: p95 increase, ms", cases["none"].Test.Loaded.Latency.IncreaseMs.P95, 100)
		cost := func(name string) float64 { return cases[name].ProcessorSeconds - cases["none"].ProcessorSeconds }
		for _, name := range []string{"ifb", "lan", "lan-without-classes", "flow-table"} {
			p := cases[name].Test.Loaded
			d.AtMost(name+": p95 increase, ms", p.Latency.IncreaseMs.P95, 5)
			d.AtMost(name+": loss", p.Latency.Loss, 0)
			d.AtLeast(name+": goodput down, of the shaper", p.GoodputDownBps/90e6, 0.9)
			d.AtLeast(name+": goodput up, of the shaper", p.GoodputUpBps/19e6, 0.8)
			d.Logf("%s: %.2f s of the processor", name, cost(name))
		}
		d.AtMost("flow table: processor, of what the ifb with classes takes", cost("flow-table")/cost("ifb"), 0.8)
	})
}
