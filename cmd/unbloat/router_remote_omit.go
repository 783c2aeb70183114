//go:build omit_remote

package main

import (
	"context"
	"errors"

	"github.com/spf13/pflag"

	"unbloat/internal/platform"
)

// reachesOthers says that this build reaches no router elsewhere.
const reachesOthers = false

// registerWay adds no flags: this build can only change the router on which it
// runs.
func (f *targetFlags) registerWay(*pflag.FlagSet) {}

func (f *targetFlags) registerWatchdog(*pflag.FlagSet) {}

var errNoRemote = errors.New("this build reaches no other router (build tag omit_remote); the whole program does")

func (f *targetFlags) reach(context.Context, *router) error {
	return &exitError{exitPrecondition, errNoRemote}
}

func (f *routerFlags) openREST(context.Context, *platform.Driver) (*router, error) {
	return nil, &exitError{exitPrecondition, errNoRemote}
}

func watchdogThere(*router) {}

func badAddress(error) bool { return false }
