package steer

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"unbloat/internal/keep/delay"
	"unbloat/internal/measure/netio"
)

// Follow returns a follower that measures the line with this machine's sockets. Its
// shapers have the usual rates.
func Follow(c Config) (*Follower, error) {
	four := hasIPv4(c.Device)
	c.Moved = func() bool { return len(c.Reflectors) == 0 && hasIPv4(c.Device) != four }
	c.Targets = Targets(c.Device, c.Reflectors)
	if c.heard != nil {
		c.Targets = delay.Few(c.Targets)
	}
	if c.Echo != nil {
		c.Targets = append(c.Targets, delay.Target{Operator: c.Server, Kind: delay.Native})
	}
	c.Open = func() (Gauge, error) {
		if c.Slow {
			if err := leavesBy(c.Device, c.Targets); err != nil {
				return nil, err
			}
		}
		return OpenGauge(c)
	}
	sleeper, err := netio.NewSleeper(c.Clock)
	if err != nil {
		return nil, err
	}
	c.Sleeper = sleeper
	f, err := New(c)
	if err != nil {
		sleeper.Close()
	}
	return f, err
}

// Targets returns who can be asked how a line does: the given reflectors, or the built-in
// ones of a family that the WAN has.
func Targets(device string, reflectors []netip.Addr) []delay.Target {
	if len(reflectors) > 0 {
		return delay.WithFirstHop(delay.Configured(reflectors))
	}
	four := hasIPv4(device)
	return delay.Choose(delay.Resolvers(), four, !four)
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

// hasIPv4 says whether a WAN has an IPv4 address, or none at all yet.
func hasIPv4(device string) bool {
	link, err := net.InterfaceByName(device)
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
