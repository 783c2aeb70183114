package freebsd

import (
	"context"

	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/bsd"
)

// Driver returns FreeBSD's driver: dnctl(8), ipfw(8) and rc.conf(5).
func Driver() *platform.Driver {
	return &platform.Driver{
		Language:   Language(),
		Is:         func(_ context.Context, _ platform.Runner, kernel, _ string) bool { return kernel == "FreeBSD" },
		Base:       true,
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
