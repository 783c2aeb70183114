// Package cloudflare is the protocol of Cloudflare's speed test, which is
// requests over HTTP for a number of bytes.
package cloudflare

import (
	"unbloat/internal/protocol"
	"unbloat/internal/protocol/web"
)

// Protocol is what Cloudflare's servers speak.
func Protocol() protocol.Protocol {
	return web.Protocol("cloudflare", find)
}

// find asks once whether the server is there: its paths are fixed.
func find(s *protocol.Session, get web.Get) (web.Endpoints, error) {
	base := s.Address.Base()
	at := web.Endpoints{Small: base + "/__down?bytes=0", Down: base + "/__down?bytes=100000000", Up: base + "/__up"}
	if _, err := get(at.Small); err != nil {
		return at, web.Unreachable("ask", err)
	}
	return at, nil
}
