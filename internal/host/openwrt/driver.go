package openwrt

import (
	"context"

	"unbloat/aqm"
	"unbloat/internal/host"
	"unbloat/internal/host/linux"
)

// Driver returns what is OpenWrt's own: sqm-scripts, or tc(8) directly where
// that is asked for.
func Driver() *host.Driver {
	return &host.Driver{
		Language: Language(),
		Is: func(ctx context.Context, r host.Runner, kernel, _ string) bool {
			return kernel == "Linux" && host.Has(ctx, r, "/etc/openwrt_release")
		},
		Capabilities: linux.Detect,
		Lacking:      linux.Lacking,
		CheckWAN:     linux.CheckWAN,
		DefaultWAN:   linux.DefaultWAN,
		Render:       Render,
		Checks:       linux.Checks(linux.Examined{SQM: true}),
		Backend:      func(o host.Options) (host.Backend, error) { return &Backend{Runner: o.Runner}, nil },
		// /var is in memory there, and /etc lasts as the sections do.
		StateDir:  "/etc/unbloat/state",
		Classes:   linux.Classes(),
		Simulated: host.Simulated{CoDel: aqm.Linux612, Shaper: host.HTB, FIFOBytes: true},
		OwnTC:     ownTC,
	}
}

// ownTC is Linux's driver, but for what makes a plan last.
func ownTC() *host.Driver {
	d := linux.Driver()
	d.Keeper = func(o host.Options) host.Keeper { return Keeper{Runner: o.Runner} }
	return d
}
