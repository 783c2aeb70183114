//go:build omit_daemon || omit_lab || omit_manual || omit_measure || omit_serve

package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

// leftOut returns commands that fail, and say that this build lacks them.
func leftOut(tag, instead string, names ...string) []*cobra.Command {
	var out []*cobra.Command
	for _, name := range names {
		out = append(out, &cobra.Command{
			Use: name, Short: "(not in this build)", Hidden: true, DisableFlagParsing: true,
			RunE: func(c *cobra.Command, _ []string) error {
				return &exitError{exitPrecondition, fmt.Errorf("%s: this build leaves the command out (build tag %s); %s", nameOf(c), tag, instead)}
			},
		})
	}
	return out
}
