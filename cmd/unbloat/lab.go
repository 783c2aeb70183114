//go:build !omit_lab

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/x/term"
	"github.com/spf13/cobra"

	"unbloat/internal/lab"
	"unbloat/internal/lab/household"
	"unbloat/internal/lab/scenario"
	"unbloat/internal/lab/simlab"
	"unbloat/internal/platform/all"
	"unbloat/scenarios"
)

func newLabCommand() *cobra.Command {
	c := family(&cobra.Command{
		Use:     "lab",
		Short:   "Run scenarios on a real Linux kernel, in virtual time",
		GroupID: "lab",
		Long: `The lab emulates a home, its line and a server inside one user-mode Linux
process. It needs no root, and nothing outside it changes. In virtual time its
figures are exact on any machine; "unbloat lab kernel" builds the kernel for it.`,
		Example: `  unbloat lab list
  unbloat lab run seed-003
  unbloat lab run ./my-line.toml --case before --json
  unbloat lab shell seed-000 --node router`,
	})
	c.AddCommand(newLabListCommand(), newLabRunCommand(), newLabCompareCommand(), newLabShellCommand(), newLabKernelCommand())
	return c
}

func newLabListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the scenarios that come with unbloat",
		Args:  exactArgs(0, "no argument"),
		RunE: func(c *cobra.Command, _ []string) error {
			for _, name := range scenarios.Names() {
				s, err := loadScenario(name)
				if err != nil {
					return err
				}
				fmt.Fprintf(c.OutOrStdout(), "%-12s %s\n", name, s.Title)
			}
			return nil
		},
	}
}

type labRunFlags struct {
	engine   string
	platform string
	cases    []string
	seed     uint64
	json     bool
	quiet    bool
	output   string
}

func newLabRunCommand() *cobra.Command {
	var f labRunFlags
	c := &cobra.Command{
		Use:   "run SCENARIO|FILE",
		Short: "Run a scenario, by name or file, and print what its cases measured",
		Example: `  unbloat lab run seed-003
  unbloat lab run seed-000 --case before --case tuned --json
  unbloat lab run seed-000 --seed 2
  unbloat lab run seed-002 --engine sim --for openbsd-altq
  unbloat lab run ./my-line.toml --engine realtime`,
		Args: exactArgs(1, "a scenario's name or file"),
		RunE: func(c *cobra.Command, args []string) error { return runLab(c, args[0], f) },
	}
	c.Flags().StringVar(&f.engine, "engine", "", "virtual, realtime or sim (default: the best that is installed)")
	c.Flags().StringVar(&f.platform, "for", "", "with --engine sim: whose router, a platform (default linux)")
	c.Flags().StringSliceVar(&f.cases, "case", nil, "run only this case (may be repeated)")
	c.Flags().Uint64Var(&f.seed, "seed", 1, "of all that is random: the same seed gives the same figures, but in real time")
	c.Flags().BoolVar(&f.json, "json", false, "print the result as JSON (unbloat.lab/1)")
	c.Flags().BoolVar(&f.quiet, "quiet", false, "no progress")
	c.Flags().StringVarP(&f.output, "output", "o", "", "also write the JSON to this file")
	return c
}

func runLab(c *cobra.Command, name string, f labRunFlags) error {
	s, err := loadScenario(name)
	if err != nil {
		return err
	}
	engine, err := lab.ParseEngine(f.engine)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	for _, n := range f.cases {
		if _, err := s.Case(n); err != nil {
			return &exitError{exitUsage, err}
		}
	}
	switch {
	case f.platform == "":
	case engine != lab.Sim:
		return usageError("--for %s: the lab's routers are Linux; add --engine sim", f.platform)
	case !slices.Contains(all.Names(), f.platform):
		return usageError("--for %s: that platform is unknown; use one of %s", f.platform, strings.Join(all.Names(), ", "))
	}
	if f.seed == 0 {
		return &exitError{exitUsage, errors.New("--seed: a seed is a number from 1")}
	}
	o := lab.Options{Engine: engine, Cases: f.cases, Seed: f.seed}
	if !f.quiet {
		o.Started = func(line string) { fmt.Fprintln(c.ErrOrStderr(), line) }
		o.Console = c.ErrOrStderr()
	}
	r, err := runScenario(c.Context(), s, o, f.platform)
	if err != nil {
		return labError(err)
	}
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if f.output != "" {
		if err := writeFile(f.output, append(text, '\n'), 0o644); err != nil {
			return err
		}
	}
	if f.json {
		_, err = fmt.Fprintln(c.OutOrStdout(), string(text))
		return err
	}
	return lab.Print(c.OutOrStdout(), s, r)
}

// runScenario runs a scenario on a real kernel, or in the simulator, where the
// router may be any platform's; "" is Linux.
func runScenario(ctx context.Context, s *scenario.Scenario, o lab.Options, platform string) (*lab.Result, error) {
	if o.Engine != lab.Sim {
		return lab.Run(ctx, s, o)
	}
	start := time.Now()
	r, err := simlab.Run(ctx, s, simlab.Options{Cases: o.Cases, Seed: o.Seed, Platform: platform, Series: true})
	if err != nil {
		return nil, fmt.Errorf("simulate %s: %w", s.Name, err)
	}
	r.WallSeconds = time.Since(start).Seconds()
	return r, nil
}

func newLabShellCommand() *cobra.Command {
	var engine, node string
	c := &cobra.Command{
		Use:     "shell SCENARIO|FILE",
		Short:   "Get a prompt inside a scenario's home, in real time",
		Example: "  unbloat lab shell seed-000\n  unbloat lab shell seed-000 --node home1",
		Args:    exactArgs(1, "a scenario's name or file"),
		RunE: func(c *cobra.Command, args []string) error {
			s, err := loadScenario(args[0])
			if err != nil {
				return err
			}
			e, err := lab.ParseEngine(engine)
			if err != nil {
				return &exitError{exitUsage, err}
			}
			if in, ok := c.InOrStdin().(*os.File); !ok || !term.IsTerminal(in.Fd()) {
				return usageError("lab shell: standard input is not a terminal, and a prompt needs one; run it in a terminal (over ssh with -t), not behind a pipe")
			}
			return labError(lab.Shell(c.Context(), s, e, node))
		},
	}
	c.Flags().StringVar(&engine, "engine", "", "virtual or realtime: which kernel (time is real in either)")
	c.Flags().StringVar(&node, "node", lab.NodeRouter, "where the prompt is: router, home1, modem, isp or server")
	return c
}

func newLabKernelCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "kernel",
		Short:   "Build the virtual engine's kernel, once, into your cache",
		Example: "  unbloat lab kernel",
		Args:    exactArgs(0, "no argument"),
		RunE: func(c *cobra.Command, _ []string) error {
			k, err := lab.BuildKernel(c.Context(), func(line string) { fmt.Fprintln(c.ErrOrStderr(), "kernel:", line) })
			if err != nil {
				return labError(err)
			}
			fmt.Fprintf(c.OutOrStdout(), "Linux %s for the virtual engine: %s\n", k.Version, k.Path)
			return nil
		},
	}
}

// loadScenario reads a scenario by the name of an embedded one or by a file's path.
func loadScenario(name string) (*scenario.Scenario, error) {
	if strings.ContainsAny(name, "/.") {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, usageError("read the scenario: %w", err)
		}
		s, err := scenario.Parse(name, text)
		if err != nil {
			return nil, &exitError{exitUsage, err}
		}
		return s, nil
	}
	text, err := scenarios.Text(name)
	if err != nil {
		return nil, usageError("%w; a file is given by its path, as in ./%s.toml", err, name)
	}
	return scenario.Parse("scenarios/"+name+".toml", text)
}

// labError gives the lab's typed errors their exit codes.
func labError(err error) error {
	var missing *lab.MissingError
	var unsupported *lab.UnsupportedError
	if errors.As(err, &missing) || errors.As(err, &unsupported) {
		return &exitError{exitPrecondition, err}
	}
	return err
}

// newLabInsideCommands are what runs inside the guest: its first process, the
// agent, and the processes of the household.
func newLabInsideCommands() []*cobra.Command {
	hidden := func(name string, run func(c *cobra.Command, arg string) error) *cobra.Command {
		return &cobra.Command{Use: name, Hidden: true, Args: cobra.MinimumNArgs(1),
			RunE: func(c *cobra.Command, args []string) error { return run(c, args[0]) }}
	}
	return []*cobra.Command{
		hidden("lab-init", func(_ *cobra.Command, spec string) error { return lab.Init(spec) }),
		hidden("lab-agent", func(c *cobra.Command, spec string) error { return lab.Agent(c.Context(), spec) }),
		hidden("lab-load", func(c *cobra.Command, task string) error {
			return household.Run(c.Context(), task, c.InOrStdin(), c.OutOrStdout())
		}),
		hidden("lab-household", func(c *cobra.Command, spec string) error {
			text, err := os.ReadFile(spec)
			if err != nil {
				return err
			}
			var g lab.Guest
			if err := json.Unmarshal(text, &g); err != nil {
				return err
			}
			return lab.Household(c.Context(), g.Scenario, g.Case, lab.GuestBinary, c.OutOrStdout())
		}),
	}
}
