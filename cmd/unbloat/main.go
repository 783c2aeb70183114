// Command unbloat measures latency under load, plans the cure, applies it as a
// transaction, tunes it and proves it. See `unbloat --help`.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// Exit codes of the contract.
const (
	exitDone         = 0
	exitFailed       = 1 // any change was undone
	exitUsage        = 2 // wrong usage or bad input
	exitNoBetter     = 3 // not better, so nothing was kept
	exitInvalid      = 4 // the measurement is invalid
	exitPrecondition = 5 // a precondition is missing
)

// exitError is an error that ends the program with its own exit code.
type exitError struct {
	code int
	err  error // nil: what went wrong has been printed
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}
func (e *exitError) Unwrap() error { return e.err }

// version is set at build time.
var version = "unknown"

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int { return runWith(context.Background(), args) }

// runWith runs the program with a context, which may contain other drivers.
func runWith(ctx context.Context, args []string) int {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	_ = os.Setenv("PATH", withSbin(os.Getenv("PATH"))) // fails for no value that was in the environment
	root := newRootCommand()
	root.SetArgs(args)
	out, errs := newOutlet(os.Stdout), newOutlet(os.Stderr)
	root.SetIn(&inlet{ctx: ctx, file: os.Stdin})
	root.SetOut(out)
	root.SetErr(errs)
	err := misspelt(root, args)
	if err == nil {
		err = root.ExecuteContext(ctx)
	}
	_ = out.text.Flush() // an error is in out.err
	if err == nil && out.err != nil {
		err = fmt.Errorf("print the result: %w", out.err)
	}
	code := exitCode(err)
	if text := errorText(err); text != "" {
		fmt.Fprintln(errs, "unbloat:", strings.ReplaceAll(text, "\n", "\n  ")) // what follows is no line of ours
	}
	_ = errs.text.Flush()
	if err != nil && !out.used && slices.Contains(args, "--json") {
		_ = printJSON(out, failure{Schema: "unbloat.error/1", Code: failureCodes[code], Exit: code, Text: errorText(err)})
	}
	return code
}

// withSbin returns a PATH with the sbin beside each bin: tc(8) and its like are there,
// and after su(1) Debian's root has none of them in PATH.
func withSbin(path string) string {
	dirs := filepath.SplitList(path)
	for _, d := range slices.Clone(dirs) {
		parent, ok := strings.CutSuffix(d, "/bin")
		if sbin := parent + "/sbin"; ok && !slices.Contains(dirs, sbin) {
			dirs = append(dirs, sbin)
		}
	}
	return strings.Join(dirs, string(filepath.ListSeparator))
}

// A failure is what a command with --json prints instead of a result.
type failure struct {
	Schema string `json:"schema"`
	Code   string `json:"code"` // failed, usage, no_better, invalid or precondition
	Exit   int    `json:"exit"` // the exit code
	Text   string `json:"text"`
}

// failureCodes name the exit codes.
var failureCodes = map[int]string{exitFailed: "failed", exitUsage: "usage", exitNoBetter: "no_better", exitInvalid: "invalid", exitPrecondition: "precondition"}

// errorText returns what is printed to standard error, all of what went wrong together;
// "" if it has been printed.
func errorText(err error) string {
	switch e := err.(type) {
	case nil:
		return ""
	case *exitError:
		return errorText(e.err)
	case interface{ Unwrap() []error }:
		if all := e.Unwrap(); errors.Join(all...).Error() == err.Error() { // joined, not wrapped
			texts := make([]string, len(all))
			for i, x := range all {
				texts[i] = errorText(x)
			}
			return strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), "\n")
		}
	}
	return err.Error()
}

// misspelt refuses an unknown command whatever flags follow it: cobra checks
// the flags first, and would complain about those.
func misspelt(root *cobra.Command, args []string) error {
	at := root
	for _, a := range args {
		if strings.HasPrefix(a, "-") || !at.HasSubCommands() {
			return nil
		}
		next, _, err := at.Find([]string{a})
		if err != nil || next == at {
			if slices.Contains([]string{"help", "completion", cobra.ShellCompRequestCmd, cobra.ShellCompNoDescRequestCmd}, a) {
				return nil
			}
			return noCommand(at, a)
		}
		at = next
	}
	return nil
}

// noCommand returns the error for an unknown subcommand.
func noCommand(c *cobra.Command, word string) error {
	hint := ""
	if near := c.SuggestionsFor(word); len(near) > 0 {
		hint = "; do you mean " + near[0] + "?"
	}
	of := ""
	if c.HasParent() {
		of = nameOf(c) + ": "
	}
	return usageError("%sthere is no command %q%s (see `%s --help`)", of, word, hint, c.CommandPath())
}

// nameOf returns a command's name for errors, without the program's name, which
// precedes every error.
func nameOf(c *cobra.Command) string {
	if !c.HasParent() {
		return c.Name()
	}
	return strings.TrimPrefix(c.CommandPath(), c.Root().Name()+" ")
}

// exitCode returns an error's exit code. This is the only place where errors become
// exit codes.
func exitCode(err error) int {
	if err == nil {
		return exitDone
	}
	var e *exitError
	if errors.As(err, &e) && !errors.Is(err, errInterrupted) {
		return e.code
	}
	return exitFailed
}

// family makes a command that only has subcommands refuse unknown ones.
func family(c *cobra.Command) *cobra.Command {
	c.Args = cobra.ArbitraryArgs
	c.SuggestionsMinimumDistance = 2
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return c.Help()
		}
		return noCommand(c, args[0])
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

		PersistentPreRun: func(c *cobra.Command, _ []string) { sayRates(c) },
	})
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return &exitError{exitUsage, fmt.Errorf("%s: %w (see `%s --help`)", nameOf(c), err, c.CommandPath())}
	})
	root.AddCommand(newPlanCommand(), newApplyCommand(), newConfirmCommand(), newRevertCommand(), newStatusCommand(), newWhyCommand(),
		newWatchdogCommand(), newClassifierCommand(), newDoctorCommand(), newUICommand(), newGlossaryCommand(), newVersionCommand())
	root.AddCommand(newResidentCommands()...)
	root.AddCommand(newMeasuringCommands()...)
	registerLead(root)
	root.AddCommand(newServingCommands()...)
	root.AddCommand(newLaboratoryCommands()...)
	root.AddCommand(newManualCommands()...)
	root.SetHelpCommand(newHelpCommand())
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() == "completion" {
			family(c)
		}
	}
	withConfig(root)
	withValues(root)
	root.AddGroup(&cobra.Group{ID: "main", Title: "Measure and cure:"}, &cobra.Group{ID: "lab", Title: "Try it safely:"})
	return root
}

// newHelpCommand is cobra's help command, but an unknown topic is an error.
func newHelpCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "help [COMMAND]",
		Short:   "Help about any command",
		Example: "  unbloat help plan\n  unbloat help lab run",

		ValidArgsFunction: completeCommands,
		RunE: func(c *cobra.Command, args []string) error {
			if err := misspelt(c.Root(), args); err != nil {
				return err
			}
			of, _, err := c.Root().Find(args)
			if err != nil {
				return usageError("help: %w", err)
			}
			of.InitDefaultHelpFlag()
			return of.Help()
		},
	}
}
