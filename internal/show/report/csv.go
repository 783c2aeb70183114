package report

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"math"
	"strconv"
	"strings"

	"unbloat/internal/measure/path"
	"unbloat/internal/measure/verdict"
)

// writeCSV writes everything in one tidy table, a value a line:
//
//	run,label,time,phase,series,t_s,value,unit
//
// Lines without t_s are figures of the phase; those with t_s are its series:
// rtt (one line a probe, an empty value is a lost probe), download and upload.
func writeCSV(b *bytes.Buffer, p Page) error {
	w := csv.NewWriter(b)
	if err := w.Write([]string{"run", "label", "time", "phase", "series", "t_s", "value", "unit"}); err != nil {
		return err
	}
	for i, r := range p.runs() {
		name := r.name
		if name == "" {
			name = "test"
		}
		c := csvRun{w: w, lead: []string{strconv.Itoa(i+1) + " " + name, inert(clean(r.test.Label)), inert(clean(r.test.Time))}}
		for _, q := range r.test.Phases() {
			c.figures(q)
			c.series(q)
		}
	}
	for i, t := range p.Paths {
		csvRun{w: w, lead: []string{strconv.Itoa(len(p.runs())+i+1) + " path", inert(clean(t.Host)), inert(clean(t.Time))}}.hops(t)
	}
	w.Flush()
	return w.Error()
}

// inert keeps a spreadsheet from taking a label for a formula.
func inert(s string) string {
	if s != "" && strings.ContainsRune("=+-@", rune(s[0])) {
		return "'" + s
	}
	return s
}

type csvRun struct {
	w    *csv.Writer
	lead []string // run, label, time
}

func (c csvRun) line(phase, series, t string, v float64, unit string) {
	value := ""
	if !math.IsNaN(v) && !math.IsInf(v, 0) {
		value = strconv.FormatFloat(v, 'g', -1, 64)
	}
	// Write only fails when its buffer's writer does; Flush reports that.
	_ = c.w.Write(append(append([]string{}, c.lead...), phase, series, t, value, unit))
}

func (c csvRun) figures(p verdict.NamedPhase) {
	l := p.Latency
	for _, f := range []struct {
		name  string
		value float64
		unit  string
	}{
		{"seconds", p.Seconds, "s"}, {"sent", float64(l.Sent), ""}, {"received", float64(l.Received), ""},
		{"loss", l.Loss, "fraction"}, {"loss_up", l.LossUp, "fraction"}, {"loss_down", l.LossDown, "fraction"},
		{"goodput_down", p.GoodputDownBps, "bit/s"}, {"goodput_up", p.GoodputUpBps, "bit/s"},
		{"cpu", p.CPU, "fraction"}, {"probe_lateness_p99", p.ProbeLatenessMs.P99, "ms"}, {"ipdv", l.IPDVMs, "ms"},
	} {
		c.line(p.Name, f.name, "", f.value, f.unit)
	}
	if l.Received <= 0 {
		return
	}
	for _, d := range []struct {
		name string
		q    verdict.Quantiles
	}{{"rtt", l.RTTMs}, {"increase", l.IncreaseMs}, {"up", l.UpMs}, {"down", l.DownMs}} {
		q := d.q
		for i, v := range []float64{q.Min, q.Mean, q.P50, q.P90, q.P95, q.P99, q.Max} {
			c.line(p.Name, d.name+"_"+[]string{"min", "mean", "p50", "p90", "p95", "p99", "max"}[i], "", v, "ms")
		}
	}
}

// hops writes the figures of every hop.
func (c csvRun) hops(t *path.Result) {
	for _, h := range t.Hops {
		name := fmt.Sprintf("hop %d %s", h.Hop, clean(h.Address))
		for _, p := range []struct {
			phase string
			f     *path.Figures
		}{{"idle", h.Idle}, {"loaded", h.Loaded}} {
			f := p.f
			if f == nil {
				continue
			}
			c.line(p.phase, name+" sent", "", float64(f.Sent), "")
			c.line(p.phase, name+" loss", "", f.Loss, "fraction")
			if f.Received <= 0 {
				continue
			}
			for i, v := range []float64{f.LastMs, f.AvgMs, f.BestMs, f.WorstMs, f.StDevMs, f.RTTMs.P50, f.RTTMs.P95} {
				c.line(p.phase, name+" "+[]string{"last", "avg", "best", "worst", "stdev", "p50", "p95"}[i], "", v, "ms")
			}
		}
	}
}

func (c csvRun) series(p verdict.NamedPhase) {
	if p.Series == nil {
		return
	}
	at := func(t float64) string { return strconv.FormatFloat(roundTo(clamp(t, -1e9, 1e9), 6), 'f', -1, 64) }
	pr := probesOf(p.Phase)
	for i, t := range pr.t {
		c.line(p.Name, "rtt", at(t), pr.rtt[i], "ms")
	}
	for _, d := range []direction{download, upload} {
		for i, v := range d.bins(p.Phase) {
			c.line(p.Name, strings.ToLower(d.String()), at(p.Series.StartS+float64(i)*p.Series.BinS), v, "Mbit/s")
		}
	}
}
