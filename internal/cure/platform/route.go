package platform

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// A Way is where packets of one family leave by default.
type Way struct {
	Family string // IPv4, IPv6
	Device string // of the default route
	Line   string // Device, or what it is a tunnel over; "": a tunnel, and nobody knows over what
}

// OneLine returns the line of all ways: the WAN, if nobody has named it. Where there
// are several the error says what each would miss. A tunnel over an unknown line counts
// only if there is no other way; others are the interfaces that its line may be.
func OneLine(ways []Way, others []string) (string, error) {
	var lines, tunnels []string
	for _, w := range ways {
		lines, tunnels = append(lines, w.Line), append(tunnels, w.Device)
	}
	lines = slices.DeleteFunc(lines, func(s string) bool { return s == "" })
	slices.Sort(lines)
	lines = slices.Compact(lines)
	fail := func(what, remedy string) (string, error) {
		return "", &PreconditionError{Doing: "find the WAN", What: what, Remedy: remedy}
	}
	switch {
	case len(lines) == 1:
		return lines[0], nil
	case len(lines) > 1:
		var choices []string
		for _, l := range lines {
			choices = append(choices, "--wan "+l+", past which goes "+strings.Join(Past(ways, l), " and "))
		}
		return fail("the default routes lead to several lines: "+strings.Join(lines, ", "), "choose one: "+strings.Join(choices, "; or "))
	case len(tunnels) > 0:
		return fail(fmt.Sprintf("the default route leads into %s, a tunnel, and nobody knows over which line", tunnels[0]),
			fmt.Sprintf("name the line below it with --wan, one of %s; --wan %s would miss all that goes past it", strings.Join(others, ", "), tunnels[0]))
	}
	return fail("there is no default route", "name the interface with --wan, or bring the line up")
}

// Past says what leaves past a line, as in "IPv6 by eth1"; nil: nothing that is known.
func Past(ways []Way, line string) (past []string) {
	for _, w := range ways {
		what := w.Family + " by " + w.Device
		if w.Device != line && w.Line != line && w.Line != "" && !slices.Contains(past, what) {
			past = append(past, what)
		}
	}
	return past
}

// RouteInterface returns the interface of the default routes from the BSDs' route(8).
func RouteInterface(ctx context.Context, r Runner) (string, error) {
	var ways []Way
	for _, w := range []struct {
		family string
		argv   []string
	}{{"IPv4", []string{"route", "-n", "get", "default"}}, {"IPv6", []string{"route", "-n", "get", "-inet6", "default"}}} {
		out, err := Output(ctx, r, w.argv...)
		if err != nil {
			continue // there is none
		}
		for line := range strings.Lines(string(out)) {
			name, value, ok := strings.Cut(strings.TrimSpace(line), ":")
			if !ok || name != "interface" {
				continue
			}
			way := Way{Family: w.family, Device: strings.TrimSpace(value)}
			if !slices.Contains([]string{"gif", "gre", "egre", "wg", "ovpn", "ovpnc", "ipsec", "sec"}, strings.TrimRight(way.Device, "0123456789")) {
				way.Line = way.Device
			}
			ways = append(ways, way)
		}
	}
	return OneLine(ways, []string{"those that ifconfig lists"})
}
