// Package verdict turns samples into figures and figures into judgements:
// percentiles, grades, validity and before/after proof. It is pure: no clock,
// no file, no randomness of its own.
package verdict

import (
	"unbloat/internal/measure/framing"
	"unbloat/reason"
)

// TestSchema names the JSON layout of a Test.
const TestSchema = "unbloat.test/1"

// A Test is the result of one run of `unbloat test`. Its JSON is part of the
// product's contract: times in ms, rates in bit/s, fractions 0–1.
type Test struct {
	Schema         string          `json:"schema"`
	Time           string          `json:"time"` // RFC 3339, when the run began
	Label          string          `json:"label"`
	Server         string          `json:"server"`
	Valid          bool            `json:"valid"`
	Reasons        []reason.Reason `json:"reasons,omitempty"` // why it must not be believed
	InvalidReasons []string        `json:"invalid_reasons"`   // the same in words; never nil
	Grade          string          `json:"grade"`             // A+ … F, the worse of down and up; "" if invalid
	GradeDown      string          `json:"grade_down"`
	GradeUp        string          `json:"grade_up"`
	Verdict        string          `json:"verdict"`           // one sentence a person understands
	Notes          []string        `json:"notes,omitempty"`   // what could not be judged, and why
	Remarks        []reason.Reason `json:"remarks,omitempty"` // the notes as data
	Probe          string          `json:"probe,omitempty"`   // what the graded probes are, where they are not the server's own
	RPM            float64         `json:"rpm,omitempty"`     // of the worst loaded phase
	Voice          *Voice          `json:"voice,omitempty"`   // of the worst loaded phase
	Runs           []Run           `json:"runs,omitempty"`    // of which this is the median
	Idle           *Phase          `json:"idle,omitempty"`
	Download       *Phase          `json:"download,omitempty"`
	Upload         *Phase          `json:"upload,omitempty"`
	Both           *Phase          `json:"both,omitempty"`
	Loaded         *Phase          `json:"loaded,omitempty"` // a lab case whose scenario brings its own loads
	Framing        *Framing        `json:"framing,omitempty"`
	Outcomes       []UseScore      `json:"outcomes,omitempty"` // by use, under the worst load
}

// A Framing is what the line adds to each packet, by direction; nil: not measured.
type Framing struct {
	Down *framing.Estimate `json:"down,omitempty"`
	Up   *framing.Estimate `json:"up,omitempty"`
}

// Sure returns the line's framing: that of both directions where they agree, or of the
// only one that is sure; ok is false otherwise.
func (f *Framing) Sure() (e framing.Estimate, ok bool) {
	if f == nil {
		return e, false
	}
	for _, d := range []*framing.Estimate{f.Down, f.Up} {
		switch {
		case d == nil || !d.Sure:
		case ok && (d.Overhead != e.Overhead || d.MPU != e.MPU || d.ATM != e.ATM):
			return framing.Estimate{}, false
		default:
			e, ok = *d, true
		}
	}
	return e, ok
}

// Phase names, in the order they run.
const (
	PhaseIdle     = "idle"
	PhaseDownload = "download"
	PhaseUpload   = "upload"
	PhaseBoth     = "both"
	PhaseLoaded   = "loaded"
)

// PhaseNames returns the four phases of a test, in the order they run.
func PhaseNames() []string { return []string{PhaseIdle, PhaseDownload, PhaseUpload, PhaseBoth} }

// Loads reports which directions a phase of PhaseNames loads.
func Loads(phase string) (down, up bool) {
	return phase == PhaseDownload || phase == PhaseBoth, phase == PhaseUpload || phase == PhaseBoth
}

// A NamedPhase is a phase that was measured, with its name.
type NamedPhase struct {
	Name string
	*Phase
}

// Phases returns the phases that were measured, in the order they ran.
func (t *Test) Phases() []NamedPhase {
	var out []NamedPhase
	for _, p := range []NamedPhase{
		{PhaseIdle, t.Idle}, {PhaseDownload, t.Download}, {PhaseUpload, t.Upload},
		{PhaseBoth, t.Both}, {PhaseLoaded, t.Loaded},
	} {
		if p.Phase != nil {
			out = append(out, p)
		}
	}
	return out
}

// A Phase is one stretch of a test: idle, or under one kind of load. Its edges
// (slow start, teardown) are cut away before anything is counted.
type Phase struct {
	Seconds         float64  `json:"seconds"` // what was counted, edges cut
	FlowsDown       int      `json:"flows_down"`
	FlowsUp         int      `json:"flows_up"`
	GoodputDownBps  float64  `json:"goodput_down_bps"` // TCP payload at the receiver
	GoodputUpBps    float64  `json:"goodput_up_bps"`
	Saturated       bool     `json:"saturated"` // the load really filled the line, in each direction that it loaded
	Latency         Latency  `json:"latency"`
	CPU             float64  `json:"cpu"`        // busiest share of this machine, 0–1
	ServerCPU       float64  `json:"server_cpu"` // the same of the server, while it sent or received load
	ProbeLatenessMs Lateness `json:"probe_lateness_ms"`
	Retransmits     int64    `json:"retransmits"`

	RecoveryMs *float64 `json:"recovery_ms,omitempty"` // until the round trip was as idle again, after the load's end

	OnLoad    *Latency `json:"latency_on_load,omitempty"` // on the loaded connections themselves
	Secondary []Named  `json:"beside,omitempty"`          // what further probes saw
	RPM       float64  `json:"rpm,omitempty"`             // round trips a minute under this load
	Voice     *Voice   `json:"voice,omitempty"`           // how a call would sound
	Queue     *Queue   `json:"queue,omitempty"`           // what stands in front of the bottleneck

	// What others used of the line meanwhile, by the counters of the interface.
	OthersDownBps float64 `json:"others_down_bps,omitempty"`
	OthersUpBps   float64 `json:"others_up_bps,omitempty"`

	// Unsaturated are the directions that a load meant to fill did not.
	Unsaturated []Unsaturated `json:"unfilled,omitempty"`

	Radio *Radio `json:"wifi,omitempty"` // where the way to the server begins with one

	Series *Timeline `json:"series,omitempty"`
}

// Lateness says how late probes left against their schedule, in ms.
type Lateness struct {
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// Latency is what the isochronous probes saw in one phase.
type Latency struct {
	Sent       int       `json:"sent"`
	Received   int       `json:"received"`
	Loss       float64   `json:"loss"`      // round trip, 0–1
	LossUp     float64   `json:"loss_up"`   // towards the server
	LossDown   float64   `json:"loss_down"` // from the server
	IPDVMs     float64   `json:"ipdv_ms"`   // mean |difference of consecutive round trips| (RFC 3393)
	RTTMs      Quantiles `json:"rtt_ms"`
	IncreaseMs Quantiles `json:"increase_ms"` // round trip less the idle phase's median
	UpMs       Quantiles `json:"up_ms"`       // one-way change since idle, towards the server
	DownMs     Quantiles `json:"down_ms"`     // one-way change since idle, from the server
	// OneWayUnknown says that the probes' protocol does not tell the two ways
	// apart: loss_up, loss_down, up_ms and down_ms are then zero.
	OneWayUnknown bool `json:"one_way_unknown,omitempty"`
}

// A Named is the latency that a secondary probe saw, against its
// own idle median.
type Named struct {
	Name    string  `json:"name"` // such as "icmp 192.0.2.1"
	Latency Latency `json:"latency"`
}

// Quantiles summarises a distribution, in ms. All are zero when nothing was received.
type Quantiles struct {
	Min  float64 `json:"min"`
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P95  float64 `json:"p95"`
	P99  float64 `json:"p99"`
	Max  float64 `json:"max"`
}

// A Timeline holds what is drawn: every probe, and the throughput in bins. Its
// times are seconds since the test began, so the phases of one test line up.
type Timeline struct {
	StartS   float64    `json:"start_s"` // when the phase began, edges included
	EndS     float64    `json:"end_s"`
	TS       []float64  `json:"t_s"`    // when each probe was sent
	RTTMs    []*float64 `json:"rtt_ms"` // null: lost
	BinS     float64    `json:"bin_s"`
	DownMbps []float64  `json:"down_mbps"` // bin i covers start_s + i·bin_s …
	UpMbps   []float64  `json:"up_mbps"`
}
