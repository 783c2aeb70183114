package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"unbloat/internal/show/cli"
	"unbloat/lab/scenario"
	"unbloat/lab/simlab"
)

type sweepFlags struct {
	vary     []string
	cases    []string
	seeds    int
	shard    string
	platform string
	output   string
	csv      string
	cores    int
	quiet    bool
}

// newSimSweepCommand is `unbloat sim sweep SCENARIO`.
func newSimSweepCommand() *cobra.Command {
	var f sweepFlags
	c := &cobra.Command{
		Use:   "sweep SCENARIO|FILE",
		Short: "Simulate a scenario with many parameters and seeds",
		Long: `Simulates every case of a scenario with every combination of the values given
and every seed, on all cores, and writes one line of JSON for each run. The same
sweep always gives the same bytes. If it is stopped, the same command goes on
where it was.

--shard 3/64 does the third of 64 parts, so that a cluster's own scheduler can
run a sweep; "unbloat sim merge" puts the parts together into what an unsplit run
writes.

Parameters: ` + strings.Join(simlab.SweepKeys(), ", ") + `.
Those of the router change the cases that shape with given numbers.`,
		Example: `  unbloat sim sweep seed-003 --vary up=1mbit,2mbit,5mbit --vary rtt=10ms,50ms --seeds 20 -o out.jsonl
  unbloat sim sweep seed-003 --vary router.aqm=cake,fq_codel --case seed -o out.jsonl --csv out.csv
  unbloat sim sweep seed-000 --seeds 1000 --shard 3/64 -o part-3.jsonl`,
		Args: cli.ExactArgs(1, "a scenario's name or file"),
		RunE: func(c *cobra.Command, args []string) error { return simSweep(c, args[0], f) },
	}
	c.ValidArgsFunction = completeScenarios
	c.Flags().StringArrayVar(&f.vary, "vary", nil, "a `PARAMETER` and its values, as in up=1mbit,2mbit (may be repeated)")
	c.Flags().StringSliceVar(&f.cases, "case", nil, "only this case (may be repeated)")
	_ = c.RegisterFlagCompletionFunc("case", completeCases)
	c.Flags().IntVar(&f.seeds, "seeds", 10, "how many seeds")
	c.Flags().StringVar(&f.shard, "shard", "1/1", "do only this part of the runs, as in 3/64")
	c.Flags().StringVar(&f.platform, "for", "", "the router's platform (default linux)")
	c.Flags().StringVarP(&f.output, "output", "o", "", "file to write, and to go on with (default: standard output)")
	c.Flags().StringVar(&f.csv, "csv", "", "also write a table to this file at the end (needs --output)")
	c.Flags().IntVar(&f.cores, "cores", runtime.NumCPU(), "how many runs side by side (default: one for each processor)")
	c.Flags().Lookup("cores").DefValue = "0" // the same text on every machine
	c.Flags().BoolVar(&f.quiet, "quiet", false, "no progress")
	return c
}

// newSimMergeCommand is `unbloat sim merge FILE…`.
func newSimMergeCommand() *cobra.Command {
	var output, table string
	c := &cobra.Command{
		Use:     "merge FILE...",
		Short:   "Put the parts of a sweep together",
		Example: `  unbloat sim merge part-*.jsonl -o all.jsonl --csv all.csv`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.UsageError("%s: needs the files of all shards", cli.NameOf(c))
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error { return simMerge(c.OutOrStdout(), args, output, table) },
	}
	c.Flags().StringVarP(&output, "output", "o", "", "file to write (default: standard output)")
	c.Flags().StringVar(&table, "csv", "", "also write a table to this file (needs --output)")
	return c
}

func simSweep(c *cobra.Command, name string, f sweepFlags) error {
	spec, shard, err := f.spec(name)
	if err != nil {
		return cli.Exit(cli.Usage, err)
	}
	out, skip, err := f.open(c.OutOrStdout(), spec, shard)
	if err != nil {
		return err
	}
	err = simlab.Sweep(c.Context(), spec, shard, skip, f.cores, out, f.progress(c.ErrOrStderr(), skip))
	if file, ok := out.(*os.File); ok && f.output != "" {
		err = errors.Join(err, file.Close())
	}
	switch {
	case err != nil && f.output != "" && c.Context().Err() != nil:
		return fmt.Errorf("sweep %s: stopped; the same command goes on", name)
	case err != nil:
		return fmt.Errorf("sweep %s: %w", name, err)
	case f.csv != "":
		return writeTable(f.csv, f.output)
	}
	return nil
}

// spec returns the sweep of the flags.
func (f *sweepFlags) spec(name string) (*simlab.SweepSpec, simlab.Shard, error) {
	var shard simlab.Shard
	s, err := loadScenario(name)
	if err != nil {
		return nil, shard, err
	}
	if f.csv != "" && f.output == "" {
		return nil, shard, errors.New("--csv needs --output too")
	}
	if len(f.cases) > 0 {
		var kept []scenario.Case
		for _, n := range f.cases {
			one, err := s.Case(n)
			if err != nil {
				return nil, shard, err
			}
			kept = append(kept, one)
		}
		s.Cases = kept
	}
	var axes []simlab.Axis
	for _, v := range f.vary {
		a, err := simlab.ParseAxis(v)
		if err != nil {
			return nil, shard, err
		}
		axes = append(axes, a)
	}
	if shard, err = simlab.ParseShard(f.shard); err != nil {
		return nil, shard, err
	}
	spec, err := simlab.NewSweep(s, f.platform, axes, f.seeds)
	return spec, shard, err
}

// open opens the file, finds the complete lines in it, and cuts off the rest.
func (f *sweepFlags) open(stdout io.Writer, spec *simlab.SweepSpec, shard simlab.Shard) (io.Writer, int, error) {
	header, err := spec.Header(shard)
	if err != nil {
		return nil, 0, err
	}
	if f.output == "" {
		_, err = stdout.Write(header)
		return stdout, 0, err
	}
	file, err := os.OpenFile(f.output, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, 0, cli.UsageError("open the sweep's file: %w", err)
	}
	skip, at, err := spec.Resume(shard, file)
	if err == nil {
		err = file.Truncate(at)
	}
	if err == nil {
		_, err = file.Seek(at, io.SeekStart)
	}
	if err == nil && at == 0 {
		_, err = file.Write(header)
	}
	if err != nil {
		_ = file.Close()
		return nil, 0, cli.UsageError("go on with %s: %w; give another --output or remove it", f.output, err)
	}
	return file, skip, nil
}

// progress returns a function that prints how far a sweep is, at most five
// times a second.
func (f *sweepFlags) progress(w io.Writer, skip int) func(complete, of int) {
	if f.quiet {
		return nil
	}
	began, last := time.Now(), time.Time{}
	return func(complete, of int) {
		now := time.Now()
		if complete < of && now.Sub(last) < 200*time.Millisecond {
			return
		}
		last = now
		left := ""
		if done := complete - skip; done > 0 && complete < of {
			left = fmt.Sprintf(", %s left", (now.Sub(began) / time.Duration(done) * time.Duration(of-complete)).Round(time.Second))
		}
		fmt.Fprintf(cli.Raw(w), "\r%d of %d runs%s   ", complete, of, left)
		if complete == of {
			fmt.Fprintln(w)
		}
	}
}

func simMerge(stdout io.Writer, names []string, output, table string) error {
	if table != "" && output == "" {
		return cli.UsageError("--csv needs --output too")
	}
	var files []io.Reader
	for _, n := range names {
		file, err := os.Open(n)
		if err != nil {
			return cli.UsageError("merge: %w", err)
		}
		defer file.Close()
		files = append(files, file)
	}
	if output == "" {
		return mergeError(simlab.MergeSweeps(stdout, files...))
	}
	out, err := os.Create(output)
	if err != nil {
		return cli.UsageError("merge: %w", err)
	}
	if err := errors.Join(simlab.MergeSweeps(out, files...), out.Close()); err != nil {
		return mergeError(err)
	}
	if table != "" {
		return writeTable(table, output)
	}
	return nil
}

func mergeError(err error) error {
	if err == nil {
		return nil
	}
	return cli.UsageError("merge: %w", err)
}

// writeTable writes a sweep's file as CSV.
func writeTable(table, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(table)
	if err != nil {
		return cli.UsageError("write the table: %w", err)
	}
	return errors.Join(simlab.SweepCSV(out, in), out.Close())
}
