//go:build omit_http && !omit_daemon

package main

import "unbloat/internal/daemon"

// offerMetrics leaves the daemon without metrics.
func offerMetrics(*daemon.Options) {}
