//go:build omit_http

package web

import (
	"context"
	"fmt"

	"unbloat/internal/measure"
	"unbloat/internal/protocol"
)

// Kind is what is special to one protocol over HTTP.
type Kind struct {
	Find Find
}

// Open returns an error: this build has no protocols over HTTP.
func Open(_ context.Context, s *protocol.Session, _ Kind) (measure.Tester, error) {
	return nil, fmt.Errorf("open %s: %w", s.Server, protocol.ErrNoHTTP)
}

// Unreachable marks an error of connecting.
func Unreachable(what string, err error) error { return protocol.Unreachable(what, err) }
