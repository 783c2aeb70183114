//go:build unix

package main

import (
	"fmt"
	"os"
	"syscall"

	"unbloat/internal/show/cli"
)

// runInstead makes this process the program: its streams, signals and exit code.
func runInstead(program string, args []string) error {
	err := syscall.Exec(program, append([]string{program}, args...), os.Environ())
	return cli.Exit(cli.Precondition, fmt.Errorf("run %s: %w", program, err))
}
