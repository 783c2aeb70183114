package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"unbloat/internal/cure/apply"
	"unbloat/internal/show/cli"
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
		Args:    cli.ExactArgs(0, "no arguments"),
		RunE:    func(c *cobra.Command, _ []string) error { return runRevert(c, &f, wan) },
	}
	f.register(c)
	f.targetFlags.register(c)
	c.Flags().StringVar(&wan, "wan", "", "interface towards the internet (default: all that unbloat changed)")
	return c
}

func runRevert(c *cobra.Command, f *routerFlags, wan string) error {
	where, err := f.open(c.Context())
	if err != nil {
		return changeError(err)
	}
	defer where.Close()
	return f.revertThe(c, where, where.named(c.Context())(wan))
}

// revertThe takes back what is on a router, in each way of shaping.
func (f *routerFlags) revertThe(c *cobra.Command, where *router, wan string) error {
	ctx := c.Context()
	done, handled, forgot, err := f.revertThere(c, wan)
	if err != nil {
		return changeError(err)
	}
	if len(handled) > 0 && slices.Contains(handled, wan) {
		return f.reportRevert(c.OutOrStdout(), done, forgot)
	}
	for _, r := range where.ways() {
		more, forgotHere, err := r.revert(ctx, wan, handled)
		if err != nil {
			return changeError(err)
		}
		done, forgot = append(done, more...), forgot || forgotHere
	}
	if err := where.leaves(ctx, wan, done, handled); err != nil {
		return changeError(err)
	}
	return f.reportRevert(c.OutOrStdout(), done, forgot)
}

// revert takes back what is there in one way of shaping, but for the WANs that the
// daemon has handled: it has looked after what is applied at boot too.
func (r *router) revert(ctx context.Context, wan string, handled []string) (done []apply.Reverted, forgot bool, err error) {
	targets, err := revertTargets(ctx, r, wan)
	if err != nil {
		return nil, false, err
	}
	pendingOnly := len(handled) > 0
	for _, t := range targets {
		if slices.Contains(handled, t.WAN) {
			continue
		}
		was, did, err := r.engine.Revert(ctx, t)
		if err != nil {
			return nil, false, err
		}
		if did {
			done = append(done, was)
			pendingOnly = pendingOnly || was.Was == "pending"
		}
	}
	if !pendingOnly {
		forgot, err = r.persister.Forget(ctx)
	}
	return done, forgot, err
}

// leaves returns an error if something of ours is still on a WAN that was reverted,
// or anywhere if nothing was, and no record says what it is.
func (r *router) leaves(ctx context.Context, wan string, done []apply.Reverted, handled []string) error {
	shapers, err := r.shapers(ctx, wan)
	if err != nil && len(done) == 0 {
		return err
	}
	left := slices.Clone(handled)
	for _, way := range r.ways() {
		left = append(left, way.wans()...)
	}
	for _, s := range shapers {
		about := len(done)+len(handled) == 0 && (wan == "" || wan == s.Device) ||
			slices.ContainsFunc(done, func(x apply.Reverted) bool { return x.WAN == s.Device })
		if !s.Ours && !s.OwnIngress || !about || slices.Contains(left, s.Device) {
			continue
		}
		remedy := "`unbloat revert` on the machine that applied it takes it back"
		if r.driver.OwnTC != nil {
			remedy = "`unbloat revert --own-tc` takes it back if it was applied with tc alone; otherwise " + remedy
		}
		return cli.Exit(cli.Failed, fmt.Errorf("revert: unbloat made something that is still there, but there is no record of it here: %s; %s", s.Says, remedy))
	}
	return nil
}

// A reverted object is what `revert --json` prints.
type reverted struct {
	Schema   string           `json:"schema"`
	Reverted []apply.Reverted `json:"reverted"`
	Forgot   bool             `json:"boot_unit_removed"`
}

func (f *routerFlags) reportRevert(w io.Writer, done []apply.Reverted, forgot bool) error {
	if f.json {
		return json.NewEncoder(w).Encode(reverted{"unbloat.revert/1", append([]apply.Reverted{}, done...), forgot})
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
		fmt.Fprintf(w, "The settings of %s are as before the change, and in force now. Before the change they were not, so this differs:\n", r.WAN)
		for _, l := range r.Lost {
			fmt.Fprintln(w, "  "+l)
		}
	}
	if forgot {
		fmt.Fprintln(w, "Nothing is applied at boot any more.")
	}
	if len(done) == 0 && !forgot {
		fmt.Fprintln(w, "There is nothing to undo.")
		f.printElsewhere(w, "revert")
	}
	return nil
}

// printElsewhere says where changes are that were made from this machine, and with which
// command they are reached.
func (f *routerFlags) printElsewhere(w io.Writer, command string) {
	for _, address := range f.elsewhere() {
		fmt.Fprintf(w, "From here %s was changed: unbloat %s --router %s\n", address, command, address)
	}
}

// revertTargets lists what can be undone: recorded changes, and shapers of ours
// without a record.
func revertTargets(ctx context.Context, r *router, wan string) ([]apply.Journal, error) {
	var out []apply.Journal
	known := r.wans()
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
