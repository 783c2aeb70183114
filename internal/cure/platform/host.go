// Package platform defines what all router platforms share: the Driver of a
// platform, the Runner that executes commands on a router, the doctor's
// examination, and the errors that say what is missing. Each platform is a
// sub-package.
package platform

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"unbloat/guard"
	"unbloat/internal/cure/plan"
	"unbloat/unit"
)

// A Runner runs one command on the router. argv[0] is looked up in the router's
// PATH; there is no shell. err is an *exec.ExitError-like error if the command
// ran and failed, *MissingToolError if it could not be found.
type Runner interface {
	Run(ctx context.Context, argv []string, stdin []byte) (stdout, stderr []byte, err error)
}

// A Step is one command of a transaction.
type Step struct {
	Argv  []string `json:"argv"`
	Stdin string   `json:"stdin,omitempty"`
}

// String returns the step as typed in a shell.
func (s Step) String() string {
	out := strings.Join(s.Argv, " ")
	if s.Stdin != "" {
		out += " <<EOF\n" + s.Stdin + "EOF"
	}
	return out
}

// State is a platform's snapshot of everything that it may change, in a format
// that only that platform reads. Package apply stores it and passes it back.
type State = json.RawMessage

// outlives is how long a command's output may go on after the command has ended, or was
// ended: what it has started may write it, and a busy router is slow.
const outlives = time.Minute

// CommandLimit bounds every command on a router. The longest answer is the list of
// connections, which fits with 100 000 of them. The longest command loads a whole
// firewall, which takes a slow router half a minute.
func CommandLimit() guard.Limit { return guard.Limit{Size: 32 * unit.MB, Time: 2 * time.Minute} }

// Local runs commands on this machine.
type Local struct {
	Limit guard.Limit // of each command; zero: CommandLimit
	// Self is unbloat itself, which reads and loads BPF programs; "": the program that runs.
	Self string
}

// Run implements Runner.
func (l Local) Run(ctx context.Context, argv []string, stdin []byte) (stdout, stderr []byte, err error) {
	if len(argv) == 0 {
		return nil, nil, errors.New("run: no command")
	}
	return cmp.Or(l.Limit, CommandLimit()).Take(ctx, func(ctx context.Context, out, errOut io.Writer) error {
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.Stdout, cmd.Stderr = out, errOut
		cmd.Env = append(os.Environ(), "LC_ALL=C")
		cmd.WaitDelay = outlives
		if stdin != nil {
			cmd.Stdin = bytes.NewReader(stdin)
		}
		err := cmd.Run()
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
			err = &MissingToolError{Tool: argv[0]}
		}
		if errors.Is(err, exec.ErrWaitDelay) {
			err = fmt.Errorf("what it started still holds its output %s after its end: %w", outlives, err)
		}
		return err
	})
}

// ErrUnreachable is wrapped by every error of a Runner that has lost, or never
// had, its connection to the router. Whether the command ran is then unknown.
var ErrUnreachable = errors.New("the router can't be reached")

// A PreconditionError says what prevents a change, and what to do about it.
// Nothing has been changed.
type PreconditionError struct {
	Doing  string   // "shape eth0"
	What   string   // "the kernel has no CAKE"
	Remedy string   // "load it with: modprobe sch_cake"; "": Or alone
	Or     *Setting // with which it is not needed; nil: there is none
	Err    error    // the error underneath, if any
}

func (e *PreconditionError) Error() string {
	return fmt.Sprintf("%s: %s; %s", e.Doing, e.What, e.Advice())
}

// Advice returns what to do.
func (e *PreconditionError) Advice() string {
	switch {
	case e.Or == nil:
		return e.Remedy
	case e.Remedy == "":
		return "use " + e.Or.String()
	}
	return e.Remedy + ", or use " + e.Or.String()
}

// A Setting is one of the daemon's configuration. Commands have a flag of the same
// name.
type Setting struct {
	Key, Value string
	// Write writes it for whoever reads the error; nil: as a flag.
	Write func(key, value string) string
}

// String returns the setting as it is typed.
func (s *Setting) String() string {
	if s.Write != nil {
		return s.Write(s.Key, s.Value)
	}
	return "--" + s.Key + " " + s.Value
}

// Unwrap returns the error underneath.
func (e *PreconditionError) Unwrap() error { return e.Err }

// A MissingToolError says that a program is not installed.
type MissingToolError struct{ Tool string }

func (e *MissingToolError) Error() string {
	return fmt.Sprintf("run %s: it is not installed, or not in PATH", e.Tool)
}

// A CommandError is a command that ran and failed, with its output.
type CommandError struct {
	Argv   []string
	Stderr string
	Err    error
}

func (e *CommandError) Error() string {
	said := strings.TrimSpace(e.Stderr)
	if said == "" {
		said = e.Err.Error()
	}
	return fmt.Sprintf("run `%s`: %s", strings.Join(e.Argv, " "), said)
}

// Unwrap returns the error underneath.
func (e *CommandError) Unwrap() error { return e.Err }

// Output runs a command and returns its standard output. If the command fails,
// the error is a *CommandError.
func Output(ctx context.Context, r Runner, argv ...string) ([]byte, error) {
	return OutputOf(ctx, r, nil, argv...)
}

// OutputOf is Output for a command with a standard input.
func OutputOf(ctx context.Context, r Runner, stdin []byte, argv ...string) ([]byte, error) {
	out, errOut, err := r.Run(ctx, argv, stdin)
	var missing *MissingToolError
	var pre *PreconditionError
	if errors.As(err, &missing) || errors.As(err, &pre) {
		return nil, err
	}
	if err != nil {
		return out, &CommandError{Argv: argv, Stderr: string(errOut), Err: err}
	}
	return out, nil
}

// An InputError says that a plan cannot be applied as it is written.
type InputError struct{ Why string }

func (e *InputError) Error() string { return "apply the plan: " + e.Why }

// CheckPlan returns an *InputError if the plan is not valid or is for another
// platform.
func CheckPlan(p plan.Plan, lang *plan.Language) error {
	if p.Platform != lang.Platform {
		return &InputError{fmt.Sprintf("it is for %q, not for %s; make one with --for %s", p.Platform, lang.Platform, lang.Platform)}
	}
	if err := p.Validate(lang); err != nil {
		return &InputError{err.Error()}
	}
	return nil
}
