//go:build !omit_follow && !omit_daemon

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"unbloat/internal/apply"
	"unbloat/internal/daemon"
	"unbloat/internal/delay"
	"unbloat/internal/follow"
	"unbloat/internal/gauge"
	"unbloat/internal/netio"
	"unbloat/internal/plan"
	"unbloat/internal/steer"
	"unbloat/unit"
)

// followLines gives the daemon what follows lines.
func followLines(o *daemon.Options) {
	o.Follow = followLine
}

// canFollow says why a line with that plan can't be followed here.
func canFollow(p plan.Plan) error {
	s, err := netio.OpenRateSetter()
	if errors.Is(err, netio.ErrNotSupported) {
		return fmt.Errorf("a line can only be followed on Linux yet (%w); use follow = false, which holds the rates", err)
	}
	if err != nil {
		return err
	}
	if err := s.Close(); err != nil {
		return err
	}
	return daemon.Followable(p)
}

// A lineFollower is a steer.Follower with the daemon's words.
type lineFollower struct {
	*steer.Follower
	setter *netio.RateSetter
}

func followLine(l daemon.Line) (daemon.Follower, error) {
	setter, err := netio.OpenRateSetter()
	if err != nil {
		return nil, fmt.Errorf("follow the line: %w", err)
	}
	l.Own(setter.Port())
	clock := netio.ClockSince(l.Base)
	four := hasIPv4(l)
	targets := delay.Choose(delay.Resolvers(), four, !four)
	if len(l.Reflectors) > 0 {
		targets = delay.WithFirstHop(delay.Configured(l.Reflectors))
	}
	echo := echoOf(l.Server)
	if echo != nil {
		targets = append(targets, delay.Target{Operator: l.Server, Kind: delay.Native})
	}
	c := steer.Config{
		Clock: clock, Targets: targets, Tell: l.Tell, Ring: l.Ring,
		Open: func() (steer.Gauge, error) {
			return gauge.Open(gauge.Config{Clock: clock, Device: l.Device, Inbound: l.Inbound, Targets: targets, Echo: echo})
		},
		Decided: func(w follow.Why) {
			l.Decided(daemon.Decision{Direction: w.Direction.String(), From: w.From, To: w.To, Why: w.Reason()})
		},
		Set: func(ctx context.Context, rates [2]unit.Rate) error { return l.Change(ctx, rates, setter.Set) },
	}
	if l.Learn != "" {
		c.Memory = &steer.Memory{
			Load: func() ([]byte, error) { return os.ReadFile(l.Learn) },
			Save: func(b []byte) error { return apply.WriteFile(l.Learn, b, 0o644) },
		}
	}
	for d, b := range l.Rates {
		c.Params.Rates[d] = follow.Bounds{Least: b.Least, Usual: b.Usual, Most: b.Most}
	}
	f, err := steer.New(c)
	if err != nil {
		return nil, errors.Join(err, setter.Close())
	}
	return &lineFollower{f, setter}, nil
}

// hasIPv4 says whether the WAN has an IPv4 address, or none at all yet.
func hasIPv4(l daemon.Line) bool {
	link, err := net.InterfaceByName(l.Device)
	if err != nil {
		return true
	}
	addrs, err := link.Addrs()
	six := false
	for _, a := range addrs {
		n, ok := a.(*net.IPNet)
		if ok && n.IP.To4() != nil {
			return true
		}
		six = six || ok && n.IP.IsGlobalUnicast()
	}
	return err != nil || !six
}

// Run implements daemon.Follower.
func (f *lineFollower) Run(ctx context.Context) {
	f.Follower.Run(ctx)
	_ = f.setter.Close()
}

// Status implements daemon.Follower.
func (f *lineFollower) Status() daemon.LineStatus {
	v := f.View()
	out := daemon.LineStatus{ProbeBytes: v.Stats.ProbeBytes, Blind: v.Blind, Reflectors: []daemon.ReflectorStatus{}}
	for d, w := range map[follow.Direction]*daemon.WayStatus{follow.Down: &out.Down, follow.Up: &out.Up} {
		b := v.Belief[d]
		*w = daemon.WayStatus{Rate: b.Rate, Capacity: b.Capacity, Carried: b.Carried, DelayMs: unit.Ms(b.Delay), FloorMs: unit.Ms(b.Floor), Why: b.Why.Reason()}
	}
	for _, r := range v.Reflectors {
		s := daemon.ReflectorStatus{Address: r.Target.Addr.String(), Operator: r.Target.Operator, Answers: r.Health.Alive, Asked: r.Health.Asked, Answered: r.Health.Answered, BaseMs: unit.Ms(r.Health.Base)}
		switch r.Target.Kind {
		case delay.FirstHop:
			s.Address = "first hop"
		case delay.Native:
			s.Address, s.Operator = r.Target.Operator, ""
		}
		out.Reflectors = append(out.Reflectors, s)
	}
	return out
}
