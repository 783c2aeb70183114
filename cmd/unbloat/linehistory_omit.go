//go:build !omit_measure && omit_tui

package main

import (
	"errors"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"unbloat/internal/report"
)

// lineFlags have none: this build draws nothing.
type lineFlags struct{ line bool }

func (*lineFlags) register(*pflag.FlagSet) {}

func (f *historyFlags) showLine(*cobra.Command, time.Time) error {
	return &exitError{exitPrecondition, errors.New("history: this build draws no lines")}
}

func printLine(io.Writer, *report.Line) error {
	return &exitError{exitPrecondition, errors.New("report: this build draws no lines in a terminal; write a file with -o")}
}
