// Package web is what the clients of the protocols over HTTP share: requests as
// load, small requests as probes, and trust in a server's certificate.
package web

import (
	"context"

	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/protocol"
)

// Endpoints are the URLs of an HTTP server for load and probes.
type Endpoints = protocol.Endpoints

// Get downloads a small resource.
type Get func(url string) ([]byte, error)

// Find asks a server for its endpoints.
type Find func(s *protocol.Session, get Get) (Endpoints, error)

// Protocol returns a protocol over HTTPS and HTTP whose load is requests.
func Protocol(name string, find Find) protocol.Protocol {
	return protocol.Protocol{
		Schemes: []protocol.Scheme{{Name: name + "+https", Port: 443, URL: "https"}, {Name: name + "+http", Port: 80, URL: "http"}},
		Dial: func(ctx context.Context, s *protocol.Session) (phases.Tester, error) {
			return Open(ctx, s, Kind{Find: find})
		},
	}
}
