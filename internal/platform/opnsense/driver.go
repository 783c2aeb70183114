package opnsense

import (
	"context"

	"unbloat/aqm"
	"unbloat/internal/platform"
)

// Scheme is the URL scheme of OPNsense's API.
const Scheme = "opnsense+https"

// Driver returns OPNsense's driver: the API of its shaper.
func Driver() *platform.Driver {
	return &platform.Driver{
		Language: Language(),
		Is: func(ctx context.Context, r platform.Runner, kernel, _ string) bool {
			return kernel == "FreeBSD" && platform.Has(ctx, r, "/usr/local/opnsense")
		},
		DefaultWAN: func(context.Context, platform.Runner) string { return "wan" },
		Render:     Render,
		Checks:     checks,
		Backend: func(o platform.Options) (platform.Backend, error) {
			if !o.API {
				return nil, &platform.PreconditionError{Doing: "change an OPNsense router", What: "its settings belong to its own API", Remedy: "reach it with --router " + Scheme + "://HOST"}
			}
			return &Backend{Runner: o.Runner}, nil
		},
		StateDir:  platform.LastingDir,
		Scheme:    Scheme,
		Simulated: platform.Simulated{CoDel: aqm.FreeBSD, Shaper: platform.Pipe},
	}
}
