package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"unbloat/internal/show/cli"
	"unbloat/lab"
	"unbloat/lab/scenario"
	"unbloat/lab/simlab"
)

// newSimCompareCommand is `unbloat sim compare FILE…`, which `make compare-sim` runs.
func newSimCompareCommand() *cobra.Command {
	var cache string
	var seeds int
	var each bool
	c := &cobra.Command{
		Use:   "compare FILE...",
		Short: "Say how the simulator agrees with the real kernel",
		Long: `Runs all cases of scenarios on the lab's kernel and in the simulator, and prints the
figures of the one beside those of the other over several seeds.`,
		Example: "  unbloat sim compare scenarios/seed-003.toml\n  unbloat sim compare --cache bin/measured scenarios/*.toml",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.UsageError("%s: needs at least one scenario's file (see `%s --help`)", cli.NameOf(c), c.CommandPath())
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			return labError(agreement(c.Context(), c.OutOrStdout(), cache, seeds, each, args))
		},
	}
	c.Flags().StringVar(&cache, "cache", "", "`DIR` where the kernel's results are kept, and taken from the next time")
	c.Flags().IntVar(&seeds, "seeds", 10, "how many seeds to simulate")
	c.Flags().BoolVar(&each, "each", false, "print each seed's figures too")
	return c
}

// agreement prints the table of files.
func agreement(ctx context.Context, out io.Writer, cache string, seeds int, each bool, files []string) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "scenario\tcase\tphase\tfigure\tlab\tsim\tseeds\tagrees\t")
	agree, all := 0, 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		s, err := scenario.Parse(file, text)
		if err != nil {
			return err
		}
		var names []string
		for _, c := range s.Cases {
			names = append(names, c.Name)
		}
		real, err := measured(ctx, cache, file, s, names)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		var sims []*lab.Result
		for seed := range seeds {
			r, err := simlab.Run(ctx, s, simlab.Options{Cases: names, Seed: uint64(seed + 1)})
			if err != nil {
				return err
			}
			sims = append(sims, r)
		}
		for _, row := range simlab.Compare(real, sims) {
			all++
			word := "NO"
			if row.Agrees {
				agree++
				word = "yes"
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%.4g\t%.4g\t%.4g…%.4g\t%s\t\n", s.Name, row.Case, row.Phase, row.Figure, row.Lab, row.Sim, row.Least, row.Most, word)
			if each {
				fmt.Fprintf(t, "\t\t\t%.4g\t\t\t\t\t\n", row.Each)
			}
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "\n%d of %d figures agree.\n", agree, all)
	return err
}

// measured returns the lab's result, from the cache if it is there.
func measured(ctx context.Context, cache, file string, s *scenario.Scenario, cases []string) (*lab.Result, error) {
	kept := ""
	if cache != "" {
		// Of the whole path: two folders may have a scenario of the same name.
		kept = filepath.Join(cache, strings.ReplaceAll(strings.TrimSuffix(filepath.ToSlash(file), ".toml"), "/", "_")+".json")
		if text, err := os.ReadFile(kept); err == nil {
			var r lab.Result
			return &r, json.Unmarshal(text, &r)
		}
	}
	r, err := lab.Run(ctx, s, lab.Options{Cases: cases})
	if err != nil || kept == "" {
		return r, err
	}
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	return r, cli.WriteFile(kept, text, 0o644)
}
