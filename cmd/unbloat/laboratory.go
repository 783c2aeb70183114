package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/spf13/cobra"

	"unbloat/internal/show/cli"
)

// newLaboratoryCommands are the commands of the laboratory, which is a program of its
// own beside this one.
func newLaboratoryCommands() []*cobra.Command {
	return []*cobra.Command{
		laboratoryCommand("demo", "See the whole story on an emulated home: measure, fix, measure again", "unbloat demo"),
		laboratoryCommand("lab", "Run scenarios on a real Linux kernel, in virtual time", "unbloat lab list"),
		laboratoryCommand("sim", "Run the queue algorithms in the simulator", "unbloat plan --down 30mbit --up 5mbit --json | unbloat sim predict -"),
	}
}

// laboratoryCommand returns a command that hands over to the laboratory, its help and
// completion too.
func laboratoryCommand(name, short, example string) *cobra.Command {
	return &cobra.Command{
		Use: name, Short: short, Example: "  " + example, GroupID: "lab", DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error { return handOver(append([]string{name}, args...)) },
		ValidArgsFunction: func(_ *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
			_ = handOver(append(append([]string{cobra.ShellCompRequestCmd, name}, args...), toComplete))
			return nil, cobra.ShellCompDirectiveError
		},
	}
}

// handOver runs the laboratory's program in place of this one. It returns only if it
// can't, or where a system has no exec(2).
func handOver(args []string) error {
	program, err := laboratory()
	if err == nil {
		err = runInstead(program, args)
	}
	return err
}

// laboratory returns the path of the laboratory's program, which is beside this one,
// wherever links to this one are.
func laboratory() (string, error) {
	self, err := os.Executable()
	if err == nil {
		self, err = filepath.EvalSymlinks(self)
	}
	if err != nil {
		return "", fmt.Errorf("find the laboratory: %w", err)
	}
	program := filepath.Join(filepath.Dir(self), "unbloat-lab")
	if runtime.GOOS == "windows" {
		program += ".exe"
	}
	if _, err := os.Stat(program); err != nil {
		return "", cli.Exit(cli.Precondition, fmt.Errorf("demo, lab and sim are in the program unbloat-lab, and there is no %s; it comes with the packages and tarballs for Linux on amd64 and arm64, and `make build` makes it", program))
	}
	return program, nil
}
