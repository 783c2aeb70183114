// Package lab runs scenarios on a real Linux kernel: a whole home (hosts,
// router, modem, provider, server) inside one user-mode Linux process, in
// virtual time where the kernel for it is built, else in real time. No root is
// needed, and nothing of the host's can change: the guest sees the host's files
// through a read-only mount with an overlay in its own memory.
//
// The way of a run: Run (run.go) boots one guest a case (boot_linux.go); its
// first process sets up the file system (init_linux.go) and starts the agent
// (agent_linux.go), which wires the home (wiring.go), starts the server, puts
// the router into the case's state and measures.
package lab

import (
	"fmt"
	"runtime"
	"time"

	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/tune"
	"unbloat/internal/measure/verdict"
	"unbloat/lab/household"
	"unbloat/lab/scenario"
)

// Schema names the JSON layout of a Result.
const Schema = "unbloat.lab/1"

// An Engine is a way to run a scenario.
type Engine string

// Engines. Virtual and Realtime are real kernels; Sim is the simulator.
const (
	Virtual  Engine = "virtual"
	Realtime Engine = "realtime"
	Sim      Engine = "sim"
)

// ParseEngine reads an engine's name; "" chooses the best that is installed.
func ParseEngine(s string) (Engine, error) {
	switch e := Engine(s); e {
	case "", Virtual, Realtime, Sim:
		return e, nil
	}
	return "", fmt.Errorf("engine %q is unknown; it is virtual, realtime or sim", s)
}

// Result is what `unbloat lab run` found. Its JSON is part of the contract.
type Result struct {
	Schema         string       `json:"schema"`
	Scenario       string       `json:"scenario"`
	Engine         Engine       `json:"engine"`
	Kernel         string       `json:"kernel"`
	Seed           uint64       `json:"seed"` // of all that was random; the same again gives the same figures
	WallSeconds    float64      `json:"wall_seconds"`
	VirtualSeconds float64      `json:"virtual_seconds"` // of all cases together
	Cases          []CaseResult `json:"cases"`
	// Router describes the router's own image, if one took the place of the lab's.
	Router *RouterResult `json:"router,omitempty"`
}

// CaseResult is what one case of a scenario gave.
type CaseResult struct {
	Name           string        `json:"name"`
	Plan           *plan.Plan    `json:"plan"` // null: the router did nothing
	Test           *verdict.Test `json:"test"`
	Loads          []LoadResult  `json:"loads"`
	LineDownBps    float64       `json:"line_down_bps,omitempty"` // what crossed the line while loads ran, in Ethernet frames, in the counted window
	LineUpBps      float64       `json:"line_up_bps,omitempty"`
	Tune           *TuneResult   `json:"tune,omitempty"`
	Shapers        *ShaperRates  `json:"shapers,omitempty"`     // where the rates follow the line
	Followed       *FollowLog    `json:"followed,omitempty"`    // where Options.Log asked for it
	ProbeBytes     uint64        `json:"probe_bytes,omitempty"` // that the daemon sent and received to follow it, in Ethernet frames
	WallSeconds    float64       `json:"wall_seconds"`
	VirtualSeconds float64       `json:"virtual_seconds"`
	// ProcessorSeconds are those of one core that the guest took, its kernel and all of
	// its processes; 0 where it is not known.
	ProcessorSeconds float64         `json:"processor_seconds,omitempty"`
	Commands         []CommandResult `json:"commands,omitempty"` // what a test had run inside
	Router           *RouterCase     `json:"router,omitempty"`   // what a router's own image said
}

// LoadResult is what one load of the household got through, and what its user
// noticed: of QoE the part of its kind is given.
type LoadResult struct {
	Kind           string           `json:"kind"`
	Host           int              `json:"host"`
	Flows          int              `json:"flows"`
	GoodputBps     float64          `json:"goodput_bps"` // at the receiver, in the counted window; of both ways together
	GoodputDownBps float64          `json:"goodput_down_bps,omitempty"`
	GoodputUpBps   float64          `json:"goodput_up_bps,omitempty"`
	Latency        *verdict.Latency `json:"latency,omitempty"`
	household.QoE
}

// TuneResult is what `unbloat tune --json` printed on the emulated router.
type TuneResult struct {
	tune.Result
	ExitCode int `json:"exit_code"`
}

// CommandResult is the outcome of a program that was run inside the guest.
type CommandResult struct {
	ExitCode int    `json:"exit_code"`
	Output   string `json:"output"`
}

// A Guest is the whole task of one boot, handed to the guest in a file.
type Guest struct {
	Engine   Engine             `json:"engine"`
	Scenario *scenario.Scenario `json:"scenario"`
	Case     string             `json:"case"`            // measured, unless Command is given
	Cases    []string           `json:"cases,omitempty"` // with Router: measured one after the other
	Node     string             `json:"node"`            // where Command runs
	Command  []string           `json:"command"`         // runs instead of a measurement
	Dir      string             `json:"dir"`             // Command's working directory
	Env      []string           `json:"env"`             // Command's environment, added to the guest's
	Server   bool               `json:"server"`          // start `unbloat serve` for Command too
	Autorate string             `json:"autorate"`        // absolute path of cake-autorate's folder, for cases that have it
	Shell    bool               `json:"shell"`           // Command talks to the terminal
	Log      bool               `json:"log,omitempty"`   // have the daemon write what it measures and decides
	TuneOnly bool               `json:"tune_only"`       // leave it at what the tuner itself measures
	Programs Programs           `json:"programs"`
	Out      string             `json:"out"`              // absolute path of the folder that the guest may write to
	Seed     uint64             `json:"seed"`             // of all that is random in the guest
	Router   *Router            `json:"router,omitempty"` // a router's own image; nil: the lab's router
	Within   time.Duration      `json:"-"`                // of wall time, after which it is ended; 0: bootTimeout
}

// Nodes of the emulated home. Hosts of the home are home1, home2, …
const (
	NodeRouter = "router"
	NodeModem  = "modem"
	NodeISP    = "isp"
	NodeServer = "server"
	nodeSwitch = "switch"
)

// Names and addresses inside the guest, the same in every scenario.
const (
	RouterWAN  = "wan"
	RouterLAN  = "lan"
	ServerAddr = "10.3.0.2"
	ServerPort = 7676
	routerLAN4 = "10.1.0.1"
	routerWAN4 = "10.2.0.2"
	ispHome    = "home" // the provider's interface towards the home
	ispHome4   = "10.2.0.1"
	ispNet4    = "10.3.0.1"
)

// Host returns the name of the k-th machine of the home, from 1.
func Host(k int) string { return fmt.Sprintf("home%d", k) }

// Server returns the server's address as `--server` takes it.
func Server() string { return fmt.Sprintf("%s:%d", ServerAddr, ServerPort) }

// UnsupportedError says that this system cannot run the lab.
type UnsupportedError struct{ Need string }

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("the lab needs %s; this is %s/%s", e.Need, runtime.GOOS, runtime.GOARCH)
}

// MissingError says what has to be installed before the lab can run.
type MissingError struct {
	What, Remedy string
}

func (e *MissingError) Error() string { return fmt.Sprintf("%s is missing: %s", e.What, e.Remedy) }

// CrashedError says that the kernel of a guest ended before the lab did. That
// happens on processors which the kernel does not know.
type CrashedError struct {
	Scenario string
	Err      error  // how its process ended
	Tail     string // its last words
}

func (e *CrashedError) Error() string {
	return fmt.Sprintf("lab guest of %s ended without a result (%v); its last words:\n%s", e.Scenario, e.Err, e.Tail)
}

// Unwrap returns how the process ended.
func (e *CrashedError) Unwrap() error { return e.Err }

// Paths of programs inside the guest: what it measures and cures with, and the
// laboratory's own.
const (
	GuestUnbloat = guestOut + "/unbloat"
	GuestLab     = guestOut + "/unbloat-lab"
)

// guestOut is the one folder of the host that the guest writes to, as the guest sees it.
const guestOut = "/run/unbloat-lab"

// bootTimeout bounds a guest in wall time, unless it says otherwise: one that hangs is ended.
const bootTimeout = 15 * time.Minute
