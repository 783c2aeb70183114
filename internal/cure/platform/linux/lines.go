package linux

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"strings"

	"unbloat/internal/cure/lang/tc"
	"unbloat/internal/cure/platform"
)

// DefaultWAN returns the line that the default routes lead to, the WAN if none is given.
// The error says what there is to choose from.
func DefaultWAN(ctx context.Context, r platform.Runner) (string, error) {
	links, err := readLinks(ctx, r)
	if err != nil {
		return "", err
	}
	ways, err := waysOut(ctx, r, links)
	if err != nil {
		return "", err
	}
	var others []string
	for _, l := range links {
		if l.Name != "lo" && l.Kind != "ifb" && !l.Tunnel() && l.Up {
			others = append(others, l.Name)
		}
	}
	return platform.OneLine(ways, others)
}

// waysOut returns where packets leave by default.
func waysOut(ctx context.Context, r platform.Runner, links []tc.Link) ([]platform.Way, error) {
	var ways, spare []platform.Way
	for _, family := range []string{"IPv4", "IPv6"} {
		routes, err := readRoutes(ctx, r, strings.Replace(family, "IPv", "-", 1))
		if err != nil && family == "IPv6" {
			continue // a kernel without it
		}
		if err != nil {
			return nil, err
		}
		used := tc.InUse(routes)
		for _, x := range routes {
			w := platform.Way{Family: family, Device: x.Device, Line: lineBelow(links, x.Device)}
			if slices.Contains(used, x) {
				ways = append(ways, w)
			} else {
				spare = append(spare, w)
			}
		}
	}
	known := func(w platform.Way) bool { return w.Line != "" }
	if !slices.ContainsFunc(ways, known) { // the route of a VPN stands before that of its line
		ways = append(ways, spare...)
	}
	for i, w := range ways {
		for _, x := range ways {
			if tc.StandsOn(links, w.Line, x.Line) { // PPPoE, and IPv6 beside it
				ways[i].Line = x.Line
			}
		}
	}
	return ways, nil
}

// lineBelow returns the line that a device's packets leave by; "": it is a tunnel
// without an interface.
func lineBelow(links []tc.Link, device string) string {
	for _, l := range tc.Stack(links, device) {
		if !l.Tunnel() {
			return l.Name
		}
	}
	if !slices.ContainsFunc(links, func(l tc.Link) bool { return l.Name == device }) {
		return device // gone meanwhile
	}
	return ""
}

// readRoutes reads the default routes of all tables, for -4 or -6.
func readRoutes(ctx context.Context, r platform.Runner, family string) ([]tc.Route, error) {
	out, err := platform.Output(ctx, r, "ip", family, "-j", "route", "show", "table", "all", "default")
	if err != nil {
		return nil, toolError("read the default routes", "ip", "iproute2 (ip-full on OpenWrt)", err)
	}
	var nexthops []byte
	if bytes.Contains(out, []byte(`"nhid"`)) {
		if nexthops, err = platform.Output(ctx, r, "ip", "-j", "nexthop", "show"); err != nil {
			return nil, toolError("read the next hops", "ip", "iproute2 (ip-full on OpenWrt)", err)
		}
	}
	return tc.ParseRoutes(out, nexthops)
}

// mergesBy returns the offloads by which packets come merged to a shaper, of those of a
// device in the stack of top: what arrives is merged where it is received, and what this
// machine sends is cut up for the device that it is sent by.
func mergesBy(l tc.Link, top string, offloads []string) []string {
	return slices.DeleteFunc(offloads, func(f string) bool {
		if f == "gro" {
			return !l.Merges()
		}
		return l.Name != top
	})
}

// pastWAN checks whether packets leave past the WAN, which then holds back only a part
// of what its line, or another, carries.
func (e *examination) pastWAN() {
	wan, ok := e.link(e.WAN)
	if !ok {
		return
	}
	ways, err := waysOut(e.Ctx, e.Runner, e.links)
	if err != nil {
		e.Skip("default routes", err.Error())
		return
	}
	past := strings.Join(platform.Past(ways, e.WAN), " and ")
	switch line := lineBelow(e.links, e.WAN); {
	case wan.Tunnel():
		f := platform.Finding{ID: "past-wan", Blocking: true, What: e.WAN + " is a tunnel", Why: cmp.Or(past, "what else its line carries") + " goes past it: that is not held back, and fills the line's queue for both",
			Remedy: "shape the line below it: name it with --wan"}
		if line != "" {
			f.What, f.Remedy = f.What+" over "+line, "shape that: --wan "+line
		}
		e.Find(f)
	case past != "":
		e.Find(platform.Finding{ID: "past-wan", What: past + " goes past " + e.WAN, Why: "what shapes " + e.WAN + " does not hold that back",
			Remedy: "shape that line too, or one that carries both: unbloat apply --wan …"})
	}
}
