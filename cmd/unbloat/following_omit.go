//go:build omit_follow && !omit_daemon

package main

import (
	"errors"

	"unbloat/internal/daemon"
	"unbloat/internal/plan"
	"unbloat/internal/platform"
)

// followLines leaves the daemon without what follows lines: it holds their rates.
func followLines(*daemon.Options) {}

// canFollow says that this build follows no line.
func canFollow(*platform.Driver, plan.Plan) error {
	return errors.New("this build can't follow a line; use the full one, or follow = false, which holds the rates")
}
