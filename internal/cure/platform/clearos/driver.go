package clearos

import (
	"context"

	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/linux"
)

// Driver returns ClearOS's driver: its configuration files and its engine.
func Driver() *platform.Driver {
	return &platform.Driver{
		Language: Language(),
		Is: func(ctx context.Context, r platform.Runner, kernel, _ string) bool {
			return kernel == "Linux" && platform.Has(ctx, r, "/etc/clearos-release")
		},
		Capabilities: linux.Detect,
		Lacking:      linux.Lacking,
		CheckWAN:     linux.CheckWAN,
		Aliases:      linux.Aliases,
		DefaultWAN:   linux.DefaultWAN,
		Render:       Render,
		Checks:       linux.Checks(linux.Examined{}),
		Backend:      func(o platform.Options) (platform.Backend, error) { return &Backend{Runner: o.Runner}, nil },
		StateDir:     platform.LastingDir,
		Simulated:    platform.Simulated{CoDel: "linux-6.12", Shaper: platform.HTB},
	}
}
