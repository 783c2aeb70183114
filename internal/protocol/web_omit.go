//go:build omit_http

package protocol

import (
	"context"
	"fmt"

	"unbloat/internal/measure"
)

// web says that this build has no HTTP, so none of the protocols over it.
func (d *dialer) web(context.Context) (measure.Tester, error) {
	return nil, fmt.Errorf("open %s: %w", d.server, ErrNoHTTP)
}

func untrusted(error) bool { return false }
