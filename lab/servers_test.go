package lab_test

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
	"time"

	"unbloat/internal/cure/tune"
	"unbloat/lab"
	"unbloat/lab/scenario"
	"unbloat/testkit/labtest"
	"unbloat/unit"
)

// narrow returns a slow line: with few packets, virtual seconds pass quickly.
func narrow() *scenario.Scenario {
	s := labtest.Home()
	s.Line = scenario.Line{Down: 12 * unit.MbitPerSecond, Up: 3 * unit.MbitPerSecond, RTT: 20 * time.Millisecond, BufferDown: 750 * unit.KB, BufferUp: 200 * unit.KB}
	return s
}

// tuneAgainst tunes once, and reverts.
func tuneAgainst(t *testing.T, server string) *tune.Result {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), labtest.Unbloat(), "tune", "--server", server, "--wan", lab.RouterWAN, "--lan", lab.RouterLAN, "--json", "--insecure", "--goal", "10ms")
	var said strings.Builder
	cmd.Stderr = &said
	out, _ := cmd.Output()
	var r tune.Result
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("tune against %s: %v: %s", server, err, said.String())
	}
	if !r.Kept || !r.GoalHeld {
		t.Fatalf("tune against %s: kept %v, goal held %v: %s\n%s", server, r.Kept, r.GoalHeld, r.Reason, said.String())
	}
	if out, err := exec.CommandContext(t.Context(), labtest.Unbloat(), "revert").CombinedOutput(); err != nil {
		t.Fatalf("revert: %v: %s", err, out)
	}
	time.Sleep(3 * time.Second)
	return &r
}

// A tuning ends at the same rates with every server protocol: within 3 % of
// those with our own. By day one of the others stands for all.
func TestTuneAgainstOtherServers(t *testing.T) {
	t.Parallel()
	if !labtest.Inside(t, labtest.Options{Node: lab.NodeRouter, Server: true, Scenario: narrow(), Env: longEnv()}) {
		return
	}
	servers := []string{"cloudflare+https://" + lab.ServerAddr + ":7680"}
	if long() {
		servers = append(servers, "ndt7+ws://"+lab.ServerAddr+":7680", "iperf3://"+lab.ServerAddr)
	}
	native := tuneAgainst(t, lab.Server())
	t.Logf("native: line %s, %s; shaped to %s, %s; %.0f s, %d trials", native.LineDownBps.Short(), native.LineUpBps.Short(), native.Plan.DownBps.Short(), native.Plan.UpBps.Short(), native.LineSeconds, len(native.Trials))
	for _, server := range servers {
		r := tuneAgainst(t, server)
		t.Logf("%s: line %s, %s; shaped to %s, %s; probes %q; %.0f s, %d trials", server, r.LineDownBps.Short(), r.LineUpBps.Short(), r.Plan.DownBps.Short(), r.Plan.UpBps.Short(), r.After.Probe, r.LineSeconds, len(r.Trials))
		for _, x := range r.Trials {
			t.Logf("  %s, %s: p95 +%.1f ms down, +%.1f up, held %t %s", x.Down.Short(), x.Up.Short(), x.DownMs, x.UpMs, x.Held, x.Unproven)
		}
		for way, share := range map[string]float64{"down": float64(r.Plan.DownBps) / float64(native.Plan.DownBps), "up": float64(r.Plan.UpBps) / float64(native.Plan.UpBps)} {
			within(t, server+" "+way+" over native", share, 0.97, 1.03)
		}
		if r.After.Probe != "icmp "+lab.ServerAddr {
			t.Errorf("%s: the delay is that of %q", server, r.After.Probe)
		}
	}
}
