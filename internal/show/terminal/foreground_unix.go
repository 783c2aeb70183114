//go:build unix

package terminal

import (
	"os"

	"golang.org/x/sys/unix"
)

// foreground reports whether this process may change the terminal. A process in
// the background would be stopped.
func foreground(in *os.File) bool {
	group, err := unix.IoctlGetInt(int(in.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}
