//go:build !omit_lab

package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"unbloat/internal/lab"
	"unbloat/internal/lab/scenario"
	"unbloat/internal/lab/simlab"
	"unbloat/internal/measure"
	"unbloat/internal/plan"
	"unbloat/internal/verdict"
)

// predictSeeds is the number of seeds of a prediction. The figures are those of
// the first; all of them show how certain they are.
const predictSeeds = 5

// predict prints what the simulator expects of the plan, without changing
// anything.
func predict(c *cobra.Command, f *planFlags, p plan.Plan) error {
	line := scenario.Line{Down: f.line.Down, Up: f.line.Up, RTT: f.line.RTT}
	var all []*lab.Result
	for seed := range uint64(predictSeeds) {
		r, err := simlab.Predict(c.Context(), p, line, measure.DefaultFlows, measure.DefaultFlows, seed+1)
		if err != nil {
			return fmt.Errorf("plan: %w", err)
		}
		all = append(all, r)
	}
	bounds := simlab.Uncertain(all)
	out := c.OutOrStdout()
	if f.json {
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
		measure.DefaultFlows, s.Line.BufferDown, s.Line.BufferUp)
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
