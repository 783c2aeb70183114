// Command unbloat-lab is the laboratory of unbloat: `unbloat demo`, `unbloat lab` and
// `unbloat sim` run it. It says everything as these, since that is what people type. In
// the lab's guests it is the first process, the agent and the household; what it measures
// and cures with there is unbloat, which it finds beside itself.
package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"unbloat/internal/cure/platform/all"
	"unbloat/internal/show/cli"
	"unbloat/lab"
)

// version is set at build time.
var version = "unknown"

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int { return cli.Run(context.Background(), newRootCommand(), args) }

func newRootCommand() *cobra.Command {
	root := cli.Root(&cobra.Command{
		Use:     "unbloat",
		Short:   "Run the laboratory of unbloat",
		Version: version,
	})
	root.CompletionOptions.DisableDefaultCmd = true // that of unbloat asks this program too
	root.AddGroup(&cobra.Group{ID: "lab", Title: "Try it safely:"})
	told := []*cobra.Command{newDemoCommand(), newLabCommand(), newSimCommand()}
	root.AddCommand(told...)
	root.AddCommand(newInsideCommands()...)
	root.AddCommand(newFollowCommand())
	root.AddCommand(cli.ManualCommand(cli.Manual{Version: cli.Version(version)}, func() []*cobra.Command { return told }))
	cli.CompleteValues(root, []string{"sim replay", "sim merge", "sim predict"}, valuesOf)
	return root
}

// valuesOf returns what completes a flag, by its name; nil where the values are no list.
func valuesOf(f *pflag.Flag) cobra.CompletionFunc {
	var values []string
	switch f.Name {
	case "engine":
		values = []string{string(lab.Virtual), string(lab.Realtime), string(lab.Sim)}
	case "node":
		values = []string{lab.NodeRouter, lab.Host(1), lab.NodeModem, lab.NodeISP, lab.NodeServer}
	case "for":
		values = all.Names()
	default:
		return nil
	}
	return cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
}
