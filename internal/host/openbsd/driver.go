package openbsd

import (
	"context"
	"strconv"

	"unbloat/aqm"
	"unbloat/internal/host"
	"unbloat/internal/host/bsd"
)

// Driver returns what is OpenBSD's own: pf.conf(5) and pfctl(8).
func Driver() *host.Driver { return driver(false) }

// DriverAltq returns what was OpenBSD's own when pf had ALTQ.
func DriverAltq() *host.Driver { return driver(true) }

func driver(altq bool) *host.Driver {
	d := &host.Driver{
		Language: Language(),
		Is: func(_ context.Context, _ host.Runner, kernel, release string) bool {
			return kernel == "OpenBSD" && hasALTQ(release) == altq
		},
		DefaultWAN: host.RouteInterface,
		CheckWAN:   host.CheckIfconfig,
		Render:     Render,
		Checks:     checks(bsd.WithFQCoDel),
		Backend:    func(o host.Options) (host.Backend, error) { return &Backend{Runner: o.Runner, Altq: altq}, nil },
		StateDir:   host.LastingDir,
		Simulated:  host.Simulated{CoDel: aqm.OpenBSD78, Shaper: host.HFSC},
	}
	if altq {
		d.Language, d.Render, d.Checks = LanguageAltq(), RenderAltq, checks(shorterQueue)
	}
	return d
}

// hasALTQ reports whether a release of OpenBSD has ALTQ in our words.
func hasALTQ(release string) bool {
	v, err := strconv.ParseFloat(release, 64)
	return err == nil && v < newQueues
}
