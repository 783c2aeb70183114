package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"unbloat/internal/lang/nft"
	"unbloat/internal/plan"
	"unbloat/internal/platform"
	"unbloat/unit"
)

// An explained flow is the output of `why --json`.
type explained struct {
	Schema   string        `json:"schema"`
	Flow     string        `json:"flow"`
	Is       string        `json:"is,omitempty"` // as the rules know it, where that is not what was asked
	Verdicts []nft.Verdict `json:"verdicts"`
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
		Args: exactArgs(1, "a flow"),
		RunE: func(c *cobra.Command, args []string) error {
			flow, err := nft.ParseFlow(args[0])
			if err != nil {
				return usageError("why: %w", err)
			}
			if flow.Packet = unit.Size(size); size < 20 || size > 65535 {
				return usageError("why: --bytes %d: an IP packet has 20 to 65535", size)
			}
			if dscp != "" {
				if flow.DSCP, err = plan.ParseDSCP(dscp); err != nil {
					return usageError("why: %w", err)
				}
			}
			r, err := f.open(c.Context())
			if err != nil {
				return changeError(err)
			}
			defer r.Close()
			p, err := r.appliedPlan(wan)
			if err != nil {
				return changeError(err)
			}
			if lost := r.lostClasses(c.Context(), p); len(lost) > 0 {
				return changeError(&platform.PreconditionError{Doing: "tell a flow's class", What: "the rules of the plan are not there as they were applied: " + strings.Join(lost, "; "),
					Remedy: "apply the plan again, or take it back with `unbloat revert`"})
			}
			p = p.In(r.driver.Language)
			if diffs, err := r.engine.Drift(c.Context(), p.WAN); err == nil && len(diffs) > 0 {
				fmt.Fprintf(c.ErrOrStderr(), "unbloat: warning: %s is not what was applied, and this is what the plan says: %s\n", p.WAN, strings.Join(diffs, "; "))
			}
			a := r.driver.WhyClass(c.Context(), r.runner, p, flow)
			if f.json {
				return json.NewEncoder(c.OutOrStdout()).Encode(explained{"unbloat.why/1", args[0], isAlso(a), a.Verdicts})
			}
			if a.Note != "" {
				fmt.Fprintf(c.OutOrStdout(), "This is %s (%s).\n", a.Flow, a.Note)
			}
			for _, v := range a.Verdicts {
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
	for _, w := range r.engine.WANs() {
		if wan != "" && w != wan {
			continue
		}
		if j, err := r.engine.Pending(w); err == nil && j != nil {
			return j.Plan, nil
		}
		if rec, err := r.engine.Record(w); err == nil && rec != nil {
			return rec.Plan, nil
		}
	}
	return plan.Plan{}, &platform.PreconditionError{Doing: "tell a flow's class", What: "no plan is applied here", Remedy: "apply one with `unbloat apply` or `unbloat tune`"}
}
