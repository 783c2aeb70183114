package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"unbloat/internal/show/cli"
	"unbloat/lab/aqm"
)

// newSimCommand is `unbloat sim`, whose subcommands need no network.
func newSimCommand() *cobra.Command {
	c := cli.Family(&cobra.Command{
		Use:     "sim",
		Short:   "Run the queue algorithms in the simulator",
		GroupID: "lab",
		Example: "  unbloat sim replay trace.txt.gz\n  unbloat sim sweep seed-003 --help",
	})
	c.AddCommand(newSimReplayCommand(), newSimSweepCommand(), newSimMergeCommand(), newSimPredictCommand(), newSimCompareCommand(), newSimStudyCommand())
	return c
}

// newSimReplayCommand is `unbloat sim replay FILE…`.
func newSimReplayCommand() *cobra.Command {
	var asJSON bool
	var first int
	c := &cobra.Command{
		Use:   "replay FILE...",
		Short: "Check the queues against golden traces of real implementations",
		Long: `Reads golden traces (gzipped or plain; "-" is standard input), feeds their
arrivals to the queue that the first line of each names, and compares what
became of every packet: sent, dropped or marked, and when, to the nanosecond.

The first line is "# " and a JSON object: implementation (rfc, linux-6.12,
linux-7.3, openbsd-1.16, openbsd-1.21, freebsd or ns-3), rate_bps, and, where
they are not the implementation's default, flows, limit_packets, quantum_bytes,
target_ns, interval_ns and ecn. Each further line is
"seq enqueue_ns flow bytes fate time_ns [mark]".

Exit code 0: all packets agree; 1: some differ; 2: a file cannot be read.`,
		Example: `  unbloat sim replay trace.txt.gz
  unbloat sim replay --first 20 traces/*.txt.gz
  unbloat sim replay --json trace.txt`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.UsageError("%s: needs at least one trace file (see `%s --help`)", cli.NameOf(c), c.CommandPath())
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if first < 0 {
				return cli.UsageError("%s: --first %d must not be negative", cli.NameOf(c), first)
			}
			return simReplay(c.OutOrStdout(), c.InOrStdin(), args, first, asJSON)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	c.Flags().IntVar(&first, "first", 5, "how many differing packets to print of each file")
	return c
}

// simReplay replays every file and prints the results. A file that cannot be
// read does not stop the others.
func simReplay(out io.Writer, in io.Reader, names []string, first int, asJSON bool) error {
	report := aqm.ReplayReport{Schema: aqm.ReplaySchema}
	var bad []error
	differ := 0
	for _, name := range names {
		res, err := replayOne(in, name, first)
		file := aqm.TraceFile{Name: name, Implementation: res.Implementation, Packets: res.Packets, Agree: res.Agree}
		for _, d := range res.FirstDifferences {
			file.Differences = append(file.Differences,
				aqm.Divergence{Line: d.Line, Seq: d.Packet.Seq, Trace: d.Want.String(), Ours: d.Got.String()})
		}
		switch {
		case err != nil:
			err = fmt.Errorf("replay %s: %w", name, err)
			bad = append(bad, err)
			file.Error = err.Error()
		case res.Agree != res.Packets:
			differ++
		}
		report.Files = append(report.Files, file)
		if !asJSON && err == nil {
			printReplay(out, name, res)
		}
	}
	if asJSON {
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		if err := enc.Encode(report); err != nil {
			return cli.Exit(cli.Failed, fmt.Errorf("print the report: %w", err))
		}
	}
	if len(bad) > 0 {
		return cli.Exit(cli.Usage, errors.Join(bad...))
	}
	if differ > 0 {
		return cli.Exit(cli.Failed, fmt.Errorf("%d of %d traces differ from their replay", differ, len(names)))
	}
	return nil
}

// replayOne opens one file, or standard input for "-", and replays it.
func replayOne(in io.Reader, name string, first int) (aqm.ReplayResult, error) {
	if name == "-" {
		return aqm.Replay(in, first)
	}
	f, err := os.Open(name)
	if err != nil {
		return aqm.ReplayResult{}, errors.Unwrap(err) // the caller's message has the name
	}
	defer f.Close()
	return aqm.Replay(f, first)
}

// printReplay prints one file's result as text.
func printReplay(out io.Writer, name string, res aqm.ReplayResult) {
	fmt.Fprintf(out, "%s: %d of %d packets agree (%s)\n", name, res.Agree, res.Packets, res.Implementation)
	for _, d := range res.FirstDifferences {
		fmt.Fprintf(out, "  %v\n", d)
	}
	if more := res.Packets - res.Agree - len(res.FirstDifferences); more > 0 && len(res.FirstDifferences) > 0 {
		fmt.Fprintf(out, "  and %d more\n", more)
	}
}
