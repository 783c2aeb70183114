// Package page is the server of the router's page: its API, who may ask what, and the
// handlers. What the daemon's socket says too has the daemon's own types here. The page makes its texts itself, from codes, in its
// reader's language. What changes the router goes through a Router, which the
// daemon is.
//
// The API is JSON over HTTP. Times are milliseconds since 1970 (_ms), rates bit/s
// (_bps), durations milliseconds (_ms) or seconds (_seconds); in the daemon's types times
// are RFC 3339. A list is never null.
// An answer other than 200 has an Error in its body. GET changes nothing. Each POST
// takes one JSON object as application/json, and answers one; after a login it needs
// the header X-CSRF with Session.CSRF. A viewer may GET everything, and POST
// nothing but /api/logout.
//
//	GET  /api/session            Session
//	POST /api/first              First → Session, logged in
//	POST /api/login              Login → Session, logged in
//	POST /api/enter              Enter → Session, logged in
//	POST /api/logout             {} → Session
//	POST /api/password           Password → Session
//	GET  /api/state              State
//	GET  /api/stream             SSE: event "state" with State in one line, each second; the event
//	                             "session" with {} says that the session is over: ask /api/session
//	GET  /api/machine?address=   MachineFlows
//	GET  /api/line?wan=&range=   daemon.History; range is 1h (a point each second) or 24h (each minute)
//	POST /api/line               SetLine → daemon.Change
//	POST /api/while              While → daemon.While: off, or a machine first, for a while
//	POST /api/confirm            Confirm → Done
//	POST /api/revert             Revert → Done; takes back the change that waits
//	POST /api/run                Run → Running
//	POST /api/stop               Stop → Done; ends a test or a tuning
//	GET  /api/health?wan=        Health
//	POST /api/mend               Mend → Health, after it
//	GET  /api/events             Events
//	GET  /api/incidents?wan=     Incidents
//	GET  /api/history?wan=       History
//	GET  /api/history/compare?before=&after=   Comparison
//	GET  /api/schedule           daemon.Schedule
//	POST /api/schedule           daemon.ScheduleParams → daemon.Schedule
//	GET  /api/export             a file of all this, application/json
package page

import (
	"unbloat/internal/keep/daemon"
	"unbloat/internal/keep/supervise"
	"unbloat/reason"
	"unbloat/unit"
)

// A Role is what somebody who is logged in may do.
type Role string

// Roles.
const (
	Nobody Role = ""       // is not logged in
	Admin  Role = "admin"  // may change everything
	Viewer Role = "viewer" // may look
)

// Codes of errors that are the page's own. Those of the daemon pass through.
const (
	CodeLogin    daemon.Code = "login"      // 401: log in first
	CodePassword daemon.Code = "password"   // 403: wrong password or token
	CodeWeak     daemon.Code = "weak"       // 400: the new password has fewer than LeastPassword characters
	CodeReadOnly daemon.Code = "read_only"  // 403: a viewer may not change anything
	CodeForged   daemon.Code = "forged"     // 403: from another site, or without the header X-CSRF
	CodeOutside  daemon.Code = "outside"    // 403: from outside the home
	CodeHost     daemon.Code = "host"       // 421: under a name that is not the router's
	CodeSlow     daemon.Code = "slow_down"  // 429: too many wrong logins; RetrySeconds says how long
	CodeCrowded  daemon.Code = "crowded"    // 503: too many viewers
	CodeNotFound daemon.Code = "not_found"  // 404
	CodeClasses  daemon.Code = "no_classes" // 409: the line has no classes, so no machine can go first
)

// LeastPassword is how many characters a password has at least; MostPassword how
// many bytes at most.
const (
	LeastPassword = 8
	MostPassword  = 256
)

// A Failure is the body of an answer that is an error: {"error":{"code":"…","text":"…"}}.
// The text is English, for whoever looks closer; the page words the code.
type Failure struct {
	Error Refusal `json:"error"`
}

// A Refusal is why something was not done.
type Refusal struct {
	daemon.Error
	RetrySeconds int `json:"retry_seconds,omitempty"`
}

// A Session is who asks.
type Session struct {
	User      Role   `json:"user"`
	FirstRun  bool   `json:"first_run"`  // there is no password yet: First sets it, with the token of `unbloat ui token`
	HasViewer bool   `json:"has_viewer"` // there is a read-only password too
	CSRF      string `json:"csrf"`       // for the header X-CSRF; "" for Nobody
	Version   string `json:"version"`    // of the program
}

// First sets the first password.
type First struct {
	Token    string `json:"token"` // spaces and case do not matter
	Password string `json:"password"`
}

// Login logs in. The password says the role.
type Login struct {
	Password string `json:"password"`
}

// Enter logs in whoever the platform's own page has sent here: it knows who they are.
type Enter struct {
	Ticket string `json:"ticket"` // good once, within TicketSeconds
}

// TicketSeconds is how long a ticket is good.
const TicketSeconds = 60

// Password sets a password: the admin's, or the viewer's.
type Password struct {
	Now  string `json:"now"`  // the admin's, again
	Role Role   `json:"role"` // whose
	New  string `json:"new"`  // "" takes the viewer's away
}

// A State is how everything is now.
type State struct {
	TimeMs   int64     `json:"time_ms"` // the router's clock
	WANs     []WAN     `json:"wans"`
	Machines []Machine `json:"machines"` // those with the most traffic first; at most MostMachines
	More     int       `json:"more"`     // machines that are not in the list
	// Flows are the connections of all machines. Sight says why there are none.
	Flows int   `json:"flows"`
	Sight Sight `json:"sight"`
}

// MostMachines is how many machines a State has at most.
const MostMachines = 100

// A Sight says whether the home's connections can be seen.
type Sight string

// Sights.
const (
	SightClear   Sight = "clear"
	SightNone    Sight = "none"    // this system, or the router elsewhere, does not show them
	SightDenied  Sight = "denied"  // this user may not read them
	SightBytes   Sight = "bytes"   // connections, but not what they carry (nf_conntrack_acct is 0)
	SightCrowded Sight = "crowded" // there are more than are followed: rates are too low
)

// A WAN is a line.
type WAN struct {
	WAN       string `json:"wan"`       // what requests name it by
	Interface string `json:"interface"` //
	Router    string `json:"router"`    // address of the router; "": this machine
	Platform  string `json:"platform"`  // "": not known yet

	On   bool            `json:"on"`   // false: a person turned it off
	Kept supervise.State `json:"kept"` //
	// OffUntilMs is when it is on again by itself; 0: it is on, or off for good.
	OffUntilMs int64 `json:"off_until_ms"`

	SinceMs int64  `json:"since_ms"` // of Kept
	Why     string `json:"why"`      // English; why it is not in place, "" otherwise
	By      string `json:"by"`       // the program that took it away last; "": none, or not known
	Mends   int    `json:"mends"`    // how often something was put back

	Follow    bool `json:"follow"`     // it is to follow the line
	Following bool `json:"following"`  // it does now
	CanFollow bool `json:"can_follow"` // it could, on this platform and with this shaper
	Blind     bool `json:"blind"`      // the line cannot be measured now, so the rates hold
	Classes   bool `json:"classes"`    // traffic is divided, so machines can go first
	CanLimit  bool `json:"can_limit"`  // a machine can have a limit of its own

	// Rules are the line's own, as "class=voice,home=192.168.1.7", and Limits what single machines
	// may carry at most, as "192.168.1.7 5 Mbit/s".
	Rules  []string `json:"rules"`
	Limits []string `json:"limits"`

	Down Way `json:"down"`
	Up   Way `json:"up"`

	Grade   Grade          `json:"grade"`   // of the last ten minutes
	Pending *daemon.Change `json:"pending"` // null: nothing waits
	Running *Running       `json:"running"` // null: nothing runs
}

// A Way is one direction of a line, now.
type Way struct {
	Line     unit.Rate `json:"line_bps"`     // what the line usually carries, as was set; 0: not known
	Least    unit.Rate `json:"least_bps"`    // bounds while the line is followed; 0: not followed
	Most     unit.Rate `json:"most_bps"`     //
	Rate     unit.Rate `json:"rate_bps"`     // the shaper's; 0: not shaped
	Capacity unit.Rate `json:"capacity_bps"` // what the line is believed to carry; 0: not known
	Carried  unit.Rate `json:"carried_bps"`  // now; -1: not known
	DelayMs  float64   `json:"delay_ms"`     // that the line's queue adds now; -1: not known
	Busy     bool      `json:"busy"`         // it carries a good part of the shaper's rate
	// Why the shaper's rate is what it is: the follower's reasons (follow_…, with
	// from_bps, to_bps, capacity_bps, delay_ms), or those of the plan. Null: not shaped.
	Why *reason.Reason `json:"why"`
}

// A Grade is how the line did lately, by the delay that its queues added.
type Grade struct {
	Grade   string  `json:"grade"`   // A+ to F; "": too little is known
	P95Ms   float64 `json:"p95_ms"`  // of the seconds' worst added delay; with the load as it was
	Seconds int     `json:"seconds"` // of which something is known, of the last 600
}

// A Machine is one of the home.
type Machine struct {
	Address string        `json:"address"`
	Name    string        `json:"name"`     // of its DHCP lease; "": not known
	MAC     string        `json:"mac"`      // as in "02:00:00:00:00:07"; "": not known
	Class   string        `json:"class"`    // of most of its traffic now: voice, interactive, normal, bulk; "": not known
	Down    unit.Rate     `json:"down_bps"` // now
	Up      unit.Rate     `json:"up_bps"`
	Flows   int           `json:"flows"`
	Action  daemon.Action `json:"action"` // what a rule of its own says
}

// MachineFlows are the connections of a machine.
type MachineFlows struct {
	Machine Machine `json:"machine"`
	Flows   []Flow  `json:"flows"` // those with the most traffic first; at most MostFlows
	More    int     `json:"more"`  // flows that are not in the list
	Sight   Sight   `json:"sight"`
}

// MostFlows is how many flows of a machine are shown at most.
const MostFlows = 100

// A Flow is a connection.
type Flow struct {
	Protocol string  `json:"protocol"` // tcp, udp, icmp, …
	Home     string  `json:"home"`     // address, and port where the protocol has one
	Far      string  `json:"far"`
	Down     FlowWay `json:"down"`
	Up       FlowWay `json:"up"`
}

// A FlowWay is one direction of a Flow.
type FlowWay struct {
	Rate  unit.Rate `json:"rate_bps"`
	Bytes unit.Size `json:"bytes"` // since it began
	daemon.FlowClass
}

// SetLine changes a line. What is not given stays. A change that only waits for its
// confirmation is undone by itself.
type SetLine struct {
	WAN string `json:"wan"` // "": the only one
	daemon.ChangeParams
}

// While does something for a while, which needs no answer: it is taken back by itself.
type While struct {
	WAN string `json:"wan"`
	daemon.WhileParams
}

// Confirm keeps a change.
type Confirm struct {
	Change string `json:"change"` // its ID
}

// Revert takes back the change of a line that waits; there must be one.
type Revert struct {
	WAN string `json:"wan"`
}

// Done says that something was done.
type Done struct {
	OK bool `json:"ok"`
}

// A RunKind is what can be started.
type RunKind string

// What can be started.
const (
	RunTest RunKind = "test" // measure, and change nothing
	RunTune RunKind = "tune" // find the best rates, and keep them if they are better
)

// Run starts a test or a tuning.
type Run struct {
	WAN  string  `json:"wan"`
	Kind RunKind `json:"kind"`
}

// Stop ends what runs.
type Stop struct {
	WAN string `json:"wan"`
}

// Running is a test or a tuning that runs, or has just ended.
type Running struct {
	Kind     RunKind       `json:"kind"`
	BeganMs  int64         `json:"began_ms"`
	Step     string        `json:"step"`         // phase of the test: idle, download, upload, both; "" before the first
	Doing    string        `json:"doing"`        // of a tuning: as_it_is, trying, checking, deciding; "" of a test
	Round    int           `json:"round"`        // of a tuning, from 1; of a test 1
	TryDown  unit.Rate     `json:"try_down_bps"` // rates that a tuning tries now; 0: none
	TryUp    unit.Rate     `json:"try_up_bps"`
	Seconds  float64       `json:"seconds"`  // since it began, or that it took
	Progress float64       `json:"progress"` // 0 to 1, as far as that can be known
	Down     unit.Rate     `json:"down_bps"` // carried now
	Up       unit.Rate     `json:"up_bps"`
	RTTMs    float64       `json:"rtt_ms"`  // now; -1: not known
	Ended    bool          `json:"ended"`   // it stays for a minute
	Stopped  bool          `json:"stopped"` // somebody ended it; what it had changed is undone
	Result   *Result       `json:"result"`  // what it found, without an ID; null while it runs, or if it found nothing
	Error    *daemon.Error `json:"error"`   // why it failed, or tells too little; null otherwise
}

// Health is what the doctor found.
type Health struct {
	WAN      string    `json:"wan"`
	OK       bool      `json:"ok"` // nothing is in the way
	AtMs     int64     `json:"at_ms"`
	Findings []Finding `json:"findings"`
	Checked  int       `json:"checked"` // checks without findings
	Skipped  int       `json:"skipped"` // checks that could not be made
}

// A Finding is one problem.
type Finding struct {
	Code     string `json:"code"` // as in flow-offload
	Blocking bool   `json:"blocking"`
	What     string `json:"what"`   // English, with this router's names and figures
	Why      string `json:"why"`    // English
	Remedy   string `json:"remedy"` // a command, or what to do
	Mend     bool   `json:"mend"`   // POST /api/mend does it
}

// Mend mends a finding.
type Mend struct {
	WAN  string `json:"wan"`
	Code string `json:"code"`
}

// Events are what happened, newest first.
type Events struct {
	Events []daemon.Happening `json:"events"`
}

// Incidents are what went wrong on a line within 31 days, newest first.
type Incidents struct {
	WAN       string     `json:"wan"`
	Watched   bool       `json:"watched"` // it is watched now: otherwise nothing new is found
	Incidents []Incident `json:"incidents"`
}

// An Incident is one of them.
type Incident struct {
	ID       string `json:"id"`
	BeginMs  int64  `json:"begin_ms"`
	EndMs    int64  `json:"end_ms"`   // 0: it goes on
	Kind     string `json:"kind"`     // outage, loss, slow, path, bloat
	Part     string `json:"part"`     // to blame: home, router, line, provider, far, unsure
	Severity string `json:"severity"` // minor, major, severe
	What     Said   `json:"what"`
	Why      Said   `json:"why"` // that part
}

// History are measurements that were kept, newest first.
type History struct {
	Results []Result `json:"results"`
}

// A Result is one of them.
type Result struct {
	ID      string    `json:"id"`
	AtMs    int64     `json:"at_ms"`
	WAN     string    `json:"wan"`
	Kind    RunKind   `json:"kind"`
	Shaped  bool      `json:"shaped"` // while unbloat shaped the line
	Valid   bool      `json:"valid"`
	Grade   string    `json:"grade"`    // A+ to F; "" if not valid
	Down    unit.Rate `json:"down_bps"` // goodput
	Up      unit.Rate `json:"up_bps"`
	IdleMs  float64   `json:"idle_ms"`     // median round trip without load
	DownP95 float64   `json:"down_p95_ms"` // increase under download
	UpP95   float64   `json:"up_p95_ms"`
	// Outcomes say how well the loaded line does for each use, of 100, and FellMs how long the
	// delay took to fall after the load at which that was longest; 0: not known.
	Outcomes []Outcome `json:"outcomes"`
	FellMs   float64   `json:"fell_ms"`
	Kept     bool      `json:"kept"`    // of a tuning: the limits that it found are in force
	Invalid  []Said    `json:"invalid"` // why it is not valid
}

// An Outcome is how well the loaded line does for one use (verdict.UseScore).
type Outcome struct {
	Use   string  `json:"use"`   // call, game, stream or browsing
	Score float64 `json:"score"` // 0 to 100
	Limit string  `json:"limit"` // what holds it down; "": nothing
}

// A Said is a sentence in the page's languages.
type Said struct {
	EN string `json:"en"`
	DE string `json:"de"`
}

// A Comparison is two results.
type Comparison struct {
	Before Result `json:"before"`
	After  Result `json:"after"`
}
