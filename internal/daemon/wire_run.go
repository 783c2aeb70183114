package daemon

import (
	"encoding/json"

	"unbloat/internal/reason"
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

// TuneParams are those of MethodTune. What is not given is as the WAN's [[wan]] and
// the top level of the configuration say.
type TuneParams struct {
	Server     string   `json:"server,omitempty"` // as for `unbloat tune --server`
	Ping       string   `json:"ping,omitempty"`   // a host to probe besides
	Pin        string   `json:"pin,omitempty"`    // SHA-256 of the server's certificate
	Key        string   `json:"key,omitempty"`    // of the server
	Insecure   bool     `json:"insecure,omitempty"`
	GoalMs     float64  `json:"goal_ms,omitempty"`
	AQM        string   `json:"aqm,omitempty"`
	Side       string   `json:"side,omitempty"`
	LAN        string   `json:"lan,omitempty"`
	Classes    string   `json:"classes,omitempty"`
	Classifier string   `json:"classifier,omitempty"`
	LinkLayer  string   `json:"link_layer,omitempty"`
	Overhead   int      `json:"overhead,omitempty"`
	FlowsDown  int      `json:"flows_down,omitempty"`
	FlowsUp    int      `json:"flows_up,omitempty"`
	CC         string   `json:"cc,omitempty"`
	Rules      []string `json:"rules,omitempty"`      // as for --rule
	Replace    bool     `json:"replace,omitempty"`    // take over from another's shaper
	Unattended bool     `json:"unattended,omitempty"` // see TestParams
}

// TestParams are those of MethodTest. What is not given is as the top level of the
// configuration says.
type TestParams struct {
	Server   string  `json:"server,omitempty"` // as for `unbloat test --server`
	Ping     string  `json:"ping,omitempty"`
	Pin      string  `json:"pin,omitempty"`
	Key      string  `json:"key,omitempty"`
	Insecure bool    `json:"insecure,omitempty"`
	Label    string  `json:"label,omitempty"`
	Seconds  float64 `json:"seconds,omitempty"`      // of each phase with load; 0: the usual
	Idle     float64 `json:"idle_seconds,omitempty"` // of the phase without; 0: the usual
	Flows    int     `json:"flows,omitempty"`
	CC       string  `json:"cc,omitempty"`
	// As the flags of `unbloat test`; 0, "" and false: as without them.
	Runs       int     `json:"runs,omitempty"`
	Profile    string  `json:"profile,omitempty"`
	Isolate    bool    `json:"isolate,omitempty"`
	IntervalMs float64 `json:"interval_ms,omitempty"`
	ProbeBytes int     `json:"probe_bytes,omitempty"`
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
	Run      string          `json:"run"`
	Method   string          `json:"method"` // tune or test
	WAN      string          `json:"wan,omitempty"`
	Router   string          `json:"router,omitempty"`
	By       string          `json:"by"` // client, or schedule
	State    RunState        `json:"state"`
	Began    string          `json:"began"` // RFC 3339
	Ended    string          `json:"ended,omitempty"`
	Seconds  float64         `json:"seconds"` // since it began, or that it took
	Phase    *RunPhase       `json:"phase,omitempty"`
	Stage    *RunStage       `json:"stage,omitempty"`
	Events   []RunEvent      `json:"events"` // after RunParams.After, oldest first; at most 256 are remembered
	Last     int             `json:"last"`   // number of the newest event, for After; 0: none
	Result   json.RawMessage `json:"result,omitempty"`
	Error    *Error          `json:"error,omitempty"`
	ExitCode int             `json:"exit_code"` // as the command of that name would have; 0 while it runs
}

// A RunEvent is one step of a run. One of its members is there.
type RunEvent struct {
	N     int       `json:"n"` // from 1
	Phase *RunPhase `json:"phase,omitempty"`
	Stage *RunStage `json:"stage,omitempty"`
	Say   string    `json:"say,omitempty"` // a line for people, in English
}

// A RunPhase is how a phase of a measurement goes.
type RunPhase struct {
	Phase     string      `json:"phase"` // idle, download, upload, both
	Elapsed   float64     `json:"elapsed_seconds"`
	Duration  float64     `json:"duration_seconds"`
	Head      float64     `json:"head_seconds"` // of slow start, which is not counted
	RTTMs     float64     `json:"rtt_ms"`       // of the newest answer; 0: none yet
	Answers   []RunAnswer `json:"answers,omitempty"`
	FlowsDown int         `json:"flows_down"`
	FlowsUp   int         `json:"flows_up"`
	Down      unit.Rate   `json:"down_bps"` // since the event before
	Up        unit.Rate   `json:"up_bps"`
	Draining  bool        `json:"draining,omitempty"` // over, and its queue is not empty yet
}

// A RunAnswer is one answered probe.
type RunAnswer struct {
	Sent  float64 `json:"sent_seconds"` // since the phase began
	RTTMs float64 `json:"rtt_ms"`
}

// A RunStage is how far a tuning has come.
type RunStage struct {
	Doing     RunDoing   `json:"doing"`
	Down      unit.Rate  `json:"down_bps"` // tried or checked; 0: the line as it is
	Up        unit.Rate  `json:"up_bps"`
	GoalMs    float64    `json:"goal_ms"`     // 0: not known yet
	AsFoundMs float64    `json:"as_found_ms"` // p95 increase of the line as it is; 0: not known yet
	LineDown  unit.Rate  `json:"line_down_bps"`
	LineUp    unit.Rate  `json:"line_up_bps"`
	Trials    []RunTrial `json:"trials"`
	DownFrom  unit.Rate  `json:"down_from_bps"` // the search's bounds; 0: not begun
	DownTo    unit.Rate  `json:"down_to_bps"`
	UpFrom    unit.Rate  `json:"up_from_bps"`
	UpTo      unit.Rate  `json:"up_to_bps"`
}

// A RunDoing is what a tuning does.
type RunDoing string

// What a tuning does, in this order; it may try again after checking.
const (
	RunAsItIs   RunDoing = "as_it_is" // it measures the line as it is
	RunTrying   RunDoing = "trying"
	RunChecking RunDoing = "checking" // in every phase
	RunDeciding RunDoing = "deciding"
)

// A RunTrial is a pair of rates that a tuning has tried.
type RunTrial struct {
	Down       unit.Rate `json:"down_bps"`
	Up         unit.Rate `json:"up_bps"`
	IncreaseMs float64   `json:"increase_ms"` // p95
	DownMs     float64   `json:"down_ms"`     // p95 of each way
	UpMs       float64   `json:"up_ms"`
	Held       bool      `json:"held"`               // the goal
	Unproven   string    `json:"unproven,omitempty"` // why its load proves nothing; "" if it filled the line
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

// A HistoryWay is one direction of a History.
type HistoryWay struct {
	Rate     []int64    `json:"rate_bps"`     // mean, of the shaper
	Capacity []int64    `json:"capacity_bps"` // mean, that the line is believed to have
	Carried  []int64    `json:"carried_bps"`  // mean
	Delay    []*float64 `json:"delay_ms"`     // mean, that queues on the line add; null: not known
	DelayMax []*float64 `json:"delay_max_ms"` // worst; null: not known
}
