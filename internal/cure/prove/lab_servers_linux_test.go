package prove_test

import (
	"encoding/json"
	"testing"

	"unbloat/internal/cure/prove"
	"unbloat/internal/measure/verdict"
	"unbloat/lab"
	"unbloat/testkit/labtest"
)

// A proof works with any server: latency is measured by pings, and the result
// is the same.
func TestProveAgainstOthersInLab(t *testing.T) {
	if !labtest.Long() {
		t.Skip("SKIPPED: two more proofs; UNBLOAT_LONG=1 runs them, as `make test-long` does")
	}
	if !labtest.Inside(t, slowHome()) {
		return
	}
	for _, c := range []struct{ server, load string }{
		{"ndt7+ws://" + lab.ServerAddr + ":7680", verdict.PhaseBoth},
		// Four downloads on such a slow line lose a tenth of their packets in
		// the shaper. An iperf3 server does not report these, so they would
		// look like others' traffic.
		{"iperf3://" + lab.ServerAddr, verdict.PhaseUpload},
	} {
		dir := t.TempDir()
		out, _ := unbloat(t, dir, 0, "prove", "--server", c.server, "--load", c.load, "--wan", "wan", "--lan", "lan", "--store", dir+"/results.db",
			"--seconds", "3", "--idle", "2", "--seed", "1", "--down", "3600kbit", "--up", "900kbit", "--json", "--quiet")
		var r prove.Result
		if err := json.Unmarshal([]byte(out), &r); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %s", c.server, r.Sentence)
		if r.Outcome != verdict.Improved || r.PairsUsed != 5 || r.P95Ms.Hi > -100 {
			t.Errorf("%s: %s: %+v", c.server, r.Sentence, r.P95Ms)
		}
	}
}
