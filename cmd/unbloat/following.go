package main

import (
	"errors"
	"fmt"

	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/keep/daemon"
	"unbloat/internal/keep/steer"
	"unbloat/internal/measure/netio"
)

// followLines gives the daemon what follows lines.
func followLines(o *daemon.Options) {
	o.Follow = func(c steer.Config) (daemon.Follower, error) {
		c.Echo = echoOf(c.Server)
		return steer.Follow(c)
	}
	o.Gauge = func(c steer.Config) (daemon.Follower, error) { return steer.Measure(c) }
	o.Setter = func() (daemon.RateSetter, error) { return netio.OpenRateSetter() }
}

// canFollow says why a line that such a router shapes with that plan can't be followed
// here.
func canFollow(d *platform.Driver, p plan.Plan) error {
	if err := daemon.Followable(d, p); err != nil {
		return err
	}
	if !d.Retune.Netlink {
		c, err := netio.OpenLinkCounter()
		if err != nil {
			return err
		}
		return c.Close()
	}
	s, err := netio.OpenRateSetter()
	if errors.Is(err, netio.ErrNotSupported) {
		return fmt.Errorf("only the router itself can follow its line (%w); use follow = false, which holds the rates", err)
	}
	if err != nil {
		return err
	}
	return s.Close()
}
