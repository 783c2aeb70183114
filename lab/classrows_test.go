package lab_test

import (
	"slices"
	"testing"

	"unbloat/lab"
	"unbloat/lab/scenario"
	"unbloat/scenarios"
	"unbloat/testkit/labtest"
	"unbloat/unit"
)

// A classRow is a scenario, and what the classes hold in it.
type classRow struct {
	scenario string
	fix      scenario.Fix
	median   float64 // ms that the 95th percentile of the probe's delay is above idle at most, in the median of the seeds
	worst    float64 // and in the worst
}

// The rows of docs/classes.md over five seeds: the median and the worst of the probe's
// delay, and that no more than a thousandth of its packets is lost.
func TestClassRows(t *testing.T) {
	needLong(t)
	kbit := unit.KbitPerSecond
	at := func(aqm string, down, up unit.Rate) scenario.Fix {
		// Who asks for fq_codel gets no classes unless they ask for them too.
		return scenario.Fix{AQM: aqm, Down: down * kbit, Up: up * kbit, Classes: "on"}
	}
	for _, row := range []classRow{
		{"many", at("cake", 25_800, 4980), 9, 12},
		{"many-htb", at("fq_codel", 24_000, 4850), 9, 12},
		{"bulk-200", at("cake", 29_400, 4950), 5.3, 8.3},
		{"slow-many", at("cake", 14_700, 992), 14.6, 17.6},
		{"torrent-tcp", at("cake", 22_000, 989), 15, 18},
		{"torrent-utp", at("cake", 22_000, 989), 14, 17},
		{"flood", at("cake", 14_700, 986), 14, 17},
		{"slow-uplink", at("cake", 14_700, 989), 70, 80},
	} {
		t.Run(row.scenario, func(t *testing.T) {
			t.Parallel()
			var delays []float64
			for seed := range uint64(5) {
				l := classRowOf(t, row, seed+1).Test.Loaded.Latency
				delays = append(delays, l.IncreaseMs.P95)
				if l.Loss > 0.001 {
					t.Errorf("seed %d: %.2g of the packets are lost", seed+1, l.Loss)
				}
			}
			slices.Sort(delays)
			t.Logf("p95 %.2f ms", delays)
			if delays[2] > row.median || delays[4] > row.worst {
				t.Errorf("p95 of the median seed %.2f ms, of the worst %.2f; at most %.1f and %.1f", delays[2], delays[4], row.median, row.worst)
			}
		})
	}
}

// classRowOf runs a row once, and fails if its router has no classes by behaviour.
func classRowOf(t *testing.T, row classRow, seed uint64) lab.CaseResult {
	t.Helper()
	labtest.NeedKernel(t)
	text, err := scenarios.Text(row.scenario)
	if err != nil {
		t.Fatal(err)
	}
	s, err := scenario.Parse(row.scenario+".toml", text)
	if err != nil {
		t.Fatal(err)
	}
	fix := row.fix
	s.Cases = []scenario.Case{{Name: "classes", Router: scenario.Router{Mode: scenario.ModeFix, Fix: &fix}}}
	r, err := lab.Run(t.Context(), s, lab.Options{Engine: lab.Virtual, Programs: labtest.Programs(t), Seed: seed})
	if err != nil {
		t.Fatal(err)
	}
	if p := r.Cases[0].Plan; p == nil || !p.ByBehaviour() {
		t.Fatalf("the router of %s has no classes by behaviour", row.scenario)
	}
	return r.Cases[0]
}
