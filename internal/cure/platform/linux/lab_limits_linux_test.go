package linux_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"unbloat/internal/measure/phases"
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
	router := func(want bool, args ...string) string {
		t.Helper()
		out, err := labtest.In(t.Context(), lab.NodeRouter, args...).CombinedOutput()
		if (err == nil) != want {
			t.Fatalf("%q: %v: %s", args, err, out)
		}
		return string(out)
	}
	const home = "10.1.0.2" // of home1
	state := func() string {
		return router(true, "tc", "-d", "qdisc", "show") + router(true, "nft", "-s", "list", "ruleset")
	}
	before := state()
	c, err := phases.Dial(t.Context(), lab.Server(), phases.Options{Agent: "limits"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	load := func(label string) *verdict.Phase {
		t.Helper()
		idle, err := c.Idle(t.Context(), 3*time.Second, nil)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := c.Phase(t.Context(), phases.PhaseSpec{Name: verdict.PhaseLoaded, Duration: 15 * time.Second, CutHead: 5 * time.Second, CutTail: time.Second, FlowsUp: 2, FlowsDown: 2})
		if err != nil {
			t.Fatal(err)
		}
		p := c.Judge(label, []phases.RawPhase{*idle, *raw}).Loaded
		t.Logf("%s: down %.2f, up %.2f Mbit/s", label, p.GoodputDownBps/1e6, p.GoodputUpBps/1e6)
		return p
	}
	plan := func(args ...string) string {
		text := router(true, append([]string{labtest.Unbloat(), "plan", "--here", "--json", "--quiet", "--classes", "off", "--wan", "wan", "--lan", "lan", "--shape-down", "27mbit", "--shape-up", "4.75mbit"}, args...)...)
		file := filepath.Join(t.TempDir(), "plan.json")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	apply := func(file string) { router(true, labtest.Unbloat(), "apply", "--yes", file) }
	apply(plan())
	free := load("no limit")
	limit := plan("--hard-limit", home+" 8 Mbit/s / 2 Mbit/s")
	apply(limit)
	if table := router(true, "nft", "list", "table", "inet", "unbloat"); strings.Count(table, "limit rate over") != 2 {
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
	router(true, "nft", "delete", "table", "inet", "unbloat")
	if out := router(false, labtest.Unbloat(), "status"); !strings.Contains(out, "table inet unbloat is missing") {
		t.Errorf("status does not see that the table is gone:\n%s", out)
	}
	apply(limit)
	if table := router(true, "nft", "list", "table", "inet", "unbloat"); strings.Count(table, "limit rate over") != 2 {
		t.Errorf("the limits did not come back:\n%s", table)
	}
	for range 3 { // one for each that was applied
		router(true, labtest.Unbloat(), "revert")
		if state() == before {
			break
		}
	}
	if after := state(); after != before {
		t.Errorf("revert left\n%s\nwhere there was\n%s", after, before)
	}
}
