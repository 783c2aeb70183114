package linux_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"unbloat/internal/measure/verdict"
	"unbloat/lab"
	"unbloat/testkit/labtest"
)

// TestFlowTableInLab, on a real kernel: with a flow table connections go past the rules of
// the forward chain, which a counter there shows, and their rates are held all the same.
// Read back there is nothing left to do; a table that somebody took away comes back; and
// revert leaves what was there.
func TestFlowTableInLab(t *testing.T) {
	if !labtest.Inside(t, labtest.Options{Node: lab.Host(1), Server: true}) {
		return
	}
	router := onRouter(t)
	const counted = "table inet counting {\n chain seen { type filter hook forward priority 10; counter; }\n}\n"
	rules := filepath.Join(t.TempDir(), "rules")
	if err := os.WriteFile(rules, []byte(counted), 0o600); err != nil {
		t.Fatal(err)
	}
	router(true, "nft", "-f", rules)
	before := stateOf(router)
	seen := func() (packets string) {
		for line := range strings.Lines(router(true, "nft", "list", "table", "inet", "counting")) {
			if f := strings.Fields(line); len(f) > 2 && f[0] == "counter" {
				packets = f[2]
			}
		}
		return packets
	}
	measure := loads(t, "flowtable")
	load := func(label string) *verdict.Phase {
		t.Helper()
		p := measure(label, 11*time.Second, 4)
		t.Logf("%s: p95 increase %.1f ms, loss %.2f %%, down %.2f, up %.2f Mbit/s; the forward chain saw %s packets", label, p.Latency.IncreaseMs.P95, 100*p.Latency.Loss, p.GoodputDownBps/1e6, p.GoodputUpBps/1e6, seen())
		return p
	}
	plan := func(args ...string) string {
		return planFile(t, router, append([]string{"--side", "lan"}, args...)...)
	}
	count := func() (n int) {
		for _, d := range seen() {
			n = 10*n + int(d-'0')
		}
		return n
	}
	apply := func(file string, args ...string) string {
		return router(true, append([]string{labtest.Unbloat(), "apply", "--yes", file}, args...)...)
	}
	apply(plan("--classes", "off"))
	n := count()
	plain := load("side lan without the flow table")
	all := count() - n
	short := plan("--flow-table")
	apply(short)
	n = count()
	got := load("with the flow table")
	past := count() - n
	if all < 20_000 || past > all/10 {
		t.Errorf("the forward chain saw %d packets without the flow table and %d with it", all, past)
	}
	for _, x := range []struct {
		name        string
		got, plain  float64
		least, most float64
	}{
		{"down", got.GoodputDownBps, plain.GoodputDownBps, 0.8 * 27e6, 27e6}, {"up", got.GoodputUpBps, plain.GoodputUpBps, 0.8 * 4.75e6, 4.75e6},
	} {
		if x.got < x.least || x.got > x.most || x.got < 0.97*x.plain {
			t.Errorf("%s: %.2f Mbit/s, without the flow table %.2f", x.name, x.got/1e6, x.plain/1e6)
		}
	}
	if got.Latency.IncreaseMs.P95 > plain.Latency.IncreaseMs.P95+3 {
		t.Errorf("p95 increase %.1f ms, without the flow table %.1f", got.Latency.IncreaseMs.P95, plain.Latency.IncreaseMs.P95)
	}
	if out := apply(short, "--dry-run"); strings.Contains(out, "nft ") || strings.Contains(out, "tc ") {
		t.Errorf("a second time there is something left to do:\n%s", out)
	}
	if out := router(true, labtest.Unbloat(), "doctor", "--wan", "wan", "--lan", "lan"); strings.Contains(out, "flow table") {
		t.Errorf("the doctor warns of our own table:\n%s", out)
	}
	router(true, "nft", "delete", "table", "inet", "unbloat_wan")
	if out := router(false, labtest.Unbloat(), "status"); !strings.Contains(out, "table inet unbloat_wan is missing") {
		t.Errorf("status does not see that the table is gone:\n%s", out)
	}
	apply(short)
	router(true, "nft", "list", "table", "inet", "unbloat_wan")
	for range 3 { // one for each that was applied
		router(true, labtest.Unbloat(), "revert")
		if stateOf(router) == before {
			break
		}
	}
	if now := stateOf(router); now != before {
		t.Errorf("after revert:\n%s\nbefore:\n%s", now, before)
	}
}
