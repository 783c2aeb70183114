// Package pfsense says why a pfSense router is not changed from here. Its one
// configuration, config.xml, is written by its own PHP code, which also makes
// the rules that carry the limiters; there is no interface for others that could
// be read back and undone, and a config.xml changed behind its back is lost at
// the next click. So a plan for it is printed, to be entered in its own pages.
package pfsense

import (
	"context"

	"unbloat/internal/host"
	"unbloat/internal/plan"
)

// A Backend refuses everything, with the remedy.
type Backend struct{}

func refuse() error {
	return &host.PreconditionError{Doing: "change a pfSense router", What: "it has no interface by which a change can be read back and undone",
		Remedy: "print the plan (unbloat plan --for pfsense) and enter it in Firewall: Traffic Shaper: Limiters"}
}

// Observe refuses.
func (Backend) Observe(context.Context, plan.Plan, host.State) (host.State, error) {
	return nil, refuse()
}

// Desire refuses.
func (Backend) Desire(context.Context, plan.Plan, host.State, host.State) (host.State, error) {
	return nil, refuse()
}

// Undesire refuses.
func (Backend) Undesire(context.Context, host.State, host.State) (host.State, error) {
	return nil, refuse()
}

// Compare refuses.
func (Backend) Compare(host.State, host.State) ([]host.Step, []string, error) {
	return nil, nil, refuse()
}

// Explain has nothing to add.
func (Backend) Explain(err error) error { return err }
