package opnsense

import (
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/bsd"
)

// checks returns the doctor's checks. Only the shaper's API of the router is
// accessible.
func checks(e *platform.Examination) []platform.Check {
	e.ReadShapers()
	const unseen = "offloads, MTU, CPU and clock"
	return []platform.Check{
		e.Applied(), bsd.Isolation(e, bsd.WithFQCoDel), bsd.Overhead(e, bsd.CountsIP),
		{Name: unseen, Run: func() {
			e.Skip(unseen, "the API of the traffic shaper doesn't tell; look at Interfaces: Settings (hardware offloading is to be off), and at the dashboard")
		}},
	}
}
