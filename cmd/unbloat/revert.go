package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"unbloat/internal/apply"
)

func newRevertCommand() *cobra.Command {
	var f routerFlags
	var wan string
	c := &cobra.Command{
		Use:     "revert",
		Short:   "Undo what unbloat changed on this router",
		GroupID: "main",
		Long: "Undoes a change that waits for confirmation; otherwise goes back to the state before unbloat,\n" +
			"puts back a shaper that --replace took over, and stops applying a plan at boot.",
		Example: "  unbloat revert\n  unbloat revert --wan eth0\n  unbloat revert --router ssh://root@192.168.1.1",
		Args:    exactArgs(0, "no arguments"),
		RunE:    func(c *cobra.Command, _ []string) error { return runRevert(c, &f, wan) },
	}
	f.register(c)
	f.targetFlags.register(c)
	c.Flags().StringVar(&wan, "wan", "", "interface towards the internet (default: all that unbloat changed)")
	return c
}

func runRevert(c *cobra.Command, f *routerFlags, wan string) error {
	ctx := c.Context()
	where, err := f.open(ctx)
	if err != nil {
		return changeError(err)
	}
	defer where.Close()
	engine := where.engine
	done, handled, forgot, err := f.revertThere(c, wan)
	if err != nil {
		return changeError(err)
	}
	if len(handled) > 0 && slices.Contains(handled, wan) {
		return f.reportRevert(c.OutOrStdout(), done, forgot)
	}
	targets, err := revertTargets(ctx, where, wan)
	if err != nil {
		return changeError(err)
	}
	targets = slices.DeleteFunc(targets, func(t apply.Journal) bool { return slices.Contains(handled, t.WAN) })
	if done == nil {
		done = []apply.Reverted{}
	}
	pendingOnly := len(handled) > 0 // the daemon has looked after what is applied at boot
	for _, t := range targets {
		r, did, err := engine.Revert(ctx, t)
		if err != nil {
			return changeError(err)
		}
		if did {
			done = append(done, r)
			pendingOnly = pendingOnly || r.Was == "pending"
		}
	}
	if !pendingOnly {
		if forgot, err = where.keeper.Forget(ctx); err != nil {
			return changeError(err)
		}
	}
	return f.reportRevert(c.OutOrStdout(), done, forgot)
}

// A reverted object is what `revert --json` prints.
type reverted struct {
	Schema   string           `json:"schema"`
	Reverted []apply.Reverted `json:"reverted"`
	Forgot   bool             `json:"boot_unit_removed"`
}

func (f *routerFlags) reportRevert(w io.Writer, done []apply.Reverted, forgot bool) error {
	if f.json {
		return json.NewEncoder(w).Encode(reverted{"unbloat.revert/1", done, forgot})
	}
	if f.quiet {
		return nil
	}
	for _, r := range done {
		for _, c := range r.Commands {
			fmt.Fprintln(w, c)
		}
		if len(r.Lost) == 0 {
			fmt.Fprintf(w, "%s is as it was before, and read back.\n", r.WAN)
			continue
		}
		fmt.Fprintf(w, "The settings of %s are as they were before, and it runs what they say. Before the change it did not, so this differs from before:\n", r.WAN)
		for _, l := range r.Lost {
			fmt.Fprintln(w, "  "+l)
		}
	}
	if forgot {
		fmt.Fprintln(w, "Nothing is applied at boot any more.")
	}
	if len(done) == 0 && !forgot {
		fmt.Fprintln(w, "There is nothing to undo.")
	}
	return nil
}

// revertTargets lists what can be undone: recorded changes, and shapers of ours
// without a record.
func revertTargets(ctx context.Context, r *router, wan string) ([]apply.Journal, error) {
	var out []apply.Journal
	known := r.engine.WANs()
	for _, w := range known {
		if wan == "" || wan == w {
			out = append(out, apply.Journal{WAN: w})
		}
	}
	if len(out) > 0 {
		return out, nil
	}
	plans, err := r.ownedPlans(ctx, wan)
	if err != nil {
		return nil, err
	}
	for _, p := range plans {
		if (wan == "" || wan == p.WAN) && !slices.Contains(known, p.WAN) {
			out = append(out, apply.Journal{WAN: p.WAN, Plan: p})
		}
	}
	return out, nil
}
