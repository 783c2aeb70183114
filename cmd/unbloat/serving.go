//go:build !omit_serve

package main

import "github.com/spf13/cobra"

// newServingCommands returns the commands of test servers.
func newServingCommands() []*cobra.Command {
	return []*cobra.Command{newServeCommand(), newServersCommand()}
}
