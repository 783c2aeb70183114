package platform

import (
	"context"
	"strings"
)

// RouteInterface returns the interface of the default route from the BSDs'
// route(8); "" if there is none.
func RouteInterface(ctx context.Context, r Runner) string {
	out, err := Output(ctx, r, "route", "-n", "get", "default")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(out)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && name == "interface" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
