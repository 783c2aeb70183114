package platform

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"unbloat/internal/cure/classify"
	"unbloat/internal/cure/plan"
	"unbloat/unit"
)

// A Driver holds everything that is specific to a platform. Callers need to
// know nothing else about it.
type Driver struct {
	Language *plan.Language // what a current release supports

	// Is reports whether a router is of this platform. kernel and release are
	// uname(1)'s -s and -r.
	Is func(ctx context.Context, r Runner, kernel, release string) bool
	// Base says that other platforms are built on this one: detection tries
	// those first.
	Base bool

	// Capabilities reads what this router supports. An empty wan means the
	// interface of the default route; an empty lan stays unknown. nil: the
	// router can't be queried.
	Capabilities func(ctx context.Context, r Runner, wan, lan string) (plan.Capabilities, error)
	// DefaultWAN is the interface of the default routes. The error is a
	// *PreconditionError if there is none, or more than one.
	DefaultWAN func(ctx context.Context, r Runner) (string, error)

	// Aliases are the interfaces' further names, each with the one that everything
	// goes by; nil: an interface has one name.
	Aliases func(ctx context.Context, r Runner) (map[string]string, error)

	// Lacking adds to an error of plan.Make about something missing on this
	// router how to install it; nil: errors stay as they are.
	Lacking func(ctx context.Context, r Runner, wan string, err error) error
	// CheckWAN returns an error if wan is no interface of the router; nil:
	// unknown.
	CheckWAN func(ctx context.Context, r Runner, wan string) error
	// Unsure says why this user can't test what the router supports, so a
	// preview is a guess; "" if it isn't. nil: never a guess.
	Unsure func(ctx context.Context, r Runner) string

	// Render writes the plan's configuration to be pasted by a person, part by
	// part, with notes of what it cannot express. It reads nothing.
	Render func(p plan.Plan) (parts []PlanPart, notes []string, err error)

	// Checks begins an examination: it reads what the checks share and returns
	// them in order.
	Checks func(e *Examination) []Check

	// Backend returns the backend that reads and plans changes of the router's
	// state. The error says why these options can't be used.
	Backend func(o Options) (Backend, error)
	// Persister makes a plan survive a reboot; nil: what is applied survives
	// anyway.
	Persister func(o Options) Persister
	// StateDir is the directory of the journal of changes. If a reboot undoes
	// what is applied, it is a directory that a reboot empties.
	StateDir string
	// Owned finds our shapers without a journal, so that they can be reverted;
	// nil: the backend finds them on the given WAN.
	Owned func(ctx context.Context, r Runner) ([]plan.Plan, error)

	// OwnTC, if set, returns the driver that uses tc(8) directly, without the
	// platform's own shaping service.
	OwnTC func() *Driver
	// Service is that service's init script, without which only OwnTC shapes.
	Service string

	// Contends returns an error if a service of the platform shapes wan too, so that
	// it can't be kept; nil: there is no such service.
	Contends func(ctx context.Context, r Runner, wan string) error

	// Retune says how shapers get other rates in place, while a line is followed; nil:
	// they can't.
	Retune *Retune

	// Scheme is the URL scheme of the platform's API, as in "opnsense+https";
	// "": no API.
	Scheme string

	Classes   *Classes  // classes of current flows; nil: unknown
	Simulated Simulated // for the simulator
}

// A Retune says how the shapers of a platform get other rates in place.
type Retune struct {
	// Netlink says that the kernel is told without a command; else Backend.Retune has
	// the commands, or the whole plan is applied each time.
	Netlink bool
	// Every is the least time between two changes of a direction; 0: as often as needed.
	Every time.Duration
	// Can says why the shapers of a plan can't; nil: they can.
	Can func(p plan.Plan) error
	// Device returns the interface of a WAN on the router itself; nil: it has the WAN's
	// name.
	Device func(ctx context.Context, r Runner, wan string) (string, error)
}

// Name is the platform's name.
func (d *Driver) Name() string { return d.Language.Platform }

// Text writes a plan in the platform's configuration language, with the plan's
// reasons as comments.
func (d *Driver) Text(p plan.Plan) (string, error) {
	parts, notes, err := d.Render(p)
	if err != nil {
		return "", fmt.Errorf("write the plan for %s: %w", p.Platform, err)
	}
	return PlanText(p, parts, notes), nil
}

// Detect reads what this router supports. An empty wan means the interface of
// the default route.
func (d *Driver) Detect(ctx context.Context, r Runner, wan, lan string) (plan.Capabilities, error) {
	var f plan.Capabilities
	var err error
	if d.Capabilities != nil {
		f, err = d.Capabilities(ctx, r, wan, lan)
	} else {
		if wan == "" {
			if wan, err = d.DefaultWAN(ctx, r); err != nil {
				return f, err
			}
		}
		f.WAN, f.LAN = wan, lan
	}
	f.Platform, f.Language = d.Name(), d.Language
	return f, err
}

// Drivers are a program's drivers, in the order in which people see them. The
// first is for a router about which nothing is known.
type Drivers []*Driver

// Names returns the platforms' names.
func (all Drivers) Names() []string {
	var out []string
	for _, d := range all {
		out = append(out, d.Name())
	}
	return out
}

// Find returns the driver of a platform. The error is an *UnknownError, which
// lists all names.
func (all Drivers) Find(name string) (*Driver, error) {
	i := slices.IndexFunc(all, func(d *Driver) bool { return strings.EqualFold(d.Name(), name) })
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

// Options of a change to a router.
type Options struct {
	Runner  Runner
	Replace bool   // take over from a shaper that is not ours
	Preview bool   // nothing is changed: skip checks that only a change needs
	Remote  bool   // the router is another machine, on which this program is not installed
	API     bool   // Runner reaches the platform's API, not a shell
	Exe     string // this program's path, for the unit that runs it at boot
	Root    string // prefix of the configuration's paths; "": the real system
}

// Directories for journals of changes to this machine.
const (
	VolatileDir = "/run/unbloat"    // a reboot empties it, as it does the kernel's queues
	LastingDir  = "/var/db/unbloat" // the settings survive a reboot, so the journal must too
)

// A Persister makes a plan survive a reboot.
type Persister interface {
	Persist(ctx context.Context, p plan.Plan) error
	Forget(ctx context.Context) (done bool, err error)
	Persists() bool
}

// Lasting is the Persister of a platform whose settings survive a reboot anyway.
type Lasting struct{}

// Persist does nothing: the settings survive.
func (Lasting) Persist(context.Context, plan.Plan) error { return nil }

// Forget does nothing: revert restores the settings.
func (Lasting) Forget(context.Context) (done bool, err error) { return false, nil }

// Persists returns false: there is nothing besides the settings.
func (Lasting) Persists() bool { return false }

// Absent is the Persister of a router elsewhere, which forgets its queues at a restart and
// has no program of ours to apply them again.
type Absent struct{ Lasting }

// Persist refuses.
func (Absent) Persist(context.Context, plan.Plan) error {
	return &PreconditionError{Doing: "keep the plan over a reboot", What: "that needs this program on the router, which was reached from another machine",
		Remedy: "install it there and run `unbloat apply --yes --persist` there, or leave out --persist"}
}

// Classes are functions that read the classes of a router's flows.
type Classes struct {
	// Lost lists where the classification rules differ from those applied, for
	// people; nil if they don't.
	Lost func(ctx context.Context, r Runner, p plan.Plan) []string
	// Flows counts the flows of each machine, by direction and state: "up calm",
	// "down busy", "up steady".
	Flows func(ctx context.Context, r Runner) map[string]map[string]int
	// Connections returns those of the home's machines with their classes; nil if they
	// can't be read.
	Connections func(ctx context.Context, r Runner, p plan.Plan) []Connection
	// Unread says why what the classes remember can't be read; "" if it can. nil: it always can.
	Unread func(ctx context.Context, r Runner, p plan.Plan) string
	// Hosts returns the addresses of the home's machines, by name.
	Hosts func(ctx context.Context, r Runner) map[string][]string
	// Decided returns the classes of flows, up and down, as data; nil: the router can't say.
	Decided func(ctx context.Context, r Runner, p plan.Plan) func(f classify.Flow, d plan.Direction, carried unit.Size) (Decided, bool)
	// Why returns a flow's current class and the rule that decided it. The flow
	// may also be given with its ends swapped, or with its address after NAT.
	Why func(ctx context.Context, r Runner, p plan.Plan, f classify.Flow) Answer
}

// Simulated describes a platform's kernel queues for the simulator.
type Simulated struct {
	CoDel     string // the implementation, by the name that the golden traces have for it: "linux-7.3"
	Shaper    ShaperKind
	FIFOBytes bool // a FIFO's limit counts bytes: packets × MTU
	// Commands returns what the platform's own program runs for a plan; nil: what Render
	// writes are the commands.
	Commands func(p plan.Plan) (string, error)
}

// A ShaperKind is a kernel's shaping algorithm.
type ShaperKind int

// Kinds of shapers.
const (
	HTB  ShaperKind = iota // Linux's token buckets
	Pipe                   // dummynet's pipe: packets leave one after the other
	HFSC                   // pf's and ALTQ's service curves
)

// Detect returns the driver of a router's platform. If the router can't be
// queried or matches none, it is the first driver.
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

// CheckIfconfig is the CheckWAN of platforms with ifconfig(8).
func CheckIfconfig(ctx context.Context, r Runner, wan string) error {
	var failed *CommandError // ifconfig ran and knows no such interface
	if _, err := Output(ctx, r, "ifconfig", wan); errors.As(err, &failed) {
		return &PreconditionError{Doing: "look at " + wan, What: "there is no such interface", Remedy: "name another with --wan; ifconfig lists them", Err: err}
	}
	return nil
}

// Has reports whether a path exists on the router.
func Has(ctx context.Context, r Runner, path string) bool {
	_, err := Output(ctx, r, "ls", "-d", path)
	return err == nil
}
