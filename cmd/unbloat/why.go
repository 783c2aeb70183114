package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"unbloat/internal/cure/classify"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/keep/daemon"
	"unbloat/internal/show/cli"
	"unbloat/unit"
)

// An explained flow is the output of `why --json`.
type explained struct {
	Schema   string             `json:"schema"`
	Flow     string             `json:"flow"`
	Is       string             `json:"is,omitempty"` // as the rules know it, where that is not what was asked
	Verdicts []platform.Verdict `json:"verdicts"`
	Note     string             `json:"note,omitempty"`    // why Is is not Flow
	Differs  []string           `json:"differs,omitempty"` // how the router is not what was applied
}

func newWhyCommand() *cobra.Command {
	var f routerFlags
	var wan, dscp string
	var size int64
	c := &cobra.Command{
		Use:     "why FLOW",
		Short:   "Tell which class a flow has on this router now, and which rule decided",
		GroupID: "main",
		Long: "Shows which rule of the applied plan decides the class of a flow, with the current state of\n" +
			"the router's meters and connection tracking. FLOW is a protocol, the home's end and the far end.",
		Example: `  unbloat why "udp 10.1.0.2:5004 > 203.0.113.9:5004"
  unbloat why "tcp 192.168.1.7:50122 > 203.0.113.9:443" --bytes 1500
  unbloat why "icmp 192.168.1.7 > 203.0.113.9" --json`,
		Args: cli.ExactArgs(1, "a flow"),
		RunE: func(c *cobra.Command, args []string) error {
			asked := daemon.WhyParams{Flow: args[0], Bytes: int(size), DSCP: dscp}
			if size == 0 {
				return cli.UsageError("why: --bytes 0: an IP packet has 20 to 65535")
			}
			if _, err := flowOf(asked); err != nil {
				return err
			}
			x, err := f.why(c.Context(), wan, asked)
			if err != nil {
				return changeError(err)
			}
			if len(x.Differs) > 0 {
				cli.Say(c.ErrOrStderr(), "unbloat: warning: the router is not what was applied, and this is what the plan says: %s", strings.Join(x.Differs, "; "))
			}
			if f.json {
				return json.NewEncoder(c.OutOrStdout()).Encode(x)
			}
			if x.Note != "" {
				fmt.Fprintf(c.OutOrStdout(), "This is %s (%s).\n", x.Is, x.Note)
			}
			for _, v := range x.Verdicts {
				fmt.Fprintf(c.OutOrStdout(), "%-4s  %-11s  %s\n", v.Direction, v.Class, v.Rule)
			}
			return nil
		},
	}
	f.register(c)
	f.targetFlags.register(c)
	c.Flags().StringVar(&wan, "wan", "", "interface towards the internet (default: the one that unbloat shapes)")
	c.Flags().Int64Var(&size, "bytes", 200, "IP bytes of the packet that is asked about")
	c.Flags().StringVar(&dscp, "dscp", "", "the packet's mark")
	return c
}

// flowOf reads the flow that is asked about.
func flowOf(p daemon.WhyParams) (classify.Flow, error) {
	const usual = 200 // bytes
	flow, err := classify.ParseFlow(p.Flow)
	if err != nil {
		return flow, cli.UsageError("why: %w", err)
	}
	if p.Bytes == 0 {
		p.Bytes = usual
	}
	if flow.Packet = unit.Size(p.Bytes); p.Bytes < 20 || p.Bytes > 65535 {
		return flow, cli.UsageError("why: --bytes %d: an IP packet has 20 to 65535", p.Bytes)
	}
	if p.DSCP != "" {
		if flow.DSCP, err = plan.ParseDSCP(p.DSCP); err != nil {
			return flow, cli.UsageError("why: %w", err)
		}
	}
	return flow, nil
}

// why asks the daemon that keeps the WAN, or the router.
func (f *routerFlags) why(ctx context.Context, wan string, p daemon.WhyParams) (x explained, err error) {
	s, err := f.kept(ctx)
	if err != nil {
		return x, err
	}
	if s != nil && len(s.WANs) == 1 && (wan == "" || s.WANs[0].WAN == wan) || s != nil && wan != "" {
		at := wan
		if at == "" {
			at = s.WANs[0].WAN
		}
		done, err := f.askDaemon(ctx, daemon.MethodWhy, at, p, &x)
		var refused *daemon.Error
		if done && !(errors.As(err, &refused) && refused.Code == daemon.CodeMethod) { // an older daemon does not know it
			return x, err
		}
	}
	r, err := f.open(ctx)
	if err != nil {
		return x, err
	}
	defer r.Close()
	in, err := r.appliedPlan(r.named(ctx)(wan))
	if err != nil {
		return x, err
	}
	return explain(ctx, r, in, p)
}

// whyThere explains a flow for the daemon's clients.
func whyThere(ctx context.Context, r *router, in plan.Plan, p daemon.WhyParams) (any, error) {
	return explain(ctx, r, in, p)
}

// explain tells the class of a flow by a plan that is in force on a router.
func explain(ctx context.Context, r *router, in plan.Plan, p daemon.WhyParams) (x explained, err error) {
	flow, err := flowOf(p)
	if err != nil {
		return x, err
	}
	if lost := r.lostClasses(ctx, in); len(lost) > 0 {
		return x, &platform.PreconditionError{Doing: "tell a flow's class", What: "the rules of the plan are not there as they were applied: " + strings.Join(lost, "; "),
			Remedy: "apply the plan again, or take it back with `unbloat revert`"}
	}
	in = in.In(r.driver.Language)
	x = explained{Schema: "unbloat.why/1", Flow: p.Flow}
	if diffs, err := r.engine.Drift(ctx, in.WAN); err == nil {
		x.Differs = diffs
	}
	a := r.driver.WhyClass(ctx, r.runner, in, flow)
	x.Is, x.Note, x.Verdicts = isAlso(a), a.Note, a.Verdicts
	return x, nil
}

// isAlso returns a flow as the rules see it, or "" if that is as it was asked.
func isAlso(a platform.Answer) string {
	if a.Note == "" {
		return ""
	}
	return a.Flow.String()
}

// lostClasses describes how the rules of a plan in force differ from what was
// applied; nil: not at all.
func (r *router) lostClasses(ctx context.Context, p plan.Plan) []string {
	if r.driver.Classes == nil {
		return nil
	}
	return r.driver.Classes.Lost(ctx, r.runner, p)
}

// appliedPlan returns the plan that is in force on a WAN: one that waits for
// confirmation, or the last one that was committed.
func (r *router) appliedPlan(wan string) (plan.Plan, error) {
	for _, w := range r.wans() {
		if p, ok := r.inForce(w); ok && (wan == "" || w == wan) {
			return p, nil
		}
	}
	return plan.Plan{}, &platform.PreconditionError{Doing: "tell a flow's class", What: "no plan is applied here", Remedy: "apply one with `unbloat apply` or `unbloat tune`"}
}

// inForce returns that plan of one WAN; ok is false if there is none.
func (r *router) inForce(wan string) (p plan.Plan, ok bool) {
	if j, err := r.engine.Pending(wan); err == nil && j != nil {
		return j.Plan, true
	}
	rec, err := r.engine.Record(wan)
	if err != nil || rec == nil {
		return plan.Plan{}, false
	}
	return rec.Plan, true
}
