//go:build router

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/tune"
	kept "unbloat/internal/keep/config"
	"unbloat/internal/keep/daemon"
	"unbloat/internal/keep/incident"
	"unbloat/internal/keep/page"
	"unbloat/internal/show/cli"
	"unbloat/reason"
)

// This is the program for routers, where flash is scarce: what the whole program has and
// this one has not.

// newRoomyCommands returns commands that fail, and say that this build lacks them.
func newRoomyCommands() []*cobra.Command {
	out := []*cobra.Command{newImportCommand()}
	for _, name := range []string{"report", "history", "compare", "export", "serve", "servers"} {
		out = append(out, &cobra.Command{
			Use: name, Short: "(not in this build)", Hidden: true, DisableFlagParsing: true,
			RunE: func(c *cobra.Command, _ []string) error { return leftOut(c) },
		})
	}
	return out
}

func leftOut(c *cobra.Command) error {
	return cli.Exit(cli.Precondition, fmt.Errorf("%s: this build leaves the command out (build tag router); the whole program has it, on another machine", cli.NameOf(c)))
}

// newImportCommand is import without results.
func newImportCommand() *cobra.Command {
	return &cobra.Command{
		Use: "import sqm|cake-autorate|qosmate FILE", GroupID: "main", Short: "Make a configuration from that of another program",
		Long: comeOverLong, Example: comeOverExample, Args: comeOverArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) < comeOverWords { // a FILE of results
				return leftOut(c)
			}
			return comeOver(c, args)
		},
	}
}

// Progress is shown as lines.

func drawLineOf(*cobra.Command, measuredLine) progress { return nil }

func drawPathTo(*cobra.Command, string) pathDrawing { return nil }

func viewKept(c *cobra.Command, words *reason.Language) keptView { return newKeptLines(c, words) }

// Results are printed, and not kept. --no-store is there all the same, for scripts.

type storeFlag struct{ file string }

type keepFlags struct {
	storeFlag
	noStore bool
}

func (f *keepFlags) register(c *cobra.Command) {
	c.Flags().BoolVar(&f.noStore, "no-store", true, "this build keeps no results")
	_ = c.Flags().MarkHidden("no-store")
}

type conditions struct {
	iface    string
	plan     *plan.Plan
	stateDir string
}

func (*keepFlags) keep(*cobra.Command, any, conditions) {}

func offerArchive(*daemon.Options) {}

func incidentsOfFile(context.Context, string, string, time.Time, time.Time) ([]incident.Incident, error) {
	return nil, noDaemon()
}

func checkArchive(c kept.Config, file string) error {
	if len(c.Notify) > 0 {
		return c.At(file, "notify", errors.New("this build tells nobody; use the whole program, or remove the table"))
	}
	if c.History == "" {
		return nil
	}
	return c.At(file, "history", errors.New("this build keeps nothing on a disk; use the whole program, or remove the line: the last day is in memory"))
}

func pageResults(string) func(context.Context) ([]page.Result, error) { return nil }

// Reports are not drawn.

func checkReport(flag, _ string) error {
	return cli.Exit(cli.Precondition, fmt.Errorf("%s: this build draws no reports (build tag router); make one from the JSON with the whole program", flag))
}

func writeTuneReport(string, *tune.Result) error { return nil } // checkReport lets none come so far

// No other router is reached.

func noRemote() error {
	return errors.New("this build reaches no other router (build tag router); the whole program does")
}

func (f *targetFlags) registerWay(*pflag.FlagSet) {}

func (f *targetFlags) registerWatchdog(*pflag.FlagSet) {}

func (f *targetFlags) reach(context.Context, *router) error {
	return cli.Exit(cli.Precondition, noRemote())
}

func (f *routerFlags) openREST(context.Context, *platform.Driver) (*router, error) {
	return nil, cli.Exit(cli.Precondition, noRemote())
}

func watchdogThere(*router) {}

func badAddress(error) bool { return false }
