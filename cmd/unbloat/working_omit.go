//go:build omit_measure && !omit_daemon

package main

import (
	"context"
	"errors"

	"unbloat/internal/daemon"
	kept "unbloat/internal/daemon/config"
)

// offerWork does nothing: this build can't measure.
func offerWork(*daemon.Options, *daemonFlags) {}

// checkWork refuses a schedule that this build can't keep.
func checkWork(_ context.Context, c kept.Config, file string) error {
	for _, e := range c.Schedule {
		if !e.Lasts() {
			return e.At(file, errors.New("this build can't measure; use the whole program, or remove the entry"))
		}
	}
	return nil
}
