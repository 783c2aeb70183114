package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"unbloat/internal/cure/plan"
	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/verdict"
	"unbloat/internal/show/cli"
	"unbloat/lab"
	"unbloat/lab/scenario"
	"unbloat/lab/simlab"
)

// predictSeeds is the number of seeds of a prediction. The figures are those of
// the first; all of them show how certain they are.
const predictSeeds = 5

// newSimPredictCommand is `unbloat sim predict PLAN`.
func newSimPredictCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "predict PLAN",
		Short: "Simulate a line without and with a plan, and print what to expect",
		Long: `Reads a plan, as "unbloat plan --json" prints it ("-" is standard input), and
simulates a test of the line that it was made for, as it is and with the plan.`,
		Example: "  unbloat plan --down 30mbit --up 5mbit --json | unbloat sim predict -",
		Args:    cli.ExactArgs(1, "a plan's file"),
		RunE: func(c *cobra.Command, args []string) error {
			p, err := readPlan(c.InOrStdin(), args[0])
			if err != nil {
				return cli.UsageError("%s: %w; is it what `unbloat plan --json` prints?", cli.NameOf(c), err)
			}
			return predict(c, p, asJSON)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

// readPlan reads a plan from a file, or for "-" from in.
func readPlan(in io.Reader, name string) (p plan.Plan, err error) {
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return p, err
		}
		defer f.Close()
		in = f
	}
	if err := json.NewDecoder(in).Decode(&p); err != nil {
		return p, fmt.Errorf("read %s: %w", name, err)
	}
	if p.Schema != plan.Schema || p.Basis == nil {
		return p, fmt.Errorf("read %s: its schema is %q, not %q with its basis", name, p.Schema, plan.Schema)
	}
	return p, nil
}

// predict prints what the simulator expects of the plan, without changing
// anything.
func predict(c *cobra.Command, p plan.Plan, asJSON bool) error {
	line := scenario.Line{Down: p.Basis.Line.Down, Up: p.Basis.Line.Up, RTT: p.Basis.Line.RTT}
	var all []*lab.Result
	for seed := range uint64(predictSeeds) {
		r, err := simlab.Predict(c.Context(), p, line, phases.DefaultFlows, phases.DefaultFlows, seed+1)
		if err != nil {
			return fmt.Errorf("sim predict: %w", err)
		}
		all = append(all, r)
	}
	bounds := simlab.Uncertain(all)
	out := c.OutOrStdout()
	if asJSON {
		return json.NewEncoder(out).Encode(struct {
			*lab.Result
			Uncertainty []simlab.Uncertainty `json:"uncertainty"`
		}{all[0], bounds})
	}
	s := &scenario.Scenario{Name: "prediction", Title: "what to expect of this plan", Line: simlab.PredictedLine(p, line)}
	if err := lab.Print(out, s, all[0]); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nFrom the simulator, with %d flows each way; buffers are assumed to hold %s down and %s up. Expect, with both loaded:\n",
		phases.DefaultFlows, s.Line.BufferDown, s.Line.BufferUp)
	for _, b := range bounds {
		if b.Phase == verdict.PhaseBoth {
			fmt.Fprintf(out, "  %-8s %-11s %8.4g, between %.4g and %.4g\n", b.Case, b.Figure, b.Expected, b.Least, b.Most)
		}
	}
	if p.Classes != nil && p.AQM != plan.CAKE {
		fmt.Fprintf(out, "The simulator has classes behind CAKE alone: this is of %s with all flows alike.\n", p.AQM)
	}
	_, err := fmt.Fprintf(out, "Bounds are those of %d seeds, and beyond them 3 %% of goodput and 10 %% or 1 ms of delay: beside a real kernel,\n"+
		"%d of %d goodputs and %d of %d delays under load were within (docs/simulator.md).\n", predictSeeds,
		simlab.GoodputWithin, simlab.GoodputOf, simlab.DelaysWithin, simlab.DelaysOf)
	return err
}
