//go:build omit_daemon

package main

import (
	"io"

	"unbloat/internal/platform"
)

func headroomCheck() func(*platform.Examination) { return nil }

func printHeadroom(io.Writer, *platform.Headroom) {}
