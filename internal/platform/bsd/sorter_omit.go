//go:build omit_daemon

package bsd

import (
	"net/netip"

	"unbloat/internal/plan"
	"unbloat/internal/platform"
)

// NewSorter returns nil: this build has no daemon.
func NewSorter(plan.Plan, func(netip.Addr) bool) platform.Sorter { return nil }

// New returns nil: this build has no daemon.
func (Sorting) New(plan.Plan, func(netip.Addr) bool) platform.Sorter { return nil }
