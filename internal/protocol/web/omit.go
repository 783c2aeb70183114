//go:build omit_http

package web

import (
	"context"
	"fmt"

	"unbloat/internal/measure"
	"unbloat/internal/protocol"
)

// Kind is what one protocol over HTTP does in its own way.
type Kind struct {
	Find Find
}

// Open says that this build has no HTTP, so none of the protocols over it.
func Open(_ context.Context, s *protocol.Session, _ Kind) (measure.Tester, error) {
	return nil, fmt.Errorf("open %s: %w", s.Server, protocol.ErrNoHTTP)
}

// Unreachable marks an error of connecting.
func Unreachable(what string, err error) error { return protocol.Unreachable(what, err) }
