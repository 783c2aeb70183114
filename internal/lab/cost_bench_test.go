package lab_test

import (
	"slices"
	"syscall"
	"testing"
	"time"

	"unbloat/internal/lab"
	"unbloat/internal/lab/labtest"
	"unbloat/internal/scenario"
)

const costScenario = `
name = "cost"
title = "1000 flows through a router, with classes and without"
[line]
down = "80 Mbit/s"
up   = "40 Mbit/s"
rtt  = "20 ms"
buffer_down = "2.5 MB"
buffer_up   = "1.5 MB"
[test]
seconds = "8s"
idle = "1s"
[[load]]
kind = "download"
flows = 500
[[load]]
kind = "upload"
flows = 500
[[case]]
name = "without"
router = { aqm = "cake", down = "76 Mbit/s", up = "38 Mbit/s", classes = "off" }
[[case]]
name = "with"
router = { aqm = "cake", down = "76 Mbit/s", up = "38 Mbit/s" }
`

// BenchmarkClasses is what the classes cost: the processor time of a whole guest
// (router, hosts and server) that moves 1000 flows, with them and without, in
// turns. The router forwards a part of that, so its own share is higher.
func BenchmarkClasses(b *testing.B) {
	if _, err := lab.FindKernel(lab.Virtual); err != nil {
		b.Skipf("SKIPPED: %v", err)
	}
	s, err := scenario.Parse("cost.toml", []byte(costScenario))
	if err != nil {
		b.Fatal(err)
	}
	binary := labtest.Binary(b)
	spent := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	of := map[string][]float64{}
	for b.Loop() {
		for _, name := range []string{"without", "with"} {
			before := spent()
			r, err := lab.Run(b.Context(), s, lab.Options{Engine: lab.Virtual, Binary: binary, Cases: []string{name}})
			if err != nil {
				b.Fatal(err)
			}
			p := r.Cases[0].Test.Loaded
			moved := (p.GoodputDownBps + p.GoodputUpBps) / 8 / 1448 * 8 // packets of payload in 8 s
			of[name] = append(of[name], float64(spent()-before)/moved/1e3)
		}
	}
	for _, v := range of {
		slices.Sort(v)
	}
	without, with := of["without"][len(of["without"])/2], of["with"][len(of["with"])/2]
	b.ReportMetric(without, "µs/packet-without")
	b.ReportMetric(with, "µs/packet-with")
	b.ReportMetric(100*(with/without-1), "%-more")
}
