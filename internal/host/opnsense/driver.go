package opnsense

import (
	"context"

	"unbloat/aqm"
	"unbloat/internal/host"
)

// Scheme is the beginning of addresses at which OPNsense's API is reached.
const Scheme = "opnsense+https"

// Driver returns what is OPNsense's own: the API of its shaper.
func Driver() *host.Driver {
	return &host.Driver{
		Language: Language(),
		Is: func(ctx context.Context, r host.Runner, kernel, _ string) bool {
			return kernel == "FreeBSD" && host.Has(ctx, r, "/usr/local/opnsense")
		},
		DefaultWAN: func(context.Context, host.Runner) string { return "wan" },
		Render:     Render,
		Checks:     checks,
		Backend: func(o host.Options) (host.Backend, error) {
			if !o.API {
				return nil, &host.PreconditionError{Doing: "change an OPNsense router", What: "its settings belong to its own API", Remedy: "reach it with --router " + Scheme + "://HOST"}
			}
			return &Backend{Runner: o.Runner}, nil
		},
		StateDir:  host.LastingDir,
		Scheme:    Scheme,
		Simulated: host.Simulated{CoDel: aqm.FreeBSD, Shaper: host.Pipe},
	}
}
