//go:build !omit_tui

package screen

import (
	"io"

	"github.com/charmbracelet/x/term"
)

// Width returns how many columns the terminal has that w is; 0 if it is none.
func Width(w io.Writer) int {
	f, ok := w.(interface{ Fd() uintptr })
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(f.Fd())
	if err != nil {
		return 0
	}
	return width
}
