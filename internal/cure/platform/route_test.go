package platform_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"unbloat/internal/cure/platform"
)

// routed is a BSD's route(8): the interfaces of the default routes of IPv4 and IPv6.
type routed [2]string

func (r routed) Run(_ context.Context, argv []string, _ []byte) (stdout, stderr []byte, err error) {
	dev := r[0]
	if strings.Contains(strings.Join(argv, " "), "-inet6") {
		dev = r[1]
	}
	if dev == "" {
		return nil, []byte("route: route has not been found\n"), errors.New("exit status 1")
	}
	return []byte("   route to: default\n    gateway: 192.0.2.1\n  interface: " + dev + "\n      flags: <UP,GATEWAY,DONE,STATIC>\n"), nil, nil
}

// TestRouteInterface: on the BSDs too the line is found by either family, of a tunnel
// it is the one below, and where there are several they are named.
func TestRouteInterface(t *testing.T) {
	for _, c := range []struct {
		routed routed
		want   string
	}{
		{routed{"em0", ""}, "em0"}, {routed{"em0", "em0"}, "em0"}, {routed{"", "em0"}, "em0"}, {routed{"gif0", "em0"}, "em0"}, {routed{"em0", "gif0"}, "em0"},
		{routed{"gif0", ""}, "gif0, a tunnel"}, {routed{"em0", "em1"}, "--wan em0, past which goes IPv6 by em1"}, {routed{"", ""}, "no default route"},
	} {
		dev, err := platform.RouteInterface(t.Context(), c.routed)
		if dev != c.want && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%q: %q, %v", c.routed, dev, err)
		}
	}
}
