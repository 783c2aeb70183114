//go:build omit_manual

package main

import "github.com/spf13/cobra"

func newManualCommands() []*cobra.Command {
	return leftOut("omit_manual", "the whole program has it", "manual")
}
