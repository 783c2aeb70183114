//go:build !omit_serve

package main

import "github.com/spf13/cobra"

// newServingCommands are what others measure against.
func newServingCommands() []*cobra.Command {
	return []*cobra.Command{newServeCommand(), newServersCommand()}
}
