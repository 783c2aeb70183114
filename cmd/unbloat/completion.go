package main

import (
	"net"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"unbloat/internal/cure/plan"
)

// valuesOf returns what completes a flag, by its name: one name means the same on
// every command, unless its type says otherwise. It is nil where the values are no list.
func valuesOf(f *pflag.Flag) cobra.CompletionFunc {
	if f.Value.Type() != "string" {
		return nil
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
	return nil
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
