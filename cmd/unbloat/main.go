// Command unbloat measures latency under load, plans the cure, applies it as a
// transaction, tunes it and proves it. See `unbloat --help`.
package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"unbloat/internal/show/cli"
)

// version is set at build time.
var version = "unknown"

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int { return runWith(context.Background(), args) }

// runWith runs the program with a context, which may contain other drivers.
func runWith(ctx context.Context, args []string) int { return cli.Run(ctx, newRootCommand(), args) }

func newRootCommand() *cobra.Command {
	root := cli.Root(&cobra.Command{
		Use:     "unbloat",
		Short:   "Measure the queues that break up calls, cure them, and prove it",
		Version: version,
		Example: "  unbloat\n  unbloat --router ssh://root@192.168.1.1\n  unbloat test",

		PersistentPreRun: func(c *cobra.Command, _ []string) { sayRates(c) },
	})
	root.AddCommand(newPlanCommand(), newApplyCommand(), newConfirmCommand(), newRevertCommand(), newStatusCommand(), newWhyCommand(), newIncidentsCommand(),
		newWatchdogCommand(), newClassifierCommand(), newDoctorCommand(), newUICommand(), newGlossaryCommand(), newVersionCommand(),
		newTestCommand(), newTuneCommand(), newProveCommand(), newPathCommand(), newManualCommand())
	root.AddCommand(newWhileCommands()...)
	root.AddCommand(newResidentCommands()...)
	registerLead(root)
	root.AddCommand(newLaboratoryCommands()...)
	root.AddCommand(newRoomyCommands()...)
	root.InitDefaultCompletionCmd()
	meant := map[string][]string{"test": {"speedtest", "measure"}, "revert": {"undo", "rollback"}, "doctor": {"check", "diagnose"}}
	for _, c := range root.Commands() {
		if c.Name() == "completion" {
			cli.Family(c)
		}
		c.SuggestFor = append(c.SuggestFor, meant[c.Name()]...)
	}
	withConfig(root)
	cli.CompleteValues(root, []string{"apply", "import", "servers new-key"}, valuesOf)
	root.AddGroup(&cobra.Group{ID: "main", Title: "Measure and cure:"}, &cobra.Group{ID: "lab", Title: "Try it safely:"})
	return root
}
