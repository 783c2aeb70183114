package path_test

import (
	"testing"
	"time"

	"unbloat/lab"
	"unbloat/testkit/labtest"
)

// Any server can be used for the load, with any protocol: the increase begins
// at the same link, and the throughput is the line's. An ndt7 test ends after
// ten seconds, so its flows start again twice.
func TestLabPathOtherServers(t *testing.T) {
	if !labtest.Long() {
		t.Skip("SKIPPED: half a minute of load of each; with UNBLOAT_LONG=1, as in `make laws`, it runs")
	}
	if !hostInLab(t) {
		return
	}
	for _, c := range []struct {
		server string
		least  float64
	}{
		{"cloudflare+http://" + lab.ServerAddr + ":7680", 1.8e6},
		{"ndt7+ws://" + lab.ServerAddr + ":7680", 1.4e6}, // each start again waits three round trips of a second
		{"iperf3://" + lab.ServerAddr, 1.8e6},
	} {
		r := trace(t, nil, lab.ServerAddr, "--load", c.server, "--direction", "up")
		way(t, r, home4()...)
		loaded(t, r, 960)
		if up := r.Load.GoodputUpBps; up < c.least || up > 2e6 || r.Load.GoodputDownBps != 0 || r.Load.Server != c.server {
			t.Errorf("the load of %s moved %v up, %v down", r.Load.Server, up, r.Load.GoodputDownBps)
		}
		time.Sleep(5 * time.Second) // for the queue to drain
	}
}
