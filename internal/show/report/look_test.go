package report

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"unbloat/internal/cure/plan"
	"unbloat/internal/measure/path"
	"unbloat/reason"
	"unbloat/testkit/await"
	"unbloat/unit"
)

// TestSamples writes sample reports in every format: to the directory
// $REPORT_LOOK, for a look in a browser, or to a temporary one.
func TestSamples(t *testing.T) {
	await.NotShort(t)
	dir := os.Getenv("REPORT_LOOK")
	if dir == "" {
		dir = t.TempDir()
	}
	for name, p := range samplePages() {
		for _, ext := range []string{".html", ".svg", ".png", ".csv", ".json", ".flent.gz"} {
			if ext == ".flent.gz" && len(p.runs()) != 1 {
				continue
			}
			if err := WriteFile(filepath.Join(dir, name+ext), p); err != nil {
				t.Error(err)
			}
		}
	}
}

func samplePages() map[string]Page {
	b, a := fakeTest(before()), fakeTest(after())
	weak := after()
	weak.label, weak.queueUp, weak.seed = "fq_codel", 1400, 3
	bad := fakeTest(weak)
	inv := fakeTest(after())
	inv.Valid, inv.Grade, inv.InvalidReasons = false, "", []string{"the CPU of this machine was 97 % busy", "probes left up to 14 ms late"}
	inv.Label = "<script>alert(1)</script> \"quoted\" & a label that goes on and on until it no longer fits anywhere at all"
	goal := 5 * time.Millisecond
	pl := &plan.Plan{Schema: plan.Schema, Platform: "openwrt", WAN: "eth1", DownBps: 28500 * unit.KbitPerSecond, UpBps: 4600 * unit.KbitPerSecond, AQM: plan.CAKE, Goal: goal,
		Reasons: []plan.Reason{{Field: "up.rate", Value: reason.Written("4.6 Mbit/s"), Why: reason.Written("95 % of the 4.8 Mbit/s that were measured, so that packets wait here and not in the modem")}, {Field: "up.overhead", Value: reason.Written("18"), Why: reason.Written("DOCSIS counts the Ethernet header and its checksum")}}}
	return map[string]Page{
		"pair": {Before: b, After: a, Plan: pl, Goal: 10 * time.Millisecond, Steps: []Step{
			{"as found", 0, 0, "grade F", b},
			{"trial 1", 30 * unit.MbitPerSecond, 5 * unit.MbitPerSecond, "too slow to answer: p95 over the goal", bad},
			{"trial 2", 28500 * unit.KbitPerSecond, 4600 * unit.KbitPerSecond, "kept", a},
		}},
		"single":  {After: b},
		"worse":   {Before: b, After: bad},
		"invalid": {Before: b, After: inv},
		"path":    {Paths: []*path.Result{fakePath()}},
		"all":     {Before: b, After: a, Paths: []*path.Result{fakePath()}},
	}
}
