// Package cli is what the programs of a command line have in common: how a tree of
// commands is run, errors become exit codes and text, output becomes harmless, and
// files are written. The laboratory's program is one, so that it says everything as
// unbloat does.
package cli

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
	"github.com/spf13/pflag"
)

// Run runs a program with its arguments until it ends or a signal ends the context, and
// returns its exit code.
func Run(ctx context.Context, root *cobra.Command, args []string) int {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	_ = os.Setenv("PATH", withSbin(os.Getenv("PATH"))) // fails for no value that was in the environment
	root.SetArgs(args)
	out, errs := newOutlet(os.Stdout), newOutlet(os.Stderr)
	root.SetIn(NewInlet(ctx, os.Stdin))
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
	code := ExitCode(err)
	if text := ErrorText(err); text != "" {
		Say(errs, "%s: %s", root.Name(), strings.ReplaceAll(text, "\n", "\n  ")) // what follows is no line of ours
	}
	_ = errs.text.Flush()
	if err != nil && !out.used && slices.Contains(args, "--json") {
		_ = PrintJSON(out, Failure{Schema: "unbloat.error/1", Code: failureCode(code), Exit: code, Text: ErrorText(err)})
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

// Root makes c the first command of a program: one that has subcommands, says what is
// wrong with flags, and leaves the printing of errors to Run.
func Root(c *cobra.Command) *cobra.Command {
	Family(c)
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		var unknown *pflag.NotExistError
		if hint := ""; errors.As(err, &unknown) {
			var flags []string
			c.Flags().VisitAll(func(f *pflag.Flag) { flags = append(flags, f.Name) })
			if near := Nearest(unknown.GetSpecifiedName(), flags); near != "" {
				hint = "; do you mean --" + near + "?"
			}
			err = fmt.Errorf("%w%s", err, hint)
		}
		return UsageError("%s: %w (see `%s --help`)", NameOf(c), err, c.CommandPath())
	})
	c.SetHelpCommand(newHelpCommand())
	return c
}

// Family makes a command that only has subcommands refuse unknown ones.
func Family(c *cobra.Command) *cobra.Command {
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

// newHelpCommand is cobra's help command, but an unknown topic is an error. A command
// that takes its arguments as they are prints its own help.
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
			of, rest, err := c.Root().Find(args)
			switch {
			case err != nil:
				return UsageError("help: %w", err)
			case of.DisableFlagParsing && of.RunE != nil:
				return of.RunE(of, append(slices.Clone(rest), "--help"))
			}
			of.InitDefaultHelpFlag()
			return of.Help()
		},
	}
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
		of = NameOf(c) + ": "
	}
	return UsageError("%sthere is no command %q%s (see `%s --help`)", of, word, hint, c.CommandPath())
}

// Nearest returns the name that a misspelt word most likely means, or "".
func Nearest(word string, names []string) string {
	c := &cobra.Command{}
	for _, n := range names {
		c.AddCommand(&cobra.Command{Use: n, Run: func(*cobra.Command, []string) {}})
	}
	for c.SuggestionsMinimumDistance = 1; c.SuggestionsMinimumDistance <= 2; c.SuggestionsMinimumDistance++ {
		if near := c.SuggestionsFor(word); len(near) > 0 {
			return near[0]
		}
	}
	return ""
}

// NameOf returns a command's name for errors, without the program's name, which
// precedes every error.
func NameOf(c *cobra.Command) string {
	if !c.HasParent() {
		return c.Name()
	}
	return strings.TrimPrefix(c.CommandPath(), c.Root().Name()+" ")
}

// ExactArgs is cobra.ExactArgs with our exit code and a hint to the help.
func ExactArgs(n int, what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		hint := ""
		if f := c.Flags().Lookup("server"); f != nil && n == 0 && len(args) == 1 && !f.Changed {
			hint = "; do you mean --server " + args[0] + "?"
		}
		if len(args) != n {
			return UsageError("%s: takes %s, not %d%s (see `%s --help`)", NameOf(c), what, len(args), hint, c.CommandPath())
		}
		return nil
	}
}
