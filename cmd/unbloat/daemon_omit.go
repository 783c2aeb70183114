//go:build omit_daemon

package main

import "github.com/spf13/cobra"

func newResidentCommands() []*cobra.Command {
	return leftOut("omit_daemon", "the program for routers that controls has it", "daemon")
}
