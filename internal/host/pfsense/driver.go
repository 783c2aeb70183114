package pfsense

import (
	"context"

	"unbloat/aqm"
	"unbloat/internal/host"
	"unbloat/internal/host/bsd"
)

// Driver returns what is pfSense's own: limiters and rules in config.xml.
func Driver() *host.Driver {
	return &host.Driver{
		Language: Language(),
		Is: func(ctx context.Context, r host.Runner, kernel, _ string) bool {
			return kernel == "FreeBSD" && host.Has(ctx, r, "/etc/pfSense-rc")
		},
		DefaultWAN: host.RouteInterface,
		CheckWAN:   host.CheckIfconfig,
		Render:     Render,
		Checks:     bsd.Checks(bsd.ForFreeBSD()),
		Backend:    func(o host.Options) (host.Backend, error) { return &Backend{Runner: o.Runner}, nil },
		StateDir:   host.LastingDir,
		Simulated:  host.Simulated{CoDel: aqm.FreeBSD, Shaper: host.Pipe},
	}
}
