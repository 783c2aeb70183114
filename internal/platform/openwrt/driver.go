package openwrt

import (
	"context"

	"unbloat/aqm"
	"unbloat/internal/platform"
	"unbloat/internal/platform/linux"
)

// Driver returns what is OpenWrt's own: sqm-scripts, or tc(8) directly where
// that is asked for.
func Driver() *platform.Driver {
	return &platform.Driver{
		Language: Language(),
		Is: func(ctx context.Context, r platform.Runner, kernel, _ string) bool {
			return kernel == "Linux" && platform.Has(ctx, r, "/etc/openwrt_release")
		},
		Capabilities: linux.Detect,
		Lacking:      linux.Lacking,
		CheckWAN:     linux.CheckWAN,
		DefaultWAN:   linux.DefaultWAN,
		Render:       Render,
		Checks:       linux.Checks(linux.Examined{SQM: true}),
		Backend:      func(o platform.Options) (platform.Backend, error) { return &Backend{Runner: o.Runner}, nil },
		// /var is in memory there, and /etc lasts as the sections do.
		StateDir:  "/etc/unbloat/state",
		Classes:   linux.Classes(),
		Simulated: platform.Simulated{CoDel: aqm.Linux612, Shaper: platform.HTB, FIFOBytes: true},
		OwnTC:     ownTC,
	}
}

// ownTC is Linux's driver, but for what makes a plan last.
func ownTC() *platform.Driver {
	d := linux.Driver()
	d.Keeper = func(o platform.Options) platform.Keeper { return Keeper{Runner: o.Runner} }
	return d
}
