//go:build omit_http

package ndt7

import (
	"context"

	"unbloat/internal/measure"
	"unbloat/internal/protocol"
	"unbloat/internal/protocol/web"
)

// dial returns an error: this build has no HTTP.
func dial(ctx context.Context, s *protocol.Session) (measure.Tester, error) {
	return web.Open(ctx, s, web.Kind{})
}
