package pfsense

import (
	"context"

	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/bsd"
)

// Driver returns pfSense's driver: limiters and rules in config.xml.
func Driver() *platform.Driver {
	return &platform.Driver{
		Language: Language(),
		Is: func(ctx context.Context, r platform.Runner, kernel, _ string) bool {
			return kernel == "FreeBSD" && platform.Has(ctx, r, "/etc/pfSense-rc")
		},
		DefaultWAN: platform.RouteInterface,
		CheckWAN:   platform.CheckIfconfig,
		Render:     Render,
		Checks:     bsd.Checks(bsd.ForFreeBSD()),
		Backend:    func(o platform.Options) (platform.Backend, error) { return &Backend{Runner: o.Runner}, nil },
		StateDir:   platform.LastingDir,
		Retune:     &platform.Retune{Every: platform.RetuneEvery, Can: platform.BothShaped},
		Simulated:  platform.Simulated{CoDel: bsd.CoDel, Shaper: platform.Pipe},
	}
}
