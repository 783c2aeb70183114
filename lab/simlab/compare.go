package simlab

import (
	"math"
	"slices"

	"unbloat/internal/measure/verdict"
	"unbloat/lab"
)

// A Row is one figure of a phase, measured on a real kernel and simulated.
type Row struct {
	Case, Phase, Figure string
	Lab                 float64
	Sim                 float64   // median over the seeds
	Least, Most         float64   // of the seeds
	Each                []float64 // by seed
	Agrees              bool
}

// What counts as agreement: shares of the lab's figure, or at least so much.
const (
	goodputShare = 0.03
	delayShare   = 0.10
	delayMs      = 1.0
	dropShare    = 0.15
	dropLeast    = 0.003 // a share of packets: fewer lost ones are chance
	goodputLeast = 0.02  // Mbit/s: less than a probe stream
)

// A figure is what is compared, and how near it has to be.
type figure struct {
	name  string
	of    func(*verdict.Phase) float64
	share float64
	least float64
}

func figures() []figure {
	return []figure{
		{"down Mbit/s", func(p *verdict.Phase) float64 { return p.GoodputDownBps / 1e6 }, goodputShare, goodputLeast},
		{"up Mbit/s", func(p *verdict.Phase) float64 { return p.GoodputUpBps / 1e6 }, goodputShare, goodputLeast},
		{"p50 ms", func(p *verdict.Phase) float64 { return p.Latency.RTTMs.P50 }, delayShare, delayMs},
		{"p95 ms", func(p *verdict.Phase) float64 { return p.Latency.RTTMs.P95 }, delayShare, delayMs},
		{"probe loss", func(p *verdict.Phase) float64 { return p.Latency.Loss }, dropShare, dropLeast},
		{"resent", resent, dropShare, dropLeast},
	}
}

// resent returns the share of segments that were sent again: what the queues
// dropped of the load.
func resent(p *verdict.Phase) float64 {
	segments := (p.GoodputDownBps + p.GoodputUpBps) * p.Seconds / 8 / 1448
	if segments <= 0 {
		return 0
	}
	return float64(p.Retransmits) / segments
}

// Compare sets the simulator's results, one for each seed, beside the lab's.
func Compare(real *lab.Result, sims []*lab.Result) []Row {
	var out []Row
	for i, c := range real.Cases {
		for k, phase := range c.Test.Phases() {
			for _, f := range figures() {
				row := Row{Case: c.Name, Phase: phase.Name, Figure: f.name, Lab: f.of(phase.Phase)}
				for _, s := range sims {
					row.Each = append(row.Each, f.of(s.Cases[i].Test.Phases()[k].Phase))
				}
				sorted := slices.Sorted(slices.Values(row.Each))
				row.Least, row.Most = sorted[0], sorted[len(sorted)-1]
				row.Sim = sorted[len(sorted)/2]
				row.Agrees = math.Abs(row.Sim-row.Lab) <= max(f.share*math.Abs(row.Lab), f.least)
				if row.Lab != 0 || row.Most != 0 {
					out = append(out, row)
				}
			}
		}
	}
	return out
}
