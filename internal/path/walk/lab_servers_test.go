package walk_test

import (
	"testing"
	"time"

	"unbloat/internal/lab"
	"unbloat/internal/lab/labtest"
)

// The load of any server will do, whatever protocol it speaks: the increase
// begins at the same link, and what got through is what the line carries. A test
// of ndt7 ends after ten seconds, so that its flows begin anew twice meanwhile.
func TestLabPathOtherServers(t *testing.T) {
	if !labtest.Inside(t, labtest.Options{Node: lab.Host(1), Server: true}) {
		return
	}
	for _, c := range []struct {
		server string
		least  float64
	}{
		{"cloudflare+http://" + lab.ServerAddr + ":7680", 4.5e6},
		{"ndt7+ws://" + lab.ServerAddr + ":7680", 4e6},
		{"iperf3://" + lab.ServerAddr, 4.5e6},
	} {
		r := trace(t, nil, lab.ServerAddr, "--load", c.server, "--direction", "up")
		way(t, r, home4()...)
		loaded(t, r, 960)
		if up := r.Load.GoodputUpBps; up < c.least || up > 5e6 || r.Load.GoodputDownBps != 0 || r.Load.Server != c.server {
			t.Errorf("the load of %s moved %v up, %v down", r.Load.Server, up, r.Load.GoodputDownBps)
		}
		time.Sleep(5 * time.Second) // the queue drains
	}
}
