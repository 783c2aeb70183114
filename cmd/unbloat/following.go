//go:build !omit_follow && !omit_daemon

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"unbloat/internal/apply"
	"unbloat/internal/daemon"
	"unbloat/internal/delay"
	"unbloat/internal/follow"
	"unbloat/internal/gauge"
	"unbloat/internal/netio"
	"unbloat/internal/plan"
	"unbloat/internal/platform"
	"unbloat/internal/steer"
	"unbloat/unit"
)

// followLines gives the daemon what follows lines.
func followLines(o *daemon.Options) {
	o.Follow = followLine
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

// A lineFollower is a steer.Follower with the daemon's words.
type lineFollower struct {
	*steer.Follower
	setter *netio.RateSetter // nil: rates are changed by programs
	moved  func() bool       // its reflectors can't be reached from the WAN's addresses
	again  func()
}

// NewLine implements daemon.Follower. A WAN that had no address yet when it was
// followed first may turn out to have IPv6 alone.
func (f *lineFollower) NewLine() {
	if f.moved() {
		f.again()
		return
	}
	f.Follower.NewLine()
}

func followLine(l daemon.Line) (daemon.Follower, error) {
	var setter *netio.RateSetter
	set := func(string, unit.Rate) error { return nil }
	if !l.Slow {
		var err error
		if setter, err = netio.OpenRateSetter(); err != nil {
			return nil, fmt.Errorf("follow the line: %w", err)
		}
		l.Own(setter.Port())
		set = setter.Set
	}
	clock := netio.ClockSince(l.Base)
	four := hasIPv4(l)
	moved := func() bool { return len(l.Reflectors) == 0 && hasIPv4(l) != four }
	targets := delay.Choose(delay.Resolvers(), four, !four)
	if len(l.Reflectors) > 0 {
		targets = delay.WithFirstHop(delay.Configured(l.Reflectors))
	}
	echo := echoOf(l.Server)
	if echo != nil {
		targets = append(targets, delay.Target{Operator: l.Server, Kind: delay.Native})
	}
	c := steer.Config{
		Clock: clock, Targets: targets, Tell: l.Tell, Ring: l.Ring, Unseen: l.Slow,
		Open: func() (steer.Gauge, error) {
			if moved() { // the address came after the daemon had begun
				l.Again()
			}
			if err := leavesBy(l.Device, targets); l.Slow && err != nil {
				return nil, err
			}
			return gauge.Open(gauge.Config{Clock: clock, Device: l.Device, Inbound: l.Inbound, Targets: targets, Echo: echo})
		},
		Decided: func(w follow.Why) {
			l.Decided(daemon.Decision{Direction: w.Direction.String(), From: w.From, To: w.To, Why: w.Reason()})
		},
		Set: func(ctx context.Context, rates [2]unit.Rate) error { return l.Change(ctx, rates, set) },
	}
	c.Params.Every = l.Every
	if l.Learn != "" {
		c.Memory = &steer.Memory{
			Load: func() ([]byte, error) { return os.ReadFile(l.Learn) },
			Save: func(b []byte) error {
				if err := os.MkdirAll(filepath.Dir(l.Learn), 0o700); err != nil {
					return err
				}
				return apply.WriteFile(l.Learn, b, 0o644)
			},
		}
	}
	for d, b := range l.Rates {
		c.Params.Rates[d] = follow.Bounds{Least: b.Least, Usual: b.Usual, Most: b.Most}
	}
	var f *steer.Follower
	sleeper, err := netio.NewSleeper(clock)
	if err == nil {
		c.Sleeper = sleeper
		if f, err = steer.New(c); err != nil {
			sleeper.Close()
		}
	}
	if err != nil {
		if setter != nil {
			err = errors.Join(err, setter.Close())
		}
		return nil, err
	}
	return &lineFollower{f, setter, moved, l.Again}, nil
}

// leavesBy returns an error if what is sent to the targets does not leave through a
// device: where a probe can't be bound to an interface, only the line of the route
// there can be measured.
func leavesBy(device string, targets []delay.Target) error {
	link, err := net.InterfaceByName(device)
	if err != nil {
		return fmt.Errorf("measure the line: %w", err)
	}
	addrs, err := link.Addrs()
	if err != nil {
		return fmt.Errorf("measure the line: read the addresses of %s: %w", device, err)
	}
	for _, t := range targets {
		c, err := net.Dial("udp", netip.AddrPortFrom(t.Addr, probePort).String()) // sends nothing
		if err != nil {
			continue
		}
		from := c.LocalAddr().(*net.UDPAddr).IP
		_ = c.Close()
		if slices.ContainsFunc(addrs, func(a net.Addr) bool { n, ok := a.(*net.IPNet); return ok && n.IP.Equal(from) }) {
			return nil
		}
	}
	return fmt.Errorf("measure the line: no reflector is reached through %s; on this system only the line of the default route can be followed", device)
}

// probePort is any: only the route to the address counts.
const probePort = 53

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
	if f.setter != nil {
		_ = f.setter.Close()
	}
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
