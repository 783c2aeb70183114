//go:build omit_measure && !omit_daemon

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"unbloat/internal/daemon"
	kept "unbloat/internal/daemon/config"
)

// measureBeside is the program that measures where a router has it as a package of
// its own: in the same directory. "" if it is not there.
func measureBeside() string {
	self, err := os.Executable()
	if err != nil {
		return ""
	}
	program := filepath.Join(filepath.Dir(self), "unbloat-measure")
	if info, err := os.Stat(program); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	return program
}

// offerWork gives the daemon the program beside it that measures, if there is one:
// this build can't.
func offerWork(o *daemon.Options, f *daemonFlags) {
	if program := measureBeside(); program != "" {
		o.Work = func(ctx context.Context, j daemon.Job) (any, int, error) {
			return workBeside(ctx, program, f.stateDir, j)
		}
	}
}

// canWork reports whether the daemon can measure.
func canWork() bool { return measureBeside() != "" }

// checkWork refuses a schedule that this build can't keep.
func checkWork(_ context.Context, c kept.Config, file string) error {
	if canWork() {
		return nil
	}
	for _, e := range c.Schedule {
		if !e.Lasts() {
			return e.At(file, errors.New("this build can't measure; install unbloat-measure beside it, use the whole program, or remove the entry"))
		}
	}
	return nil
}
