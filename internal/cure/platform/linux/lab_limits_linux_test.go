package linux_test

import (
	"strings"
	"testing"
	"time"

	"unbloat/internal/measure/verdict"
	"unbloat/lab"
	"unbloat/testkit/labtest"
)

// TestHardLimitInLab, on a real kernel behind NAT: a machine with a limit carries no more than
// that in either direction while the line is free, and without it all of the line. Read back
// it is as wanted; a table that somebody took away comes back; revert leaves what
// was there.
func TestHardLimitInLab(t *testing.T) {
	if !labtest.Inside(t, labtest.Options{Node: lab.Host(1), Server: true}) {
		return
	}
	router := onRouter(t)
	const home = "10.1.0.2" // of home1
	before := stateOf(router)
	measure := loads(t, "limits")
	load := func(label string) *verdict.Phase {
		t.Helper()
		p := measure(label, 15*time.Second, 2)
		t.Logf("%s: down %.2f, up %.2f Mbit/s", label, p.GoodputDownBps/1e6, p.GoodputUpBps/1e6)
		return p
	}
	plan := func(args ...string) string {
		return planFile(t, router, append([]string{"--classes", "off"}, args...)...)
	}
	apply := func(file string) { router(true, labtest.Unbloat(), "apply", "--yes", file) }
	apply(plan())
	free := load("no limit")
	limit := plan("--hard-limit", home+" 8 Mbit/s / 2 Mbit/s")
	apply(limit)
	if table := router(true, "nft", "list", "table", "inet", "unbloat_wan"); strings.Count(table, "limit rate over") != 2 {
		t.Errorf("the limits are not there:\n%s", table)
	}
	bound := load("8 Mbit/s down, 2 Mbit/s up")
	if free.GoodputDownBps < 15e6 || free.GoodputUpBps < 3e6 {
		t.Errorf("without a limit: down %.2f, up %.2f Mbit/s", free.GoodputDownBps/1e6, free.GoodputUpBps/1e6)
	}
	if d, u := bound.GoodputDownBps, bound.GoodputUpBps; d > 8.2e6 || d < 4e6 || u > 2.05e6 || u < 1e6 {
		t.Errorf("with limits of 8 and 2 Mbit/s: down %.2f, up %.2f Mbit/s", d/1e6, u/1e6)
	}
	if out := router(true, labtest.Unbloat(), "status"); strings.Contains(out, "table inet unbloat") {
		t.Errorf("status sees a difference: %s", out)
	}
	router(true, "nft", "delete", "table", "inet", "unbloat_wan")
	if out := router(false, labtest.Unbloat(), "status"); !strings.Contains(out, "table inet unbloat_wan is missing") {
		t.Errorf("status does not see that the table is gone:\n%s", out)
	}
	apply(limit)
	if table := router(true, "nft", "list", "table", "inet", "unbloat_wan"); strings.Count(table, "limit rate over") != 2 {
		t.Errorf("the limits did not come back:\n%s", table)
	}
	for range 3 { // one for each that was applied
		router(true, labtest.Unbloat(), "revert")
		if stateOf(router) == before {
			break
		}
	}
	if after := stateOf(router); after != before {
		t.Errorf("revert left\n%s\nwhere there was\n%s", after, before)
	}
}
