package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/plan"
	"unbloat/internal/keep/config"
	"unbloat/internal/keep/follow"
	"unbloat/internal/keep/steer"
	"unbloat/internal/keep/supervise"
	"unbloat/internal/keep/tell"
	"unbloat/unit"
)

// SocketName is the socket's name in the state directory.
const SocketName = "unbloatd.sock"

// Socket returns the path of the socket of a daemon that keeps its state in dir.
func Socket(dir string) string { return filepath.Join(dir, SocketName) }

// Limits of the socket.
const (
	MostLine   = 1 << 20          // bytes of a request or an answer: a plan with thousands of rules has some hundred thousand
	mostIdle   = 10 * time.Minute // until a client that says nothing is cut off
	mostSlow   = 10 * time.Second // for the rest of a line that has begun, and for taking an answer
	mostClient = 32               // at once; the next takes the place of one that says nothing
)

// A Request is one line of a client.
type Request struct {
	ID     json.RawMessage `json:"id,omitempty"` // comes back with the answer
	Method string          `json:"method"`
	Name
	Params json.RawMessage `json:"params,omitempty"`
}

// A Response is the line that answers a Request: a result or an error.
type Response struct {
	ID     json.RawMessage `json:"id,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  *Error          `json:"error,omitempty"`
}

// Methods of the socket.
const (
	MethodStatus  = "status"  // → Status
	MethodApply   = "apply"   // ApplyParams → Applied
	MethodConfirm = "confirm" // → Applied
	MethodRevert  = "revert"  // → Reverted
	MethodOn      = "on"      // OnParams → WANStatus, once the WAN has been looked at
	MethodTurn    = "turn"    // TurnParams → Turn; it ends with the connection
	MethodLook    = "look"    // of a WAN: its interface came or went; without one: something has changed. → null, at once

	MethodDecisions = "decisions" // DecisionsParams → Decisions
	MethodWhy       = "why"       // WhyParams → what `unbloat why --json` prints
	MethodTune      = "tune"      // TuneParams → Started
	MethodTest      = "test"      // TestParams → Started
	MethodRun       = "run"       // RunParams → RunStatus
	MethodHistory   = "history"   // HistoryParams → History
	MethodIncidents = "incidents" // IncidentsParams → Incidents, of the WAN or of all
)

// A Code says what kind of error an Error is.
type Code string

// Codes of errors. The first four are the program's exit codes in words.
const (
	CodeFailed       Code = "failed"       // and what was changed is undone
	CodeUsage        Code = "usage"        // bad input
	CodePrecondition Code = "precondition" // something is missing, or in the way
	CodeBusy         Code = "busy"         // somebody else changes the WAN now
	CodeUnknownWAN   Code = "unknown_wan"  // it is not in the configuration
	CodeMethod       Code = "unknown_method"
	CodeRequest      Code = "bad_request" // not a request at all
	CodeEnding       Code = "ending"      // the daemon ends just now
	CodeLeftOut      Code = "left_out"    // this build, or this configuration, does not have it
	CodeInternal     Code = "internal"    // an error of the daemon's own, after which the connection ends; its log has more
)

// An Error is why a request was not done.
type Error struct {
	Code Code   `json:"code"`
	Text string `json:"text"`
}

func (e *Error) Error() string { return e.Text }

// ApplyParams are those of MethodApply.
type ApplyParams struct {
	Plan    plan.Plan `json:"plan"`
	Confirm float64   `json:"confirm_seconds,omitempty"` // until it is undone without a confirm
	Yes     bool      `json:"yes,omitempty"`             // keep it at once
	Replace bool      `json:"replace,omitempty"`         // take over from another's shaper
}

// OnParams are those of MethodOn, which need not be given.
type OnParams struct {
	Replace bool `json:"replace,omitempty"` // take over from another's shaper
}

// Applied is what became of an apply or a confirm.
type Applied struct {
	State    string    `json:"state"` // armed, committed, unchanged
	WAN      string    `json:"wan"`
	Commands []string  `json:"commands"`
	Plan     plan.Plan `json:"plan"`
	Notes    []string  `json:"notes,omitempty"` // what a person should know besides
}

// Reverted is what a revert undid.
type Reverted struct {
	Reverted  []apply.Reverted `json:"reverted"`
	Forgot    bool             `json:"boot_unit_removed"`
	Suspended bool             `json:"suspended"` // the WAN is left alone until an apply
	Notes     []string         `json:"notes,omitempty"`
}

// TurnParams are those of MethodTurn.
type TurnParams struct {
	For    string `json:"for"`               // the command that works on the WAN, for people
	KeepOn bool   `json:"keep_on,omitempty"` // it changes nothing itself: what is shaped is kept in place, and nobody else may change it
}

// A Turn is the leave to work on WANs.
type Turn struct {
	WANs []string `json:"wans"`
}

// StatusSchema names the JSON layout of a Status.
const StatusSchema = "unbloat.daemon/1"

// Status is what the daemon says of itself.
type Status struct {
	Schema  string      `json:"schema"`
	Version string      `json:"version"`
	PID     int         `json:"pid"`
	Since   string      `json:"since"` // RFC 3339
	Config  string      `json:"config"`
	Failure string      `json:"failure,omitempty"` // why the configuration could not be read again
	Careful string      `json:"careful,omitempty"` // why no line is followed, though the configuration says so
	WANs    []WANStatus `json:"wans"`

	Notify []tell.Count `json:"notify,omitempty"` // who is told of incidents, and how that goes
}

// WANStatus is how a WAN is kept.
type WANStatus struct {
	WAN      string          `json:"wan"`
	Router   string          `json:"router,omitempty"`
	Platform string          `json:"platform,omitempty"` // "": not known yet
	OwnTC    bool            `json:"own_tc,omitempty"`   // with tc(8) directly, beside the platform's own service
	State    supervise.State `json:"state"`
	Since    string          `json:"since"`         // of the state, RFC 3339
	Why      string          `json:"why,omitempty"` // why it is not in place
	Down     unit.Rate       `json:"down_bps"`      // the shapers' rates; 0: not shaped
	Up       unit.Rate       `json:"up_bps"`
	Looks    int             `json:"looks"`                 // how often it was compared
	Mends    int             `json:"mends"`                 // how often something had to be put back
	Mended   string          `json:"mended,omitempty"`      // when that was last, RFC 3339
	Was      []string        `json:"mended_what,omitempty"` // what was different then
	By       string          `json:"mended_by,omitempty"`   // which program had changed it, as far as that is known

	Reroutes int `json:"reroutes,omitempty"` // how often the default route came to it, left it or took another gateway, or it got an address

	OffUntil string `json:"off_until,omitempty"` // RFC 3339: a person has turned it off for a while

	Line *steer.View `json:"line,omitempty"` // missing: the line is not followed now
	// Measured is what is measured of a line whose rates are held; missing: nothing is now.
	Measured *steer.View `json:"measured,omitempty"`
}

// Name is how people see the WAN: its interface, and its router if that is another machine.
func (s WANStatus) Name() string { return config.WAN{Interface: s.WAN, Router: s.Router}.Name() }

// Ways returns what is believed of each direction, by follow.Direction: the shaper's rate
// alone, where the line is not followed.
func (s WANStatus) Ways() [2]follow.Belief {
	if s.Line != nil {
		return [2]follow.Belief{follow.Down: s.Line.Down, follow.Up: s.Line.Up}
	}
	return [2]follow.Belief{follow.Down: {Rate: s.Down}, follow.Up: {Rate: s.Up}}
}

// Says tells in a sentence how the WAN is kept.
func (s WANStatus) Says() string {
	name := s.Name()
	switch s.State {
	case supervise.InPlace:
		switch {
		case s.Line != nil:
			return fmt.Sprintf("%s is followed, now %s down and %s up", name, s.Down.Short(), s.Up.Short())
		case s.Down != 0 && s.Up != 0:
			return fmt.Sprintf("%s is kept at %s down and %s up", name, s.Down, s.Up)
		case s.Down != 0:
			return fmt.Sprintf("%s is kept at %s down", name, s.Down)
		}
		return fmt.Sprintf("%s is kept at %s up", name, s.Up)
	case supervise.Suspended:
		if s.OffUntil != "" {
			return name + " is off until " + s.OffUntil
		}
		return name + " is off, since somebody reverted it; turn it on with: unbloat apply --again --yes --wan " + s.WAN
	case supervise.Starting:
		return name + " is being looked at"
	}
	if s.Why == "" {
		return fmt.Sprintf("%s is %s", name, s.State)
	}
	return fmt.Sprintf("%s is %s: %s", name, s.State, s.Why)
}

// errorFor makes an Error of an error.
func errorFor(err error, classify func(error) Code) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	var busy *apply.BusyError
	if errors.As(err, &busy) {
		return &Error{CodeBusy, err.Error()}
	}
	code := CodeFailed
	if classify != nil {
		code = classify(err)
	}
	return &Error{code, err.Error()}
}
