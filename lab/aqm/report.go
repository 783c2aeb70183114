package aqm

// Schema names the JSON layout of a Report.
const ReplaySchema = "unbloat.sim.replay/1"

// Report is the JSON of `sim replay`.
type ReplayReport struct {
	Schema string      `json:"schema"`
	Files  []TraceFile `json:"files"`
}

// File is one file of it. If it is no trace only Error is set.
type TraceFile struct {
	Name           string       `json:"name"`
	Implementation string       `json:"implementation,omitempty"`
	Packets        int          `json:"packets"`
	Agree          int          `json:"agree"`
	Differences    []Divergence `json:"first_differences,omitempty"`
	Error          string       `json:"error,omitempty"`
}

// Divergence is a packet whose fate differs from the trace.
type Divergence struct {
	Line  int    `json:"line"`
	Seq   uint64 `json:"seq"`
	Trace string `json:"trace"`
	Ours  string `json:"replay"`
}
