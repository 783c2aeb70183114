//go:build omit_daemon

package main

import "unbloat/internal/platform"

func headroomCheck() func(*platform.Examination) { return nil }
