package openbsd

import (
	"context"
	"strconv"

	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/bsd"
)

// Driver returns OpenBSD's driver: pf.conf(5) and pfctl(8).
func Driver() *platform.Driver { return driver(false) }

// DriverAltq returns the driver for old OpenBSD, whose pf has ALTQ.
func DriverAltq() *platform.Driver { return driver(true) }

func driver(altq bool) *platform.Driver {
	d := &platform.Driver{
		Language: Language(),
		Is: func(_ context.Context, _ platform.Runner, kernel, release string) bool {
			return kernel == "OpenBSD" && hasALTQ(release) == altq
		},
		DefaultWAN: platform.RouteInterface,
		CheckWAN:   platform.CheckIfconfig,
		Render:     Render,
		Checks:     checks(bsd.WithFQCoDel),
		Backend:    func(o platform.Options) (platform.Backend, error) { return &Backend{Runner: o.Runner, Altq: altq}, nil },
		StateDir:   platform.LastingDir,
		Retune:     &platform.Retune{Every: platform.RetuneEvery, Can: platform.BothShaped},
		Simulated:  platform.Simulated{CoDel: "openbsd-1.16", Shaper: platform.HFSC},
	}
	if altq {
		d.Retune = nil // a reload makes its queues anew, and drops what waits there
		d.Language, d.Render, d.Checks = LanguageAltq(), RenderAltq, checks(shorterQueue)
	}
	return d
}

// hasALTQ reports whether a release of OpenBSD has ALTQ with the syntax that we
// write.
func hasALTQ(release string) bool {
	v, err := strconv.ParseFloat(release, 64)
	return err == nil && v < newQueues
}
