//go:build !omit_measure

package main

import "github.com/spf13/cobra"

// newMeasuringCommands are those that measure, and those that show what was
// measured.
func newMeasuringCommands() []*cobra.Command {
	return []*cobra.Command{
		newTestCommand(), newTuneCommand(), newProveCommand(), newPathCommand(),
		newReportCommand(), newHistoryCommand(), newCompareCommand(), newExportCommand(), newImportCommand(),
	}
}
