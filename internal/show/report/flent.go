package report

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	"unbloat/internal/measure/verdict"
)

// flentStep is the spacing of flent's interpolated values, as flent uses it.
const flentStep = 0.2

// flentMargin is what flent's plots cut off at both ends of a test of kind
// rrul_be, which begins and ends with 5 s without load. Ours are measured
// throughout, so they are set between empty flentMargins and nothing is cut.
const flentMargin = 5.0

// A flentFile is a data file of flent, version 4 (flent 2.x).
type flentFile struct {
	Version  int                     `json:"version"`
	Metadata flentMeta               `json:"metadata"`
	X        []float64               `json:"x_values"`
	Results  map[string][]*float64   `json:"results"`
	Raw      map[string][]flentPoint `json:"raw_values"`
}

// flentMeta is what flent notes of a test.
type flentMeta struct {
	Name        string                `json:"NAME"`
	Title       string                `json:"TITLE"`
	Note        string                `json:"NOTE"`
	Host        string                `json:"HOST"`
	LocalHost   string                `json:"LOCAL_HOST"`
	Length      float64               `json:"LENGTH"`
	TotalLength float64               `json:"TOTAL_LENGTH"`
	StepSize    float64               `json:"STEP_SIZE"`
	Time        string                `json:"TIME"`
	T0          string                `json:"T0"`
	SeriesMeta  map[string]flentUnits `json:"SERIES_META"`
}

// flentUnits are those of one series.
type flentUnits struct {
	Units string `json:"UNITS"`
}

// A flentPoint is a raw value. A lost probe has no val.
type flentPoint struct {
	T    float64  `json:"t"`
	Val  *float64 `json:"val,omitempty"`
	Seq  *int     `json:"seq,omitempty"`
	Lost bool     `json:"lost,omitempty"`
}

// The series of flent's rrul_be that are filled. Our throughput is known as a
// sum over flows, so the first flow, the average and the sum are that sum.
const (
	flentPing    = "Ping (ms) UDP BE1"
	flentPingAvg = "Ping (ms) avg"
	flentTotals  = "TCP totals"
)

func writeFlent(b *bytes.Buffer, p Page) error {
	runs := p.runs()
	if len(runs) != 1 {
		return fmt.Errorf("%w: a flent file holds one result, and there are %d; write one file for each", ErrUnsuitable, len(runs))
	}
	f, err := flentOf(runs[0].test)
	if err != nil {
		return err
	}
	z := gzip.NewWriter(b)
	if err := json.NewEncoder(z).Encode(f); err != nil {
		return err
	}
	return z.Close()
}

// flentOf converts a test with its series. Errors wrap ErrUnsuitable.
func flentOf(t *verdict.Test) (*flentFile, error) {
	end := 0.0
	for _, p := range t.Phases() {
		if p.Series != nil {
			end = max(end, clamp(p.Series.EndS, 0, 1e5))
		}
	}
	if end == 0 {
		return nil, fmt.Errorf("%w: the result carries no series over time, which flent's plots are made of", ErrUnsuitable)
	}
	began, err := time.Parse(time.RFC3339Nano, t.Time)
	if err != nil {
		began = time.Unix(0, 0)
	}
	t0 := began.UTC().Add(-time.Duration(flentMargin * float64(time.Second))).Truncate(time.Microsecond)
	stamp := t0.Format("2006-01-02T15:04:05.000000Z")
	f := &flentFile{Version: 4, Results: map[string][]*float64{}, Raw: map[string][]flentPoint{}, Metadata: flentMeta{
		Name: "rrul_be", Title: clean(t.Label), Host: orNone(t.Server), LocalHost: "unbloat",
		Length: roundTo(end, 3), TotalLength: roundTo(end+2*flentMargin, 3), StepSize: flentStep,
		Time: stamp, T0: stamp, SeriesMeta: map[string]flentUnits{},
	}}
	for i := 0; float64(i)*flentStep <= end+2*flentMargin; i++ {
		f.X = append(f.X, roundTo(float64(i)*flentStep, 3))
	}
	base := float64(t0.UnixMicro())/1e6 + flentMargin
	var notes []string
	seq := 0
	for _, p := range t.Phases() {
		if p.Series == nil || !(math.Abs(p.Series.StartS) < 1e5) {
			continue
		}
		notes = append(notes, fmt.Sprintf("%s %.1f–%.1f s", p.Name, p.Series.StartS+flentMargin, p.Series.EndS+flentMargin))
		f.pings(probesOf(p.Phase), base, &seq)
		if p.Name != verdict.PhaseUpload {
			f.rates("download", p, p.Series.DownMbps, base)
		}
		if p.Name != verdict.PhaseDownload {
			f.rates("upload", p, p.Series.UpMbps, base)
		}
	}
	f.Metadata.Note = "unbloat test: " + strings.Join(notes, ", ")
	return f, nil
}

// pings adds a phase's probes: each raw, and the mean of each step.
func (f *flentFile) pings(pr probes, base float64, seq *int) {
	for i, t := range pr.t {
		n := *seq
		*seq++
		pt := flentPoint{T: roundTo(base+t, 6), Seq: &n, Lost: true}
		if v := pr.rtt[i]; !math.IsNaN(v) {
			pt.Val, pt.Lost = &v, false
		}
		f.Raw[flentPing] = append(f.Raw[flentPing], pt)
	}
	f.bin(flentPing, "ms", pr.t, pr.rtt)
	f.bin(flentPingAvg, "ms", pr.t, pr.rtt)
}

// rates adds a phase's throughput in one direction. The idle phase has no load,
// so it has no value rather than zero.
func (f *flentFile) rates(way string, p verdict.NamedPhase, bins []float64, base float64) {
	if p.Name == verdict.PhaseIdle || len(bins) == 0 || !(p.Series.BinS > 0 && p.Series.BinS < 1e5) {
		return
	}
	var t, v []float64
	for k := range f.X {
		at := float64(k) * flentStep // since the phase began
		if i := int(clamp(at/p.Series.BinS, 0, 1e9)); i < len(bins) && p.Series.StartS+at < p.Series.EndS {
			t, v = append(t, p.Series.StartS+at), append(v, clamp(bins[i], 0, 1e9))
		}
	}
	first := "TCP " + way + " BE"
	for i := range bins {
		val := clamp(bins[i], 0, 1e9)
		f.Raw[first] = append(f.Raw[first], flentPoint{T: roundTo(base+p.Series.StartS+float64(i)*p.Series.BinS, 6), Val: &val})
	}
	for _, name := range []string{first, "TCP " + way + " sum", "TCP " + way + " avg"} {
		f.bin(name, "Mbits/s", t, v)
	}
	f.bin(flentTotals, "Mbits/s", t, v)
}

// bin sets each step of a series to the mean of its values; totals add up.
func (f *flentFile) bin(name, units string, t, v []float64) {
	if f.Results[name] == nil {
		f.Results[name] = make([]*float64, len(f.X))
		f.Metadata.SeriesMeta[name] = flentUnits{units}
	}
	sum, n := make([]float64, len(f.X)), make([]int, len(f.X))
	for i := range t {
		k := int(math.Floor((t[i]+flentMargin)/flentStep + 1e-6))
		if k >= 0 && k < len(f.X) && !math.IsNaN(v[i]) {
			sum[k] += v[i]
			n[k]++
		}
	}
	for k := range sum {
		if n[k] == 0 {
			continue
		}
		mean := sum[k] / float64(n[k])
		if old := f.Results[name][k]; old != nil && name == flentTotals {
			mean += *old
		}
		f.Results[name][k] = &mean
	}
}
