//go:build !omit_measure && !omit_tui && (omit_store || omit_daemon)

package main

import (
	"context"
	"time"

	"unbloat/internal/daemon"
	"unbloat/internal/platform"
)

// readFile does nothing: this build reads no files of results.
func (f *lineFlags) readFile(context.Context, string, string, time.Time, time.Time) (h daemon.History, err error) {
	return h, &platform.PreconditionError{Doing: "history: show the line", What: "no daemon runs here, which knows it", Remedy: "start it (docs/daemon.md)"}
}
