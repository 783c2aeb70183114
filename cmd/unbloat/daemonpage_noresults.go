//go:build !omit_ui && !omit_daemon && omit_store

package main

import (
	"context"

	"unbloat/internal/ui"
)

// pageResults returns nil: this build keeps no results.
func pageResults(string) func(context.Context) ([]ui.Result, error) { return nil }
