package plan

import (
	"errors"
	"fmt"

	"unbloat/unit"
)

// validate checks the classes of a plan that was read from a file.
func (c *Classes) validate(p Plan) error {
	if c == nil {
		return nil
	}
	b := c.Behaviour
	if b == (Behaviour{}) { // a platform with explicit rules only
		b = (&maker{}).behaviour()
	}
	errs := []error{
		within("classes.behaviour.calm_packets", b.CalmPackets, 1, 100_000),
		within("classes.behaviour.calm_bps", int64(b.CalmRate), 8000, int64(MaxRate)),
		within("classes.behaviour.calm_of_host_bps", int64(b.CalmOfHost), 8000, int64(MaxRate)),
		within("classes.behaviour.calm_of_host_up_bps", int64(b.CalmOfUp), 8000, int64(MaxRate)),
		within("classes.behaviour.steady_bps", int64(b.Steady), 0, int64(MaxRate)),
		within("classes.behaviour.steady_up_bps", int64(b.SteadyUp), 0, int64(MaxRate)),
		within("classes.behaviour.steady_of_host_bps", int64(b.SteadyOfHost), 0, int64(MaxRate)),
		within("classes.behaviour.steady_of_host_up_bps", int64(b.SteadyOfHostUp), 0, int64(MaxRate)),
		within("classes.behaviour.small_packet", b.SmallPacket, 64, 1500),
		within("classes.behaviour.first_bytes", b.FirstBytes, 0, 1<<40),
		within("classes.behaviour.first_bytes_up", b.FirstUp, 0, 1<<40),
		within("classes.behaviour.heavy_bytes", b.HeavyBytes, b.FirstBytes, 1<<50),
		within("classes.behaviour.long_bytes", b.LongBytes, b.HeavyBytes, 1<<50),
		within("classes.behaviour.heavy_connections", b.HeavyOfHost, 1, 100_000),
		within("classes.behaviour.peers", b.Peers, 1, 100_000),
		within("classes.behaviour.names_per_second", b.Names, 1, 100_000),
		within("classes.behaviour.acks_per_second", b.Acks, 0, 100_000_000),
		within("classes.behaviour.flows", b.Flows, 16, mostFlows),
		ClassPreferences{Rules: c.Rules}.validate(),
	}
	for i, r := range c.Rules {
		for _, h := range r.Home {
			if kind, _ := KindOfHost(h); kind == HostName {
				errs = append(errs, fieldError(fmt.Sprintf("classes.rules[%d].home", i), "%q is a name, which only `unbloat plan` looks up; give an address or a MAC address", h))
			}
		}
	}
	for _, d := range []struct {
		name   Direction
		shares []Share
		s      *Shaper
	}{{DirectionUp, c.Up, p.Up}, {DirectionDown, c.Down, p.Down}} {
		errs = append(errs, validShares(field("classes", string(d.name)), d.shares, d.s))
	}
	return errors.Join(errs...)
}

func validShares(at string, shares []Share, s *Shaper) error {
	if shares == nil {
		return nil
	}
	if s == nil {
		return fieldError(at, "the direction is not shaped")
	}
	if len(shares) != len(AllClasses()) {
		return fieldError(at, "has %d classes, not %d", len(shares), len(AllClasses()))
	}
	var errs []error
	var sure unit.Rate
	for i, sh := range shares {
		sure += min(sh.Guarantee, s.Rate)
		if sh.Class != AllClasses()[i] {
			errs = append(errs, fieldError(at, "class %d is %q, not %q", i+1, sh.Class, AllClasses()[i]))
		}
		if i > 0 && sh.Tin >= shares[i-1].Tin {
			errs = append(errs, fieldError(at, "the tin of %s is not below that of %s", sh.Class, shares[i-1].Class))
		}
		errs = append(errs, within(at+".tin", int(sh.Tin), 1, 8),
			within(at+".guarantee_bps", int64(sh.Guarantee), 0, int64(s.Rate)), within(at+".limit_bps", int64(sh.Limit), 0, int64(s.Rate)))
		if sh.Limit != 0 && sh.Guarantee > sh.Limit {
			errs = append(errs, fieldError(at, "%s is guaranteed %s, more than its limit of %s", sh.Class, sh.Guarantee.Short(), sh.Limit.Short()))
		}
	}
	if sure > s.Rate {
		errs = append(errs, fieldError(at, "the guarantees add up to %s, more than the rate of %s; guarantee less", sure.Short(), s.Rate.Short()))
	}
	if s.AQM == CAKE && s.Tins != tinsForRules {
		errs = append(errs, fieldError(at, "need cake with %s", tinsForRules))
	}
	return errors.Join(errs...)
}
