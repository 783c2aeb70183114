package simlab

import (
	"os"
	"testing"

	"unbloat/internal/lab/scenario"
	"unbloat/unit"
)

// Routers without nft: where a daemon reads the states' counters each second and
// fills the table that the rules look up, or rules of iptables do it all (ClearOS),
// calls lose nothing, in the language that the plan is written in there.
func TestCallsWithoutNft(t *testing.T) {
	for _, x := range []struct {
		platform, scenario string
		down, up           unit.Rate
		loss, p95          float64 // at most, p95 in ms
		long               bool
	}{
		{"freebsd", "many", 24 * unit.MbitPerSecond, 4200 * unit.KbitPerSecond, 0.01, 40, false},
		{"freebsd", "torrent-tcp", 21 * unit.MbitPerSecond, 800 * unit.KbitPerSecond, 0.01, 60, false},
		{"freebsd", "call-webrtc", 28 * unit.MbitPerSecond, 4600 * unit.KbitPerSecond, 0.01, 40, false},
		{"freebsd", "call-webrtc-16", 28 * unit.MbitPerSecond, 4600 * unit.KbitPerSecond, 0.01, 40, true},
		{"opnsense", "many", 24 * unit.MbitPerSecond, 4200 * unit.KbitPerSecond, 0.01, 40, false},
		{"opnsense", "torrent-tcp", 21 * unit.MbitPerSecond, 800 * unit.KbitPerSecond, 0.01, 60, true},
		{"opnsense", "call-webrtc", 28 * unit.MbitPerSecond, 4600 * unit.KbitPerSecond, 0.01, 40, true},
		{"clearos", "many", 24 * unit.MbitPerSecond, 4850 * unit.KbitPerSecond, 0.01, 40, false},
		{"clearos", "torrent-tcp", 22 * unit.MbitPerSecond, 900 * unit.KbitPerSecond, 0.01, 60, false},
		{"clearos", "call-webrtc", 29400 * unit.KbitPerSecond, 4950 * unit.KbitPerSecond, 0.01, 40, false},
		{"clearos", "call-webrtc-16", 29400 * unit.KbitPerSecond, 4950 * unit.KbitPerSecond, 0.01, 40, true},
	} {
		t.Run(x.platform+"/"+x.scenario, func(t *testing.T) {
			if testing.Short() || x.long && os.Getenv("UNBLOAT_LONG") == "" {
				t.Skip("SKIPPED: it takes some seconds; run it with UNBLOAT_LONG=1, and without -short")
			}
			s := seed(t, x.scenario)
			s.Cases = []scenario.Case{{Name: "classes", Router: scenario.Router{Mode: scenario.ModeFix, Fix: &scenario.Fix{Down: x.down, Up: x.up, Classes: "on"}}}}
			r, err := Run(t.Context(), s, Options{Seed: 1, Platform: x.platform})
			if err != nil {
				t.Fatal(err)
			}
			c := r.Cases[0]
			latency := c.Test.Loaded.Latency
			t.Logf("probe: p95 %.1f ms, loss %.4f", latency.IncreaseMs.P95, latency.Loss)
			if latency.Loss > x.loss || latency.IncreaseMs.P95 > x.p95 {
				t.Errorf("the probe: p95 %.1f ms, loss %.4f; at most %.0f ms, %.2f", latency.IncreaseMs.P95, latency.Loss, x.p95, x.loss)
			}
			for _, l := range c.Loads {
				if l.Kind != scenario.VoIP && l.Kind != scenario.WebRTC {
					continue
				}
				t.Logf("%s on home%d: loss %.4f", l.Kind, l.Host, l.Latency.Loss)
				if l.Latency.Loss > x.loss {
					t.Errorf("%s on home%d loses %.4f", l.Kind, l.Host, l.Latency.Loss)
				}
				if l.Call != nil {
					t.Logf("%+v", *l.Call)
				}
			}
		})
	}
}
