//go:build omit_http && !omit_measure

package main

import (
	"context"
	"io"
)

// nearest returns a --server value unchanged: lists need HTTP, which this build
// lacks.
func nearest(_ context.Context, _ io.Writer, server string) (string, error) { return server, nil }
