//go:build !omit_follow && !omit_daemon && omit_measure

package main

import (
	"context"

	"unbloat/internal/gauge"
)

// echoOf returns nil: this build has no client of test servers.
func echoOf(string) func(context.Context) (gauge.Stream, error) { return nil }
