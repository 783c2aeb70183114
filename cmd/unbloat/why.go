package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"unbloat/internal/host"
	"unbloat/internal/host/linux"
	"unbloat/internal/mechanism/nft"
	"unbloat/internal/plan"
	"unbloat/unit"
)

func newWhyCommand() *cobra.Command {
	var f routerFlags
	var wan, dscp string
	var size int64
	c := &cobra.Command{
		Use:     "why FLOW",
		Short:   "Tell which class a flow has on this router now, and which rule decided",
		GroupID: "main",
		Long: "Follows the rules of the plan that was applied, with what the router's meters and its\n" +
			"connection tracking know of the flow now. FLOW is a protocol, the home's end and the far end.",
		Example: `  unbloat why "udp 10.1.0.2:5004 > 203.0.113.9:5004"
  unbloat why "tcp 192.168.1.7:50122 > 203.0.113.9:443" --bytes 1500
  unbloat why "icmp 192.168.1.7 > 203.0.113.9" --json`,
		Args: exactArgs(1, "a flow"),
		RunE: func(c *cobra.Command, args []string) error {
			flow, err := nft.ParseFlow(args[0])
			if err != nil {
				return usageError("why: %w", err)
			}
			flow.Packet = unit.Size(size)
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
			verdicts := linux.Why(c.Context(), r.runner, p, flow)
			if f.json {
				return json.NewEncoder(c.OutOrStdout()).Encode(struct {
					Schema   string        `json:"schema"`
					Flow     string        `json:"flow"`
					Verdicts []nft.Verdict `json:"verdicts"`
				}{"unbloat.why/1", args[0], verdicts})
			}
			for _, v := range verdicts {
				fmt.Fprintf(c.OutOrStdout(), "%-4s  %-11s  %s\n", v.Direction, v.Class, v.Rule)
			}
			return nil
		},
	}
	f.register(c)
	f.whereFlags.register(c)
	c.Flags().StringVar(&wan, "wan", "", "interface towards the internet (default: the one that unbloat shapes)")
	c.Flags().Int64Var(&size, "bytes", 200, "IP bytes of the packet that is asked about")
	c.Flags().StringVar(&dscp, "dscp", "", "the packet's mark")
	return c
}

// appliedPlan returns the plan that is in force on a WAN: one that waits for
// confirmation, or the last that was kept.
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
	return plan.Plan{}, &host.PreconditionError{Doing: "tell a flow's class", What: "no plan is applied here", Remedy: "apply one with `unbloat apply` or `unbloat tune`"}
}
