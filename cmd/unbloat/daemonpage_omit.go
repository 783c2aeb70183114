//go:build omit_ui && !omit_daemon

package main

import "unbloat/internal/daemon"

// offerPage leaves the daemon without the router's page.
func offerPage(*daemon.Options, *daemonFlags) {}
