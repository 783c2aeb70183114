package opnsense

import (
	"unbloat/internal/platform"
	"unbloat/internal/platform/bsd"
)

// checks are the doctor's: of the router only the shaper's API is known.
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
