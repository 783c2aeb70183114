package main

import (
	"bufio"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"unbloat/internal/keep/follow"
	"unbloat/internal/show/cli"
	"unbloat/lab"
	"unbloat/lab/scenario"
	"unbloat/unit"
)

// newFollowCommand is `unbloat-lab follow replay FILE`.
func newFollowCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "follow",
		Short:   "Replay how a daemon followed a line",
		Example: "  unbloat-lab follow replay evening.log",
	}
	c.AddCommand(&cobra.Command{
		Use:   "replay FILE",
		Short: "Run a log of decisions through the controller again",
		Long: `Runs what a daemon has measured through the controller of this program, and prints
each direction's situation and rate whenever they change: after how many seconds,
what the line is believed to carry, the queue's delay, and why. FILE is what the
daemon writes with decisions = "FILE". Lines that begin with ! are those where the
daemon that wrote it had decided otherwise.`,
		Example: "  unbloat-lab follow replay evening.log",
		Args:    cli.ExactArgs(1, "the file that the daemon wrote"),
		RunE: func(c *cobra.Command, args []string) error {
			f, err := os.Open(args[0])
			if err != nil {
				return err
			}
			defer f.Close()
			return replay(c.OutOrStdout(), f)
		},
	})
	return c
}

// replay prints what a log gives.
func replay(to io.Writer, log io.Reader) error {
	out := bufio.NewWriter(to)
	type state struct {
		is   follow.Kind
		rate unit.Rate
		why  follow.Cause
	}
	var was [2]state
	began := unit.Instant(0)
	err := follow.Replay(log, func(r follow.Replayed) {
		if began == 0 {
			began = r.Now
		}
		for d := range was {
			way := follow.Direction(d)
			s, why := r.Controller.Situation(way), r.Decision.Why[d]
			is := state{s.Is, r.Decision.Rate[d], why.Cause}
			if is == was[d] {
				continue
			}
			was[d] = is
			mark := ' '
			if r.Decision.Rate[d] != r.Recorded[d] {
				mark = '!'
			}
			fmt.Fprintf(out, "%c%10.3f s  %-4s  %-9s  rate %7.2f  line %7.2f  carried %7.2f Mbit/s  queue %6.1f ms  %s\n", mark, r.Now.Sub(began).Seconds(), way, s.Is,
				r.Decision.Rate[d].Mbit(), s.Believed/1e6, s.Carried/1e6, unit.Ms(s.Delay), why.Cause.Code())
		}
	})
	if e := out.Flush(); err == nil {
		err = e
	}
	return err
}

// writeFollowed writes the log of a case, and its figure.
func writeFollowed(s *scenario.Scenario, l *lab.FollowLog, f labRunFlags) error {
	if f.log != "" {
		if err := cli.WriteFile(f.log, []byte(l.Text), 0o644); err != nil {
			return err
		}
	}
	if f.figure == "" {
		return nil
	}
	svg, err := l.Figure(s)
	if err != nil {
		return err
	}
	return cli.WriteFile(f.figure, svg, 0o644)
}
