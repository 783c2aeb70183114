// Command compare prints how the simulator agrees with the lab: for each
// scenario and case the figures of a real kernel beside the simulator's over
// several seeds. `make compare-sim` runs it.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"unbloat/internal/lab"
	"unbloat/internal/lab/scenario"
	"unbloat/internal/lab/simlab"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	binary := flag.String("unbloat", "bin/unbloat", "the program that runs the lab")
	cache := flag.String("cache", "", "folder that keeps the lab's results, and gives them if they are there")
	seeds := flag.Int("seeds", 10, "how many seeds to simulate")
	verbose := flag.Bool("v", false, "print each seed's figures too")
	flag.Parse()
	if err := run(ctx, os.Stdout, *binary, *cache, *seeds, *verbose, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, binary, cache string, seeds int, verbose bool, files []string) error {
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
		real, err := measured(ctx, binary, cache, file, names)
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
			if verbose {
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
func measured(ctx context.Context, binary, cache, file string, cases []string) (*lab.Result, error) {
	kept := ""
	if cache != "" {
		// Of the whole path: two folders may have a scenario of the same name.
		kept = filepath.Join(cache, strings.ReplaceAll(strings.TrimSuffix(filepath.ToSlash(file), ".toml"), "/", "_")+".json")
	}
	text, err := os.ReadFile(kept)
	if err != nil {
		args := []string{"lab", "run", file, "--json", "--quiet"}
		for _, c := range cases {
			args = append(args, "--case", c)
		}
		cmd := exec.CommandContext(ctx, binary, args...)
		cmd.Stderr = os.Stderr
		if text, err = cmd.Output(); err != nil {
			return nil, err
		}
		if kept != "" {
			if err := os.WriteFile(kept, text, 0o644); err != nil {
				return nil, err
			}
		}
	}
	var r lab.Result
	return &r, json.Unmarshal(text, &r)
}
