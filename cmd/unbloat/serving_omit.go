//go:build omit_serve

package main

import "github.com/spf13/cobra"

func newServingCommands() []*cobra.Command {
	return leftOut("omit_serve", "run the server on another machine", "serve", "servers")
}
