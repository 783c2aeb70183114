//go:build !omit_measure

package main

import "github.com/spf13/cobra"

// newMeasuringCommands returns the commands that measure, and those that show
// results.
func newMeasuringCommands() []*cobra.Command {
	return []*cobra.Command{
		newTestCommand(), newTuneCommand(), newProveCommand(), newPathCommand(),
		newReportCommand(), newHistoryCommand(), newCompareCommand(), newExportCommand(), newImportCommand(),
	}
}
