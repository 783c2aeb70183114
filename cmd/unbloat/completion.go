package main

import (
	"net"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"unbloat/internal/plan"
)

// withValues has every flag below root complete its values: those that there are
// few of by name, files where it takes one, and nothing where only a person knows.
// So it is with arguments. What a command has said itself stays as it is.
func withValues(root *cobra.Command) {
	for _, c := range root.Commands() {
		withValues(c)
	}
	if root.ValidArgsFunction == nil && !root.HasSubCommands() && !slices.Contains([]string{"apply", "import", "sim replay", "sim merge", "servers new-key"}, nameOf(root)) {
		root.ValidArgsFunction = cobra.NoFileCompletions
	}
	root.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if _, said := root.GetFlagCompletionFunc(f.Name); said || f.NoOptDefVal != "" || takesFile(f) {
			return
		}
		values := valuesOf(f)
		_ = root.RegisterFlagCompletionFunc(f.Name, values) // fails only for a flag that there is not, or twice
	})
}

// takesFile reports whether a flag's value is the name of a file or directory,
// which the shell completes.
func takesFile(f *pflag.Flag) bool {
	name, _ := pflag.UnquoteUsage(f)
	return slices.Contains([]string{"FILE", "DIR", "PLAN"}, name) && f.Name != "classes" || slices.Contains([]string{"output", "report", "csv", "state-dir", "root"}, f.Name)
}

// valuesOf returns what completes a flag, by its name: one name means the same on
// every command, unless its type says otherwise.
func valuesOf(f *pflag.Flag) cobra.CompletionFunc {
	if f.Value.Type() != "string" {
		return cobra.NoFileCompletions
	}
	switch f.Name {
	case "for":
		return completePlatforms
	case "wan", "lan":
		return completeInterfaces
	case "classes":
		return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return []string{"on", "off"}, cobra.ShellCompDirectiveDefault // or a file
		}
	}
	if values := map[string][]string{
		"aqm":        {string(plan.CAKE), string(plan.FQCoDel), string(plan.FIFO), string(plan.SFQ)},
		"link-layer": {string(plan.Ethernet), string(plan.DOCSIS), string(plan.ATM), string(plan.PTM)},
		"side":       {string(plan.SideIFB), string(plan.SideLAN), string(plan.SideIn)},
		"style":      {string(plan.StyleArticle)},
		"only":       {"down", "up"},
		"ecn":        {"on", "off"},
		"engine":     {"virtual", "realtime", "sim"},
		"node":       {"router", "home1", "modem", "isp", "server"},
		"profile":    {"rrul", "single", "many"},
		"load":       {"download", "upload", "both"},
		"direction":  {"up", "down", "both"},
		"way":        {"auto", "icmp", "raw", "udp"},
		"server":     {"auto", "cloudflare", "librespeed", "mlab"},
		"lang":       {"en", "de"},
		"print":      {"toml", "uci"},
	}[f.Name]; values != nil {
		return cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
	}
	return cobra.NoFileCompletions
}

// completePlatforms gives the names of the platforms that there are.
func completePlatforms(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return driversOf(c.Context()).Names(), cobra.ShellCompDirectiveNoFileComp
}

// completeInterfaces gives the names of this machine's interfaces; those of a
// router elsewhere are not known here.
func completeInterfaces(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	if f := c.Flags().Lookup("router"); f != nil && f.Changed {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	list, err := net.Interfaces()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, i := range list {
		if i.Flags&net.FlagLoopback == 0 {
			names = append(names, i.Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeCommands gives the commands that `help` takes.
func completeCommands(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	of, rest, err := c.Root().Find(args)
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
