//go:build !unix && !omit_tui

package screen

import "os"

// foreground reports whether this process may change the terminal.
func foreground(*os.File) bool { return true }
