package cli

import (
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// completeCommands gives the commands that `help` takes.
func completeCommands(c *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	of, rest, err := c.Root().Find(args)
	if err == nil && of.DisableFlagParsing && of.ValidArgsFunction != nil { // another program's
		return of.ValidArgsFunction(of, rest, toComplete)
	}
	if err != nil || len(rest) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, sub := range of.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, cobra.CompletionWithDesc(sub.Name(), sub.Short))
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// CompleteValues has every flag below root complete its values: those that values knows
// of, files where it takes one, and nothing where only a person knows. So it is with
// arguments, but for the commands whose names are in files. What a command has said
// itself stays as it is.
func CompleteValues(root *cobra.Command, files []string, values func(*pflag.Flag) cobra.CompletionFunc) {
	for _, c := range root.Commands() {
		CompleteValues(c, files, values)
	}
	if root.ValidArgsFunction == nil && !root.HasSubCommands() && !slices.Contains(files, NameOf(root)) {
		root.ValidArgsFunction = cobra.NoFileCompletions
	}
	root.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if _, said := root.GetFlagCompletionFunc(f.Name); said || f.NoOptDefVal != "" {
			return
		}
		complete := values(f)
		if complete == nil {
			if takesFile(f) {
				return
			}
			complete = cobra.NoFileCompletions
		}
		_ = root.RegisterFlagCompletionFunc(f.Name, complete) // fails only for a flag that there is not, or twice
	})
}

// takesFile reports whether a flag's value is the name of a file or directory,
// which the shell completes.
func takesFile(f *pflag.Flag) bool {
	name, _ := pflag.UnquoteUsage(f)
	return slices.Contains([]string{"FILE", "DIR", "PLAN"}, name) || slices.Contains([]string{"output", "report", "csv", "state-dir", "root"}, f.Name)
}
