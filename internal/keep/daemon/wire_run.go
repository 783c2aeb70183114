package daemon

import (
	"encoding/json"
	"time"

	"unbloat/internal/cure/tune"
	"unbloat/internal/keep/incident"
	"unbloat/internal/measure/phases"
	"unbloat/reason"
	"unbloat/unit"
)

// DecisionsParams are those of MethodDecisions, which need not be given.
type DecisionsParams struct {
	After uint64 `json:"after,omitempty"` // only those with a greater number
	Limit int    `json:"limit,omitempty"` // at most so many, the newest; 0: all that are remembered
}

// MostDecisions is how many decisions of a WAN are remembered.
const MostDecisions = 256

// Decisions are the newest decisions of a WAN, or of all, oldest first.
type Decisions struct {
	Decisions []Decision `json:"decisions"`
	Last      uint64     `json:"last"` // number of the newest that there is, for After; 0: none
}

// A Decision is a change of a shaper's rate, and why it was made. Changes of one
// direction for the same reason, each at most two seconds after the one before, are
// one decision: its From is the first's, and all else the last's. Each change gives it
// a new number.
type Decision struct {
	N         uint64        `json:"n"`
	Time      string        `json:"time"`  // RFC 3339 with milliseconds, UTC
	Began     string        `json:"began"` // of the first of the changes
	WAN       string        `json:"wan"`
	Router    string        `json:"router,omitempty"`
	Direction string        `json:"direction"` // down or up
	From      unit.Rate     `json:"from_bps"`
	To        unit.Rate     `json:"to_bps"`
	Changes   int           `json:"changes"` // that are this one decision
	Why       reason.Reason `json:"why"`     // of the last change
}

// WhyParams are those of MethodWhy.
type WhyParams struct {
	Flow  string `json:"flow"`            // as in "udp 10.1.0.2:5004 > 203.0.113.9:5004"
	Bytes int    `json:"bytes,omitempty"` // IP bytes of the packet; 0: 200
	DSCP  string `json:"dscp,omitempty"`  // the packet's mark; "": none
}

// TuneParams are those of MethodTune, each with the flag of `unbloat tune` that it is.
// What is not given is as the WAN's [[wan]] and the top level of the configuration say.
type TuneParams struct {
	Server     string            `json:"server,omitempty" flag:"server"`
	Ping       string            `json:"ping,omitempty" flag:"ping"`
	Pin        string            `json:"pin,omitempty" flag:"pin"`
	Key        string            `json:"key,omitempty"` // of the server; it is secret, so it is no argument
	Insecure   bool              `json:"insecure,omitempty" flag:"insecure"`
	Goal       unit.Milliseconds `json:"goal_ms,omitempty" flag:"goal"`
	AQM        string            `json:"aqm,omitempty" flag:"aqm"`
	Side       string            `json:"side,omitempty" flag:"side"`
	LAN        string            `json:"lan,omitempty" flag:"lan"`
	Classes    string            `json:"classes,omitempty" flag:"classes"`
	Classifier string            `json:"classifier,omitempty" flag:"classifier"`
	LinkLayer  string            `json:"link_layer,omitempty" flag:"link-layer"`
	Overhead   int               `json:"overhead,omitempty" flag:"overhead"`
	Framing    string            `json:"framing,omitempty" flag:"framing"`
	FlowsDown  int               `json:"flows_down,omitempty" flag:"flows-down"`
	FlowsUp    int               `json:"flows_up,omitempty" flag:"flows-up"`
	CC         string            `json:"cc,omitempty" flag:"cc"`
	Rules      []string          `json:"rules,omitempty" flag:"rule"`
	Replace    bool              `json:"replace,omitempty" flag:"replace"`
	Unattended bool              `json:"unattended,omitempty"` // see TestParams
}

// TestParams are those of MethodTest, each with the flag of `unbloat test` that it is.
// What is not given is as the top level of the configuration says.
type TestParams struct {
	Server     string            `json:"server,omitempty" flag:"server"`
	Ping       string            `json:"ping,omitempty" flag:"ping"`
	Pin        string            `json:"pin,omitempty" flag:"pin"`
	Key        string            `json:"key,omitempty"` // as of TuneParams
	Insecure   bool              `json:"insecure,omitempty" flag:"insecure"`
	Label      string            `json:"label,omitempty" flag:"label"`
	Seconds    unit.Seconds      `json:"seconds,omitempty" flag:"seconds"`   // of each phase with load
	Idle       unit.Seconds      `json:"idle_seconds,omitempty" flag:"idle"` // of the phase without
	Flows      int               `json:"flows,omitempty" flag:"flows"`
	CC         string            `json:"cc,omitempty" flag:"cc"`
	Runs       int               `json:"runs,omitempty" flag:"runs"`
	Profile    string            `json:"profile,omitempty" flag:"profile"`
	Isolate    bool              `json:"isolate,omitempty" flag:"isolate"`
	Interval   unit.Milliseconds `json:"interval_ms,omitempty" flag:"interval"`
	ProbeBytes int               `json:"probe_bytes,omitempty" flag:"probe-bytes"`
	// Unattended lets the run go on when the connection that started it ends, for
	// clients that have one connection for each request. Whoever started it asks for it
	// with MethodRun at least every 30 s, else it ends.
	Unattended bool `json:"unattended,omitempty"`
}

// Started is the answer to what takes long: the number to ask for with MethodRun. The
// run ends when the connection does, if Unattended was not given.
type Started struct {
	Run string `json:"run"`
}

// RunParams are those of MethodRun.
type RunParams struct {
	Run   string  `json:"run,omitempty"`          // "": the newest; no run at all is the error precondition
	After int     `json:"after,omitempty"`        // only events with a greater number
	Wait  float64 `json:"wait_seconds,omitempty"` // for such an event, or the end; at most 5
	Stop  bool    `json:"stop,omitempty"`         // end it: what it has changed is undone
}

// A RunState is how a run is.
type RunState string

// States of a run.
const (
	RunGoing  RunState = "running"
	RunDone   RunState = "done"    // Result has what was found, and Error why that is not enough, if so
	RunFailed RunState = "failed"  // Error says why; what it changed is undone
	RunEnded  RunState = "stopped" // by Stop, or because whoever started it has gone; what it changed is undone
)

// A RunStatus is how a run is: something long that the daemon does, or has done. It is kept for an
// hour.
type RunStatus struct {
	Run     string        `json:"run"`
	Method  string        `json:"method"` // tune or test
	WAN     string        `json:"wan,omitempty"`
	Router  string        `json:"router,omitempty"`
	By      string        `json:"by"` // client, or schedule
	State   RunState      `json:"state"`
	Began   string        `json:"began"` // RFC 3339
	Ended   string        `json:"ended,omitempty"`
	Seconds float64       `json:"seconds"` // since it began, or that it took
	Phase   *phases.Event `json:"phase,omitempty"`
	Stage   *tune.Stage   `json:"stage,omitempty"`
	Events  []RunEvent    `json:"events"` // after RunParams.After, oldest first; at most 256 are remembered
	Last    int           `json:"last"`   // number of the newest event, for After; 0: none
	RunEnd
	ExitCode int `json:"exit_code"` // as the command of that name would have; 0 while it runs
}

// A RunEvent is one step of a run, and a line of `unbloat tune --events`. One of its
// members is there.
type RunEvent struct {
	N     int           `json:"n"` // from 1
	Phase *phases.Event `json:"phase,omitempty"`
	Stage *tune.Stage   `json:"stage,omitempty"`
	Say   string        `json:"say,omitempty"` // a line for people, in English
}

// A RunEnd is what comes of a run, and the last line of `unbloat tune --events`. It has
// a result, an error, or a result and why that is not enough.
type RunEnd struct {
	Result json.RawMessage `json:"result,omitempty"` // as the command prints it
	Error  *Error          `json:"error,omitempty"`
}

// HistoryParams are those of MethodHistory.
type HistoryParams struct {
	From string `json:"from,omitempty"` // RFC 3339; "": as far as the history reaches
	To   string `json:"to,omitempty"`   // "": now
	Step int    `json:"step_seconds,omitempty"`
}

// HistorySchema names the JSON layout of a History.
const HistorySchema = "unbloat.line/1"

// A History is what a line did. Each list is as long as At. Figures that are not known
// are 0.
type History struct {
	Schema string     `json:"schema"`
	WAN    string     `json:"wan"`
	Router string     `json:"router,omitempty"`
	Step   int        `json:"step_seconds"`
	At     []int64    `json:"at_ms"` // begin of each step of which something is known, since 1970, ascending
	Down   HistoryWay `json:"down"`
	Up     HistoryWay `json:"up"`
}

// IncidentsParams are those of MethodIncidents, which need not be given.
type IncidentsParams struct {
	From string `json:"from,omitempty"` // RFC 3339; "": the last 90 days
	To   string `json:"to,omitempty"`   // "": now
	ID   string `json:"id,omitempty"`   // that one alone, with its samples
}

// IncidentsSchema names the JSON layout of Incidents.
const IncidentsSchema = "unbloat.incidents/1"

// Incidents are what went wrong, oldest first.
type Incidents struct {
	Schema string    `json:"schema"`
	From   time.Time `json:"from"`
	To     time.Time `json:"to"`
	// Watched are the lines that are watched now: on others nothing is found.
	Watched   []Watched           `json:"watched"`
	Incidents []incident.Incident `json:"incidents"`
	Samples   string              `json:"samples_csv,omitempty"` // of IncidentsParams.ID
}

// A Watched is a line that is watched.
type Watched struct {
	Name
	Down  unit.Rate `json:"down_bps"` // what was promised; 0: not known
	Up    unit.Rate `json:"up_bps"`
	Since time.Time `json:"since"`
}

// A HistoryWay is one direction of a History.
type HistoryWay struct {
	Rate     []int64    `json:"rate_bps"`     // mean, of the shaper
	Capacity []int64    `json:"capacity_bps"` // mean, that the line is believed to have
	Carried  []int64    `json:"carried_bps"`  // mean
	Delay    []*float64 `json:"delay_ms"`     // mean, that queues on the line add; null: not known
	DelayMax []*float64 `json:"delay_max_ms"` // worst; null: not known
}
