// This file has the protocol of Cloudflare's speed test, which is
// requests over HTTP for a number of bytes.

package web

import (
	"unbloat/internal/measure/protocol"
)

// Cloudflare is what Cloudflare's servers speak.
func Cloudflare() protocol.Protocol {
	return Protocol("cloudflare", findCloudflare)
}

// findCloudflare asks once whether the server is there: its paths are fixed.
func findCloudflare(s *protocol.Session, get Get) (Endpoints, error) {
	base := s.Address.Base()
	at := Endpoints{Small: base + "/__down?bytes=0", Down: base + "/__down?bytes=100000000", Up: base + "/__up"}
	if _, err := get(at.Small); err != nil {
		return at, Unreachable("ask", err)
	}
	return at, nil
}
