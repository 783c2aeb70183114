//go:build omit_store && !omit_daemon

package main

import (
	"errors"

	"unbloat/internal/daemon"
	kept "unbloat/internal/daemon/config"
)

// offerArchive does nothing: this build has no SQLite.
func offerArchive(*daemon.Options) {}

// checkArchive refuses a history that this build can't keep.
func checkArchive(c kept.Config, file string) error {
	if c.History == "" {
		return nil
	}
	return c.At(file, "history", errors.New("this build keeps nothing on a disk; use the whole program, or remove the line: the last day is in memory"))
}
