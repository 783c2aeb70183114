// Command unbloat measures latency under load, plans the cure, applies it as a
// transaction, tunes it and proves it. See `unbloat --help`.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// Exit codes of the contract.
const (
	exitDone         = 0
	exitFailed       = 1 // and what was changed is undone
	exitUsage        = 2 // wrong usage or bad input
	exitNoBetter     = 3 // measured, but no better, so nothing was kept
	exitInvalid      = 4 // the measurement is invalid
	exitPrecondition = 5 // a precondition is missing
)

// exitError is an error that ends the program with its own exit code.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// version is set by the build.
var version = "unknown"

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int { return runWith(context.Background(), args) }

// runWith runs the program in a context, which may bring drivers of its own.
func runWith(ctx context.Context, args []string) int {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := newRootCommand()
	root.SetArgs(args)
	out := &standardOutput{File: os.Stdout}
	root.SetOut(out)
	err := root.ExecuteContext(ctx)
	if err == nil && out.err != nil {
		err = fmt.Errorf("print the result: %w", out.err)
	}
	return exitCode(err)
}

// standardOutput remembers that something could not be written, such as on a
// full disk, so that nobody who prints need ask.
type standardOutput struct {
	*os.File
	err error // the first
}

func (o *standardOutput) Write(b []byte) (int, error) {
	n, err := o.File.Write(b)
	if o.err == nil {
		o.err = err
	}
	return n, err
}

// exitCode prints err, if any, and returns the code it stands for. This is the
// one place where errors become exit codes.
func exitCode(err error) int {
	if err == nil {
		return exitDone
	}
	var e *exitError
	if errors.As(err, &e) {
		if e.err != nil {
			fmt.Fprintln(os.Stderr, "unbloat:", e.err)
		}
		return e.code
	}
	fmt.Fprintln(os.Stderr, "unbloat:", err)
	return exitFailed
}

// family makes a command that has only subcommands refuse words that are none.
func family(c *cobra.Command) *cobra.Command {
	c.Args = cobra.ArbitraryArgs
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return c.Help()
		}
		hint := ""
		if near := c.SuggestionsFor(args[0]); len(near) > 0 {
			hint = "; do you mean " + near[0] + "?"
		}
		return usageError("%s: there is no command %q%s (see `%s --help`)", c.CommandPath(), args[0], hint, c.CommandPath())
	}
	return c
}

func newRootCommand() *cobra.Command {
	root := family(&cobra.Command{
		Use:           "unbloat",
		Short:         "Measure, cure and prove away the queues that break up calls",
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       version,
	})
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return &exitError{exitUsage, fmt.Errorf("%s: %w (see `%s --help`)", c.CommandPath(), err, c.CommandPath())}
	})
	root.AddCommand(newPlanCommand(), newApplyCommand(), newConfirmCommand(), newRevertCommand(), newStatusCommand(), newWhyCommand(),
		newWatchdogCommand(), newDoctorCommand())
	root.AddCommand(newMeasuringCommands()...)
	root.AddCommand(newServingCommands()...)
	root.AddCommand(newLaboratoryCommands()...)
	withConfig(root)
	root.AddGroup(&cobra.Group{ID: "main", Title: "Measure and cure:"}, &cobra.Group{ID: "lab", Title: "Try it safely:"})
	return root
}
