package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/plan"
	"unbloat/internal/keep/daemon"
	"unbloat/internal/show/cli"
)

func newConfirmCommand() *cobra.Command {
	var f routerFlags
	var wan string
	var persist bool
	c := &cobra.Command{
		Use:     "confirm",
		Short:   "Keep what `apply` changed",
		GroupID: "main",
		Long: "Ends the watchdog of a change that `unbloat apply` made, so that it stays. Without this the\n" +
			"change is undone at its deadline.",
		Example: "  unbloat confirm\n  unbloat confirm --persist\n  unbloat confirm --router ssh://root@192.168.1.1",
		Args:    cli.ExactArgs(0, "no arguments"),
		RunE: func(c *cobra.Command, _ []string) error {
			r, err := f.open(c.Context())
			if err != nil {
				return changeError(err)
			}
			defer r.Close()
			if r, wan, err = r.pendingWAN(wan); err != nil {
				return err
			}
			var there daemon.Applied
			if done, err := f.askDaemon(c.Context(), daemon.MethodConfirm, wan, nil, &there); err != nil {
				return changeError(err)
			} else if done { // it applies it at boot too
				f.sayNotes(c, there.Notes)
				return f.reportConfirm(c, wan, there.Plan)
			}
			var before func(*apply.Journal) error
			if persist {
				before = func(j *apply.Journal) error { return r.persister.Persist(c.Context(), j.Plan) }
			}
			j, err := r.engine.Confirm(c.Context(), wan, before)
			if err != nil {
				return changeError(err)
			}
			return f.reportConfirm(c, wan, j.Plan)
		},
	}
	f.register(c)
	f.targetFlags.register(c)
	c.Flags().StringVar(&wan, "wan", "", "interface towards the internet (default: the one that waits)")
	c.Flags().BoolVar(&persist, "persist", false, "apply it at every boot")
	return c
}

func (f *routerFlags) reportConfirm(c *cobra.Command, wan string, p plan.Plan) error {
	switch {
	case f.json:
		return json.NewEncoder(c.OutOrStdout()).Encode(applied{Schema: "unbloat.apply/1", State: "committed", WAN: wan, Commands: []string{}, Plan: p})
	case !f.quiet:
		said := cli.Fit(c.OutOrStdout())
		fmt.Fprintf(said, "Kept on %s. To take it back: %s\n", wan, f.there("revert"))
		return said.Flush()
	}
	return nil
}

// pendingWAN returns the WAN with a change that waits for confirmation, and the
// router in the way in which it was made.
func (r *router) pendingWAN(wan string) (*router, string, error) {
	var found []string
	at := r
	for _, way := range r.ways() {
		for _, w := range way.wans() {
			j, err := way.engine.Pending(w)
			if err != nil {
				return nil, "", err
			}
			if j != nil && (wan == "" || w == wan) {
				found, at = append(found, w), way
			}
		}
	}
	switch {
	case wan != "":
		return at, wan, nil
	case len(found) == 1:
		return at, found[0], nil
	case len(found) == 0:
		return nil, "", cli.Exit(cli.Precondition, fmt.Errorf("confirm: no change is waiting: it was undone at its deadline, reverted, or kept already; see `unbloat status`"))
	}
	return nil, "", cli.UsageError("confirm: changes wait on %v; say which with --wan", found)
}
