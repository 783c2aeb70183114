package main

import (
	"encoding/json"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"unbloat/lab"
	"unbloat/lab/household"
)

// newInsideCommands returns the commands that run in the guest: its first
// process, the agent, and the processes of the household.
func newInsideCommands() []*cobra.Command {
	hidden := func(name string, run func(c *cobra.Command, args []string) error) *cobra.Command {
		return &cobra.Command{Use: name, Hidden: true, Args: cobra.MinimumNArgs(1), RunE: run}
	}
	// withGuest reads the guest's task from the file in the first argument, and
	// passes on an optional second argument.
	withGuest := func(run func(c *cobra.Command, g lab.Guest, more string) error) func(*cobra.Command, []string) error {
		return func(c *cobra.Command, args []string) error {
			text, err := os.ReadFile(args[0])
			if err != nil {
				return err
			}
			var g lab.Guest
			if err := json.Unmarshal(text, &g); err != nil {
				return err
			}
			return run(c, g, strings.Join(args[1:], " "))
		}
	}
	return []*cobra.Command{
		hidden("lab-init", func(_ *cobra.Command, args []string) error { return lab.Init(args[0]) }),
		hidden("lab-agent", func(c *cobra.Command, args []string) error { return lab.Agent(c.Context(), args[0]) }),
		hidden("lab-load", func(c *cobra.Command, args []string) error {
			return household.Run(c.Context(), args[0], c.InOrStdin(), c.OutOrStdout())
		}),
		hidden("lab-beside", func(c *cobra.Command, args []string) error { return lab.RunBesideImage(c.Context(), args[0]) }),
		hidden("lab-household", withGuest(func(c *cobra.Command, g lab.Guest, _ string) error {
			return lab.Household(c.Context(), g, c.OutOrStdout())
		})),
		hidden("lab-shapers", func(c *cobra.Command, args []string) error {
			return lab.WatchShapers(c.Context(), args[0], c.InOrStdin(), c.OutOrStdout())
		}),
		hidden("lab-meet", withGuest(func(c *cobra.Command, g lab.Guest, dir string) error {
			return lab.Meet(c.Context(), g, dir, c.OutOrStdout())
		})),
		hidden("lab-look", withGuest(func(c *cobra.Command, g lab.Guest, dir string) error {
			return lab.Look(c.Context(), g, dir, c.OutOrStdout())
		})),
	}
}
