package tc

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A Route is one next hop of a default route.
type Route struct {
	Device string
	Metric int
	From   string // packets from these addresses alone; "": all
	Table  string // "": main
	Down   bool   // the next hop can't be reached: no carrier
}

// ParseRoutes reads `ip -j route show table all default`. What leads nowhere, or takes
// a type of service alone, is left out. nexthops is `ip -j nexthop show`, for routes
// that say no more than an object's number.
func ParseRoutes(routes, nexthops []byte) ([]Route, error) {
	list, err := decodeList(routes)
	if err != nil {
		return nil, fmt.Errorf("read the default routes: %w", err)
	}
	objects, _ := decodeList(nexthops)
	var out []Route
	for _, o := range list {
		if kind := o.text("type"); kind != "" && kind != "unicast" || o.text("tos") != "" {
			continue
		}
		for _, hop := range hopsOf(o, objects) {
			r := Route{Device: hop.text("dev"), From: o.text("from"), Table: o.text("table")}
			if r.Device == "" || r.Device == "lo" {
				continue
			}
			r.Metric, _ = strconv.Atoi(o.text("metric"))
			flags, _ := hop.get("flags")
			r.Down = slices.ContainsFunc(strings.Fields(flat(flags)), func(f string) bool { return f == "dead" || f == "linkdown" })
			out = append(out, r)
		}
	}
	return out, nil
}

// hopsOf returns a route's next hops, which may be the route itself.
func hopsOf(route object, objects []object) []object {
	if hops := route.children("nexthops"); len(hops) > 0 || route.text("dev") != "" {
		return append(hops, route)
	}
	var hops []object
	with := func(id string) (o object) {
		if i := slices.IndexFunc(objects, func(o object) bool { return o.text("id") == id }); i >= 0 && id != "" {
			o = objects[i]
		}
		return o
	}
	o := with(route.text("nhid"))
	for _, member := range o.children("group") {
		hops = append(hops, with(member.text("id")))
	}
	return append(hops, o)
}

// InUse returns the routes that packets take: of main, if it has any, those with the
// least metric, for each source; next hops that can't be reached only where there are
// no others.
func InUse(routes []Route) []Route {
	for _, keep := range []func(Route) bool{func(r Route) bool { return !r.Down }, func(r Route) bool { return r.Table == "" }} {
		if slices.ContainsFunc(routes, keep) {
			routes = slices.DeleteFunc(slices.Clone(routes), func(r Route) bool { return !keep(r) })
		}
	}
	return slices.DeleteFunc(slices.Clone(routes), func(r Route) bool {
		return slices.ContainsFunc(routes, func(x Route) bool { return x.From == r.From && x.Table == r.Table && x.Metric < r.Metric })
	})
}
