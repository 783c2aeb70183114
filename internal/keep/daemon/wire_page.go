package daemon

import (
	"unbloat/internal/keep/config"
	"unbloat/reason"
	"unbloat/unit"
)

// Methods for whoever shows and changes a WAN's settings: the router's page, LuCI.
const (
	MethodSettings = "settings" // → []Settings, of the WAN or of all
	MethodChange   = "change"   // ChangeParams → Change
	MethodEvents   = "events"   // → []Happening, newest first
	MethodClasses  = "classes"  // ClassesParams → []FlowClasses, in the same order
	MethodSchedule = "schedule" // ScheduleParams → Schedule; of all WANs
	MethodWhile    = "while"    // WhileParams → While: for a while, and back by itself
	MethodPage     = "page"     // PageParams → Page
)

// Settings are what the configuration says of a WAN, and why its rates are as they are.
type Settings struct {
	WAN    string `json:"wan"`
	Router string `json:"router,omitempty"`
	On     bool   `json:"on"` // false: a person turned it off

	Down      unit.Rate `json:"down_bps"` // what the line carries; 0: not known
	Up        unit.Rate `json:"up_bps"`
	Follow    bool      `json:"follow"`
	CanFollow bool      `json:"can_follow"`     // the plan's shapers and this build can
	LeastDown unit.Rate `json:"least_down_bps"` // bounds while it is followed; 0: it is not
	MostDown  unit.Rate `json:"most_down_bps"`
	LeastUp   unit.Rate `json:"least_up_bps"`
	MostUp    unit.Rate `json:"most_up_bps"`
	Classes   bool      `json:"classes"` // traffic is divided
	// Tins are the classes by the number that connections' marks have for what arrives.
	Tins  map[int]string `json:"tins,omitempty"`
	First []string       `json:"first"` // machines that go first
	Last  []string       `json:"last"`  // machines that get what the others leave
	// Rules are the line's own, as "class=voice,home=192.168.1.7", and Limits what single machines
	// may carry at most, as "192.168.1.7 5 Mbit/s".
	Rules    []string `json:"rules"`
	Limits   []string `json:"limits"`
	CanLimit bool     `json:"can_limit"` // this platform can

	WhyDown *reason.Reason `json:"why_down,omitempty"` // why the plan's rate is what it is
	WhyUp   *reason.Reason `json:"why_up,omitempty"`

	Change *Change `json:"change,omitempty"` // waits for its confirmation
}

// ChangeParams are those of MethodChange. What is not given stays.
type ChangeParams struct {
	Down    *unit.Rate `json:"down_bps,omitempty"` // what the line carries
	Up      *unit.Rate `json:"up_bps,omitempty"`
	Follow  *bool      `json:"follow,omitempty"`
	On      *bool      `json:"on,omitempty"`
	Machine string     `json:"machine,omitempty"` // address of a machine of the home
	Action  Action     `json:"action,omitempty"`  // what holds for it
	Rules   *[]string  `json:"rules,omitempty"`   // all of them, as in Settings
	Limits  *[]string  `json:"limits,omitempty"`  // all of them, as in Settings
	Confirm float64    `json:"confirm_seconds,omitempty"`
}

// What may hold for a while.
const (
	WhileOff   = "off"   // nothing is shaped
	WhileFirst = "first" // a machine goes first
)

// WhileParams are those of MethodWhile.
type WhileParams struct {
	Do      string  `json:"do"`                // off or first
	Machine string  `json:"machine,omitempty"` // of first: address, MAC address or name
	Seconds float64 `json:"seconds"`           // from 60 to a week; 0: it ends now
}

// A While is what holds for a while.
type While struct {
	Until string `json:"until,omitempty"` // RFC 3339; missing: it has ended
}

// An Action is what holds for a machine.
type Action string

// What may hold for a machine.
const (
	ActionFirst Action = "first" // it goes first
	ActionLast  Action = "last"  // it gets what the others leave
	ActionNone  Action = "none"  // as its flows behave
)

// Bounds of ChangeParams.Confirm, in seconds.
const (
	leastConfirm = 5
	usualConfirm = 30
	mostConfirm  = 600
)

// A Change is in force, and is undone by itself at its deadline unless somebody
// confirms it.
type Change struct {
	ID       string     `json:"id"`
	Kind     ChangeKind `json:"kind"`
	By       string     `json:"by"`       // page or command
	Deadline string     `json:"deadline"` // RFC 3339
	Left     float64    `json:"left_seconds"`
	Seconds  float64    `json:"seconds"` // that it had in all
}

// A ChangeKind says what a change changes.
type ChangeKind string

// Kinds of changes.
const (
	ChangeLine   ChangeKind = "line"   // speeds
	ChangeFollow ChangeKind = "follow" // whether the line is followed, and perhaps speeds
	ChangeOn     ChangeKind = "on"
	ChangeOff    ChangeKind = "off"
	ChangeRule   ChangeKind = "rule" // of a machine
	ChangePlan   ChangeKind = "plan" // of the schedule, where that holds now
)

// ScheduleParams are those of MethodSchedule.
type ScheduleParams struct {
	Entries *[]config.EntryTable `json:"entries,omitempty"` // all that there are to be; missing: it is only asked for
	Confirm float64              `json:"confirm_seconds,omitempty"`
}

// A Schedule is what is done by itself at certain times.
type Schedule struct {
	Entries []config.EntryTable `json:"entries"`
	// Change is there if what was asked for is in force already, and waits for its
	// confirmation. What only holds at another time is kept at once.
	Change *ScheduleChange `json:"change,omitempty"`
}

// A ScheduleChange is a change of the schedule, and the WAN where that holds now.
type ScheduleChange struct {
	WAN    string `json:"wan"`
	Router string `json:"router,omitempty"`
	Change
}

// IDParams name the change that MethodConfirm and MethodRevert are about. Without
// them it is whatever waits, or is there.
type IDParams struct {
	Change string `json:"change,omitempty"`
}

// A Happening is something that happened to a WAN.
type Happening struct {
	N      uint64    `json:"n"`
	Time   string    `json:"time"` // RFC 3339
	WAN    string    `json:"wan"`
	Router string    `json:"router,omitempty"`
	Kind   EventKind `json:"kind"`
	By     string    `json:"by,omitempty"`   // page, command, or a program's name
	What   []string  `json:"what,omitempty"` // differences, or why, for people
	Undone Undone    `json:"undone,omitempty"`
	Change string    `json:"change,omitempty"` // ID
}

// An EventKind says what happened.
type EventKind string

// What happened.
const (
	EventApplied   EventKind = "applied"   // a change was made
	EventConfirmed EventKind = "confirmed" // and kept
	EventTimeout   EventKind = "timeout"   // nobody confirmed it, so it was undone
	EventReverted  EventKind = "reverted"  // a person took it back
	EventOff       EventKind = "off"
	EventOn        EventKind = "on"
	EventMended    EventKind = "mended"    // something else had changed it; it was put back
	EventStarted   EventKind = "started"   // put in place at the daemon's start, or after a new configuration
	EventReplaced  EventKind = "replaced"  // the interface came again, and was shaped again
	EventTrouble   EventKind = "trouble"   // it could not be put in place
	EventWell      EventKind = "well"      // it is in place again
	EventContested EventKind = "contested" // another shaper fights for it; it is left alone
)

// Undone says whether what a Happening tells was undone.
type Undone string

// Whether something was undone.
const (
	UndoneNo  Undone = ""    // it holds, or there was nothing to undo
	UndoneYes Undone = "yes" //
	UndoneMay Undone = "may" // it waits for its confirmation
)

// ClassesParams are those of MethodClasses.
type ClassesParams struct {
	Flows []FlowParams `json:"flows"` // at most MostClassed
}

// MostClassed is how many flows MethodClasses takes.
const MostClassed = 256

// FlowParams are what is known of a flow that has a class.
type FlowParams struct {
	Protocol string    `json:"protocol"` // tcp, udp, icmp, sctp, esp, gre
	Home     string    `json:"home"`     // address, and port where the protocol has one
	Far      string    `json:"far"`
	Bytes    unit.Size `json:"bytes"`   // that it has carried, both ways
	Packets  uint64    `json:"packets"` // both ways; 0: not known
	Answered bool      `json:"answered"`
	Mark     uint32    `json:"mark"` // of its connection
}

// FlowClasses are the classes of a flow.
type FlowClasses struct {
	Down FlowClass `json:"down"`
	Up   FlowClass `json:"up"`
}

// A FlowClass is the class of one direction, and why.
type FlowClass struct {
	Class string     `json:"class"` // "": the direction has no classes
	Why   []ClassWhy `json:"why"`   // what was found on the way; the last decided
}

// A ClassWhy is a reason of a class.
type ClassWhy struct {
	Code string `json:"code"`           // as in calm_tcp
	Rule string `json:"rule,omitempty"` // of by_rule: its name, or its number from 1
}

// PageParams are those of MethodPage, which need not be given.
type PageParams struct {
	NewToken bool `json:"new_token,omitempty"` // for whoever has forgotten the password
	// Enter asks for a ticket instead of the token: for a page of the platform that knows
	// who asks, and what they may do: EnterAdmin or EnterViewer.
	Enter string `json:"enter,omitempty"`
}

// Who enters with a ticket.
const (
	EnterAdmin  = "admin"  // may change everything
	EnterViewer = "viewer" // may look
)

// A Page is how the router's page is reached.
type Page struct {
	URLs        []string `json:"urls"`
	Token       string   `json:"token"`                 // sets the password; "": there is one, or a ticket was asked for
	Ticket      string   `json:"ticket,omitempty"`      // logs in once, within a minute: URL + "#enter=" + Ticket
	Fingerprint string   `json:"fingerprint,omitempty"` // SHA-256 of its certificate, in hexadecimal
}
