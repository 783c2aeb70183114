package path

import (
	"math"
	"time"

	"unbloat/internal/measure/verdict"
	"unbloat/unit"
)

// Schema names the JSON layout of a Result.
const Schema = "unbloat.path/1"

// A Result is what `unbloat path` found. Its JSON is part of the product's
// contract: times in ms, rates in bit/s, fractions 0–1.
type Result struct {
	Schema         string       `json:"schema"`
	Time           string       `json:"time"` // RFC 3339, when the trace began
	Host           string       `json:"host"` // as it was asked for
	Address        string       `json:"address"`
	Source         string       `json:"source"` // address of this machine
	Method         string       `json:"method"` // icmp, raw or udp
	PacketBytes    unit.Size    `json:"packet_bytes"`
	IntervalMs     float64      `json:"interval_ms"` // between probes to the same hop
	Valid          bool         `json:"valid"`
	InvalidReasons []string     `json:"invalid_reasons"` // never nil
	Verdict        string       `json:"verdict"`         // sentences a person understands
	Notes          []string     `json:"notes"`           // never nil; what else to know
	Reached        bool         `json:"reached"`         // the destination answered
	HomeHops       int          `json:"home_hops"`       // how many hops belong to the home
	Begins         *Beginning   `json:"begins"`          // where the increase begins; null: there is none, or no load
	Load           *Load        `json:"load,omitempty"`
	Marks          *Marks       `json:"marks,omitempty"` // what became of marks, if they were sent
	Hops           []HopFigures `json:"hops"`            // never nil
	CPU            float64      `json:"cpu"`             // busiest share of this machine in a counted phase, 0–1
	LatenessMs     Lateness     `json:"probe_lateness_ms"`
}

// Lateness says how late probes left against their schedule, in ms.
type Lateness struct {
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// A Place is a part of the way.
type Place string

// Places. A place is that of the link that leads to a hop.
const (
	Home     Place = "home"     // the home network: Wi-Fi or cable to the router, the router itself
	Uplink   Place = "uplink"   // the router's uplink: from the last hop of the home to the first beyond
	Provider Place = "provider" // the provider's network, or beyond
)

// A Beginning is where the increase begins.
type Beginning struct {
	Hop         int     `json:"hop"`       // the first that is slower under load, with all behind it
	After       int     `json:"after"`     // the last before it that answers and is not; 0: this machine
	Place       Place   `json:"place"`     // of the link between the two
	Statistic   string  `json:"statistic"` // what was compared: p50 or p95
	IncreaseMs  float64 `json:"increase_ms"`
	Address     string  `json:"address"`
	AfterAddr   string  `json:"after_address"`
	Unconfirmed bool    `json:"unconfirmed,omitempty"` // no hop behind it answered that could confirm it
}

// A Load is what filled the line in the loaded phase.
type Load struct {
	Server         string   `json:"server"`
	Direction      string   `json:"direction"` // down, up or both
	Flows          int      `json:"flows"`     // each way
	GoodputDownBps float64  `json:"goodput_down_bps"`
	GoodputUpBps   float64  `json:"goodput_up_bps"`
	Broken         []string `json:"broken,omitempty"` // flows that ended before their time
}

// HopFigures are the figures of one hop.
type HopFigures struct {
	Hop         int       `json:"hop"`
	Address     string    `json:"address"`             // "": nobody answers
	Others      []string  `json:"others,omitempty"`    // who else answered there
	Name        string    `json:"name,omitempty"`      // reverse DNS
	Place       Place     `json:"place"`               // of the link to this hop
	Destination bool      `json:"destination"`         //
	Refusal     string    `json:"refusal,omitempty"`   // why the path ends here
	Idle        *Figures  `json:"idle,omitempty"`      //
	Loaded      *Figures  `json:"loaded,omitempty"`    //
	Increase    *Increase `json:"increase,omitempty"`  // under load
	Confirmed   *Increase `json:"confirmed,omitempty"` // the part of it that all hops behind share
}

// An Increase is what a hop is slower under load, over its idle median, in ms.
type Increase struct {
	P50 float64 `json:"p50_ms"`
	P95 float64 `json:"p95_ms"`
}

// Figures are those of one hop in one phase, as mtr shows them, with quantiles.
type Figures struct {
	Sent     int               `json:"sent"`
	Received int               `json:"received"`
	Loss     float64           `json:"loss"` // of the probes whose fate is known
	LastMs   float64           `json:"last_ms"`
	AvgMs    float64           `json:"avg_ms"`
	BestMs   float64           `json:"best_ms"`
	WorstMs  float64           `json:"worst_ms"`
	StDevMs  float64           `json:"stdev_ms"` // of the sample: over n−1
	RTTMs    verdict.Quantiles `json:"rtt_ms"`
}

// figures returns nil of a phase that did not run.
func figures(s Stats) *Figures {
	if s.Sent == 0 {
		return nil
	}
	f := &Figures{Sent: s.Sent, Received: len(s.RTTs), Loss: s.Loss()}
	if f.Received == 0 {
		return f
	}
	f.LastMs = round(unit.Ms(s.RTTs[f.Received-1]))
	f.StDevMs = round(deviation(s.RTTs))
	f.RTTMs = verdict.Summarise(append([]time.Duration(nil), s.RTTs...))
	f.AvgMs, f.BestMs, f.WorstMs = f.RTTMs.Mean, f.RTTMs.Min, f.RTTMs.Max
	return f
}

// deviation returns the standard deviation of a sample, in ms; 0 of fewer than two.
func deviation(d []time.Duration) float64 {
	if len(d) < 2 {
		return 0
	}
	var mean, squares float64
	for i, v := range d { // Welford
		x := unit.Ms(v)
		delta := x - mean
		mean += delta / float64(i+1)
		squares += delta * (x - mean)
	}
	return math.Sqrt(squares / float64(len(d)-1))
}

// round rounds ms to 0.1 µs: below it nothing is known.
func round(ms float64) float64 { return math.Round(ms*1e4) / 1e4 }
