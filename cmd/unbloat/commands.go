//go:build !router

package main

import "github.com/spf13/cobra"

// newRoomyCommands returns the commands of the whole program, for which a router has no
// room: those of results and of test servers.
func newRoomyCommands() []*cobra.Command {
	return []*cobra.Command{
		newReportCommand(), newHistoryCommand(), newCompareCommand(), newExportCommand(), newImportCommand(),
		newServeCommand(), newServersCommand(),
	}
}
