package rpm

import (
	"strings"

	"unbloat/internal/protocol"
	"unbloat/internal/protocol/web"
)

// Protocol is what networkQuality's servers speak.
func Protocol() protocol.Protocol {
	return web.Protocol("rpm", find)
}

// find reads the server's configuration.
func find(s *protocol.Session, get web.Get) (web.Endpoints, error) {
	const doing = "read the configuration"
	url := s.Address.Base()
	if strings.Trim(s.Address.URL.Path, "/") == "" {
		url += WellKnown
	}
	b, err := get(url)
	if err != nil {
		return web.Endpoints{}, web.Unreachable(doing, err)
	}
	cfg, err := Parse(b)
	if err != nil {
		return web.Endpoints{}, web.Unreachable(doing, err)
	}
	return web.Endpoints{Small: cfg.URLs.Small, Down: cfg.URLs.Large, Up: cfg.URLs.Upload}, nil
}
