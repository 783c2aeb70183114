package platform

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"unbloat/aqm"
	"unbloat/internal/lang/nft"
	"unbloat/internal/plan"
	"unbloat/internal/platform/render"
)

// A Driver is all that is a platform's own. Whoever uses one asks nothing else
// about the platform: what a router can and how it is done is behind it.
type Driver struct {
	Language *plan.Language // what a current release's configuration can say

	// Is reports whether a router is one of these. kernel and release are what
	// uname(1) says.
	Is func(ctx context.Context, r Runner, kernel, release string) bool
	// Base says that others are built on this one: they are asked for first.
	Base bool

	// Capabilities reads what this router has. An empty wan is the default
	// route's, an empty lan is not looked for. nil: nothing can be asked.
	Capabilities func(ctx context.Context, r Runner, wan, lan string) (plan.Capabilities, error)
	// DefaultWAN is the interface of the default route; "" if there is none.
	DefaultWAN func(ctx context.Context, r Runner) string

	// Lacking turns an error of plan.Make about what this router lacks into one
	// that says what brings it; nil: nobody knows more of it.
	Lacking func(ctx context.Context, r Runner, wan string, err error) error
	// CheckWAN refuses a WAN that is no interface of the router; nil: nobody can tell.
	CheckWAN func(ctx context.Context, r Runner, wan string) error
	// Unsure says why who asks may not try what this router can, so that a preview
	// is a guess; "" if it is none. nil: it never is.
	Unsure func(ctx context.Context, r Runner) string

	// Render writes what a person pastes into such a router, part by part, and notes
	// of what its language cannot say. It reads nothing.
	Render func(p plan.Plan) (parts []render.Part, notes []string, err error)

	// Checks begins an examination: it reads what its checks share, and returns them
	// in the order in which they are made.
	Checks func(e *Examination) []Check

	// Backend is how its state is read and changed. The error says why this
	// router can't be changed this way.
	Backend func(o Options) (Backend, error)
	// Keeper makes a plan last over a reboot; nil: what is applied lasts by itself.
	Keeper func(o Options) Keeper
	// StateDir is where the journal of changes to this machine is kept: where a
	// reboot empties it, if a reboot undoes what is applied.
	StateDir string
	// Owned finds what is ours without a record of it, so that it can be undone;
	// nil: the backend finds it on the WAN that it is told.
	Owned func(ctx context.Context, r Runner) ([]plan.Plan, error)

	// OwnTC, if set, is the driver that shapes by tc(8) where this one has the
	// platform's own way.
	OwnTC func() *Driver

	// Scheme is the beginning of addresses at which its API is reached, as in
	// "opnsense+https"; "": there is none.
	Scheme string

	Classes   *Classes  // what it knows of flows now; nil: nothing
	Simulated Simulated // how its kernel queues
}

// Name is the platform's name.
func (d *Driver) Name() string { return d.Language.Platform }

// Text writes a plan in the platform's own language, with its reasons as comments.
func (d *Driver) Text(p plan.Plan) (string, error) {
	parts, notes, err := d.Render(p)
	if err != nil {
		return "", fmt.Errorf("write the plan for %s: %w", p.Platform, err)
	}
	return render.Text(p, parts, notes), nil
}

// Detect reads what this router has, for a plan. An empty wan is that of the
// default route.
func (d *Driver) Detect(ctx context.Context, r Runner, wan, lan string) (plan.Capabilities, error) {
	var f plan.Capabilities
	var err error
	if d.Capabilities != nil {
		f, err = d.Capabilities(ctx, r, wan, lan)
	} else {
		if wan == "" {
			if wan = d.DefaultWAN(ctx, r); wan == "" {
				return f, &PreconditionError{Doing: "find the WAN", What: "there is no default route", Remedy: "name the interface with --wan"}
			}
		}
		f.WAN, f.LAN = wan, lan
	}
	f.Platform, f.Language = d.Name(), d.Language
	return f, err
}

// Drivers are those that a program has, in the order in which they are listed to
// people. The first is that of a router of which nothing is known.
type Drivers []*Driver

// Names returns the platforms' names.
func (all Drivers) Names() []string {
	var out []string
	for _, d := range all {
		out = append(out, d.Name())
	}
	return out
}

// Find returns the driver of a platform; the error, an *UnknownError, lists the
// names that there are.
func (all Drivers) Find(name string) (*Driver, error) {
	i := slices.IndexFunc(all, func(d *Driver) bool { return d.Name() == name })
	if i < 0 {
		return nil, &UnknownError{Name: name, Known: all.Names()}
	}
	return all[i], nil
}

// An UnknownError says that there is no platform of that name.
type UnknownError struct {
	Name  string
	Known []string
}

func (e *UnknownError) Error() string {
	return fmt.Sprintf("%q is unknown; use one of %s", e.Name, strings.Join(e.Known, ", "))
}

// Options say how a router is changed.
type Options struct {
	Runner  Runner
	Replace bool   // take over from a shaper that is not ours
	Preview bool   // nothing is changed: what only a change needs is not asked for
	Remote  bool   // the router is another machine, on which this program is not installed
	API     bool   // Runner reaches the platform's API, not a shell
	Exe     string // this program's path, for what starts it at boot
	Root    string // prefix of the configuration's paths; "": the real system
}

// Where journals of changes to this machine are kept.
const (
	VolatileDir = "/run/unbloat"    // a reboot empties it, as it does the kernel's queues
	LastingDir  = "/var/db/unbloat" // the settings last, and so must the way back
)

// A Backend knows one platform's states. It never changes anything: it reads,
// says what is wanted, and lists the steps from one to the other.
type Backend interface {
	// Observe reads what the plan could touch, and what an earlier state knew of.
	Observe(ctx context.Context, p plan.Plan, earlier State) (State, error)
	// Desire returns the state that the plan asks for, or says what stands in the
	// way. What an earlier plan changed and this one doesn't is as origin had it.
	Desire(ctx context.Context, p plan.Plan, now, origin State) (State, error)
	// Baseline returns the state without unbloat: as origin had it (nil: not
	// known), and for what origin doesn't know, as now is without what is ours.
	Baseline(ctx context.Context, now, origin State) (State, error)
	// Compare returns the steps from actual to wanted, and the differences in
	// words; for equal states it returns neither.
	Compare(actual, wanted State) (steps []Step, differences []string, err error)
	// Explain turns a failed step's error into one that says what to do.
	Explain(err error) error
}

// A Shaper is a backend that explains what shapes on the router, whoever made it.
type Shaper interface {
	Shapers(ctx context.Context, wan string) ([]Shaped, error)
}

// A Keeper makes a plan last over a reboot.
type Keeper interface {
	Keep(ctx context.Context, p plan.Plan) error
	Forget(ctx context.Context) (done bool, err error)
	Kept() bool
}

// Lasting is the Keeper of a platform whose settings last by themselves.
type Lasting struct{}

// Keep does nothing: the settings last.
func (Lasting) Keep(context.Context, plan.Plan) error { return nil }

// Forget does nothing: who reverts takes the settings back.
func (Lasting) Forget(context.Context) (done bool, err error) { return false, nil }

// Kept reports that nothing beside the settings makes them last.
func (Lasting) Kept() bool { return false }

// Classes is what a router knows of the classes of its flows.
type Classes struct {
	// Lost says where the rules that divide a plan's traffic are not what was
	// applied; nil if they are.
	Lost func(ctx context.Context, r Runner, p plan.Plan) []string
	// Flows counts those of each machine that the meters know, by direction and
	// what they are: "up calm", "down busy".
	Flows func(ctx context.Context, r Runner) map[string]map[string]int
	// Machines is what each machine's connections have carried, by class.
	Machines func(ctx context.Context, r Runner, p plan.Plan) []Traffic
	// Hosts are the machines of the home by name.
	Hosts func(ctx context.Context, r Runner) map[string][]string
	// Why says which class a flow has now, and which rule decided; a flow named
	// the other way round, or as the WAN shows it, is found all the same.
	Why func(ctx context.Context, r Runner, p plan.Plan, f nft.Flow) Answer
}

// Simulated says how a platform's kernel queues, for the simulator.
type Simulated struct {
	CoDel     aqm.Dialect
	Shaper    ShaperKind
	FIFOBytes bool // a FIFO is as long as its packets would be if all were full
}

// A ShaperKind is how a kernel holds a rate.
type ShaperKind int

// Kinds of shapers.
const (
	HTB  ShaperKind = iota // Linux's token buckets
	Pipe                   // dummynet's: one packet after the other
	HFSC                   // pf's and ALTQ's service curves
)

// Detect asks a router which of the drivers is its own. What can't be asked, or
// is none of them, is the first's.
func Detect(ctx context.Context, r Runner, drivers []*Driver) *Driver {
	out, err := Output(ctx, r, "uname", "-sr")
	if err != nil {
		return drivers[0]
	}
	kernel, release, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	for _, base := range []bool{false, true} {
		for _, d := range drivers {
			if d.Base == base && d.Is(ctx, r, kernel, release) {
				return d
			}
		}
	}
	return drivers[0]
}

// CheckIfconfig is the CheckWAN of a router whose interfaces are ifconfig(8)'s.
func CheckIfconfig(ctx context.Context, r Runner, wan string) error {
	var failed *CommandError // it has been asked, and knows none
	if _, err := Output(ctx, r, "ifconfig", wan); errors.As(err, &failed) {
		return &PreconditionError{Doing: "look at " + wan, What: "there is no such interface", Remedy: "name another with --wan; ifconfig lists them", Err: err}
	}
	return nil
}

// Has reports whether a path is there on the router.
func Has(ctx context.Context, r Runner, path string) bool {
	_, err := Output(ctx, r, "ls", "-d", path)
	return err == nil
}
