package clearos

import (
	"context"

	"unbloat/aqm"
	"unbloat/internal/host"
	"unbloat/internal/host/linux"
)

// Driver returns what is ClearOS's own: its configuration files and its engine.
func Driver() *host.Driver {
	return &host.Driver{
		Language: Language(),
		Is: func(ctx context.Context, r host.Runner, kernel, _ string) bool {
			return kernel == "Linux" && host.Has(ctx, r, "/etc/clearos-release")
		},
		Capabilities: linux.Detect,
		Lacking:      linux.Lacking,
		CheckWAN:     linux.CheckWAN,
		DefaultWAN:   linux.DefaultWAN,
		Render:       Render,
		Checks:       linux.Checks(linux.Examined{}),
		Backend:      func(o host.Options) (host.Backend, error) { return &Backend{Runner: o.Runner}, nil },
		StateDir:     host.LastingDir,
		Simulated:    host.Simulated{CoDel: aqm.Linux612, Shaper: host.HTB},
	}
}
