//go:build !omit_measure && !omit_tui && !omit_store && !omit_daemon

package main

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"unbloat/internal/daemon"
	"unbloat/internal/platform"
	"unbloat/internal/store"
)

// readFile reads what a line did from a file: the one that is named, or else the
// daemon's own.
func (f *lineFlags) readFile(ctx context.Context, wan, file string, from, to time.Time) (h daemon.History, err error) {
	if file == "" {
		c, err := daemon.Load(ctx, daemonConfig, nil)
		if err != nil || c.History == "" {
			return h, &platform.PreconditionError{Doing: "history: show the line", What: "no daemon runs here, which knows it", Remedy: "start it (docs/daemon.md), or name its file with --store"}
		}
		file = c.History
	}
	if wan, err = f.onlyLine(ctx, wan, file); err != nil {
		return h, err
	}
	return daemon.ReadHistory(ctx, lineArchive{}, file, wan, f.router, from, to, 0)
}

// onlyLine returns the line that is meant: the only one, if none is named.
func (f *lineFlags) onlyLine(ctx context.Context, wan, file string) (string, error) {
	if wan != "" {
		return wan, nil
	}
	s, err := store.OpenExisting(ctx, file)
	if errors.Is(err, fs.ErrNotExist) {
		return "", &platform.PreconditionError{Doing: "history: show the line", What: "nothing was written to " + file + " yet", Remedy: "wait five minutes: the daemon writes that often"}
	}
	if err != nil {
		return "", storeError(err)
	}
	wans, err := s.LineWANs(ctx)
	switch err = errors.Join(err, s.Close()); {
	case err != nil:
		return "", storeError(err)
	case len(wans) == 1:
		return wans[0], nil
	case len(wans) > 1:
		return "", usageError("history: --line: there are several lines (%q); say which with --wan", wans)
	}
	return "", nil
}
