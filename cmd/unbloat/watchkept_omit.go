//go:build omit_measure || omit_tui

package main

import (
	"github.com/spf13/cobra"

	"unbloat/internal/reason"
)

// viewKept prints lines: this build has no live view.
func viewKept(c *cobra.Command, words *reason.Language) keptView { return newKeptLines(c, words) }
