//go:build !unix

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"

	"unbloat/internal/show/cli"
)

// runInstead runs the program with this process's streams. The console sends its signals
// to both; this one waits for the other's exit code.
func runInstead(program string, args []string) error {
	c := exec.Command(program, args...)
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := c.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return cli.Exit(exit.ExitCode(), nil)
	case err != nil:
		return cli.Exit(cli.Precondition, fmt.Errorf("run %s: %w", program, err))
	}
	return nil
}
