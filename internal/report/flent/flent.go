// Package flent writes the data files of flent, version 4 (flent 2.x), which it
// opens and plots.
package flent

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"unbloat/internal/verdict"
)

// ErrNoSeries is returned of a test without a series over time, which flent's
// plots are made of.
var ErrNoSeries = errors.New("the result carries no series over time, which flent's plots are made of")

// stepSize is the spacing of flent's interpolated values, as flent uses it.
const stepSize = 0.2

// margin is what flent's plots cut off at both ends of a test of kind
// rrul_be, which begins and ends with 5 s without load. Ours are measured
// throughout, so they are set between empty margins and nothing is cut.
const margin = 5.0

// A File is a flent data file, version 4 (flent 2.x).
type File struct {
	Version  int                   `json:"version"`
	Metadata Meta                  `json:"metadata"`
	X        []float64             `json:"x_values"`
	Results  map[string][]*float64 `json:"results"`
	Raw      map[string][]Point    `json:"raw_values"`
}

// Meta is what flent notes of a test.
type Meta struct {
	Name        string           `json:"NAME"`
	Title       string           `json:"TITLE"`
	Note        string           `json:"NOTE"`
	Host        string           `json:"HOST"`
	LocalHost   string           `json:"LOCAL_HOST"`
	Length      float64          `json:"LENGTH"`
	TotalLength float64          `json:"TOTAL_LENGTH"`
	StepSize    float64          `json:"STEP_SIZE"`
	Time        string           `json:"TIME"`
	T0          string           `json:"T0"`
	SeriesMeta  map[string]Units `json:"SERIES_META"`
}

// Units are those of one series.
type Units struct {
	Units string `json:"UNITS"`
}

// A Point is a raw value. A lost probe has no val.
type Point struct {
	T    float64  `json:"t"`
	Val  *float64 `json:"val,omitempty"`
	Seq  *int     `json:"seq,omitempty"`
	Lost bool     `json:"lost,omitempty"`
}

// The series of flent's rrul_be that are filled. Our throughput is known as a
// sum over flows, so the first flow, the average and the sum are that sum.
const (
	Ping    = "Ping (ms) UDP BE1"
	pingAvg = "Ping (ms) avg"
	totals  = "TCP totals"
)

// Of converts a test with its series, to be called label, measured against
// host. Errors wrap ErrNoSeries.
func Of(t *verdict.Test, label, host string) (*File, error) {
	end := 0.0
	for _, p := range t.Phases() {
		if p.Series != nil {
			end = max(end, clamp(p.Series.EndS, 0, 1e5))
		}
	}
	if end == 0 {
		return nil, ErrNoSeries
	}
	began, err := time.Parse(time.RFC3339Nano, t.Time)
	if err != nil {
		began = time.Unix(0, 0)
	}
	t0 := began.UTC().Add(-time.Duration(margin * float64(time.Second))).Truncate(time.Microsecond)
	stamp := t0.Format("2006-01-02T15:04:05.000000Z")
	f := &File{Version: 4, Results: map[string][]*float64{}, Raw: map[string][]Point{}, Metadata: Meta{
		Name: "rrul_be", Title: label, Host: host, LocalHost: "unbloat",
		Length: roundTo(end, 3), TotalLength: roundTo(end+2*margin, 3), StepSize: stepSize,
		Time: stamp, T0: stamp, SeriesMeta: map[string]Units{},
	}}
	for i := 0; float64(i)*stepSize <= end+2*margin; i++ {
		f.X = append(f.X, roundTo(float64(i)*stepSize, 3))
	}
	base := float64(t0.UnixMicro())/1e6 + margin
	var notes []string
	seq := 0
	for _, p := range t.Phases() {
		if p.Series == nil || !(math.Abs(p.Series.StartS) < 1e5) {
			continue
		}
		notes = append(notes, fmt.Sprintf("%s %.1f–%.1f s", p.Name, p.Series.StartS+margin, p.Series.EndS+margin))
		f.pings(p.Series, base, &seq)
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
func (f *File) pings(s *verdict.Timeline, base float64, seq *int) {
	times, rtts := probes(s)
	for i, t := range times {
		n := *seq
		*seq++
		pt := Point{T: roundTo(base+t, 6), Seq: &n, Lost: true}
		if v := rtts[i]; !math.IsNaN(v) {
			pt.Val, pt.Lost = &v, false
		}
		f.Raw[Ping] = append(f.Raw[Ping], pt)
	}
	f.bin(Ping, "ms", times, rtts)
	f.bin(pingAvg, "ms", times, rtts)
}

// rates adds a phase's throughput in one direction. The idle phase has no load,
// so it has no value rather than zero.
func (f *File) rates(way string, p verdict.NamedPhase, bins []float64, base float64) {
	if p.Name == verdict.PhaseIdle || len(bins) == 0 || !(p.Series.BinS > 0 && p.Series.BinS < 1e5) {
		return
	}
	var t, v []float64
	for k := range f.X {
		at := float64(k) * stepSize // since the phase began
		if i := int(clamp(at/p.Series.BinS, 0, 1e9)); i < len(bins) && p.Series.StartS+at < p.Series.EndS {
			t, v = append(t, p.Series.StartS+at), append(v, clamp(bins[i], 0, 1e9))
		}
	}
	first := "TCP " + way + " BE"
	for i := range bins {
		val := clamp(bins[i], 0, 1e9)
		f.Raw[first] = append(f.Raw[first], Point{T: roundTo(base+p.Series.StartS+float64(i)*p.Series.BinS, 6), Val: &val})
	}
	for _, name := range []string{first, "TCP " + way + " sum", "TCP " + way + " avg"} {
		f.bin(name, "Mbits/s", t, v)
	}
	f.bin(totals, "Mbits/s", t, v)
}

// bin sets each step of a series to the mean of the values in it; for totals,
// what is there already is added to.
func (f *File) bin(name, units string, t, v []float64) {
	if f.Results[name] == nil {
		f.Results[name] = make([]*float64, len(f.X))
		f.Metadata.SeriesMeta[name] = Units{units}
	}
	sum, n := make([]float64, len(f.X)), make([]int, len(f.X))
	for i := range t {
		k := int(math.Floor((t[i]+margin)/stepSize + 1e-6))
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
		if old := f.Results[name][k]; old != nil && name == totals {
			mean += *old
		}
		f.Results[name][k] = &mean
	}
}

// probes returns when the probes of a series were sent and their round trips in
// ms, NaN where no answer came.
func probes(s *verdict.Timeline) (times, rtts []float64) {
	for i, t := range s.TS[:min(len(s.TS), len(s.RTTMs))] {
		if math.IsNaN(t) || math.IsInf(t, 0) {
			continue
		}
		v := math.NaN()
		if r := s.RTTMs[i]; r != nil && !math.IsInf(*r, 0) && *r >= 0 {
			v = *r
		}
		times, rtts = append(times, t), append(rtts, v)
	}
	return times, rtts
}

// roundTo rounds v to n decimals.
func roundTo(v float64, n int) float64 {
	p := math.Pow(10, float64(n))
	return math.Round(v*p) / p
}

// clamp returns the nearest to v of lo to hi; lo for what is no number.
func clamp(v, lo, hi float64) float64 {
	if math.IsNaN(v) {
		return lo
	}
	return min(hi, max(lo, v))
}
