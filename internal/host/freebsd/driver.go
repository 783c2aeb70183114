package freebsd

import (
	"context"

	"unbloat/aqm"
	"unbloat/internal/host"
	"unbloat/internal/host/bsd"
)

// Driver returns what is FreeBSD's own: dnctl(8), ipfw(8), and rc.conf(5).
func Driver() *host.Driver {
	return &host.Driver{
		Language:   Language(),
		Is:         func(_ context.Context, _ host.Runner, kernel, _ string) bool { return kernel == "FreeBSD" },
		Base:       true,
		DefaultWAN: host.RouteInterface,
		CheckWAN:   host.CheckIfconfig,
		Render:     Render,
		Checks:     bsd.Checks(bsd.ForFreeBSD()),
		Backend:    func(o host.Options) (host.Backend, error) { return &Backend{Runner: o.Runner}, nil },
		StateDir:   host.LastingDir,
		Simulated:  host.Simulated{CoDel: aqm.FreeBSD, Shaper: host.Pipe},
	}
}
