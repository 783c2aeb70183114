// Package web is what the clients of the protocols over HTTP share: requests as
// load, small requests as probes, and trust in a server's certificate. The build
// tag omit_http leaves it out; sessions then fail with protocol.ErrNoHTTP.
package web

import (
	"context"

	"unbloat/internal/measure"
	"unbloat/internal/protocol"
)

// Endpoints are where an HTTP server takes load and answers probes.
type Endpoints struct {
	Small    string // URL of next to nothing, for probes; "": there is none
	Down, Up string // URLs of the load
}

// Get fetches the small thing at an URL.
type Get func(url string) ([]byte, error)

// Find asks a server for its endpoints.
type Find func(s *protocol.Session, get Get) (Endpoints, error)

// Protocol returns one over HTTPS and HTTP, whose load is requests.
func Protocol(name string, find Find) protocol.Protocol {
	return protocol.Protocol{
		Schemes: []protocol.Scheme{{Name: name + "+https", Port: 443, URL: "https"}, {Name: name + "+http", Port: 80, URL: "http"}},
		Dial: func(ctx context.Context, s *protocol.Session) (measure.Tester, error) {
			return Open(ctx, s, Kind{Find: find})
		},
	}
}
