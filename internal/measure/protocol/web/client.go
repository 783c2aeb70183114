package web

import (
	"strings"

	"unbloat/internal/measure/protocol"
)

// RPM is what networkQuality's servers speak.
func RPM() protocol.Protocol {
	return Protocol("rpm", findRPM)
}

// findRPM reads the server's configuration.
func findRPM(s *protocol.Session, get Get) (Endpoints, error) {
	const doing = "read the configuration"
	url := s.Address.Base()
	if strings.Trim(s.Address.URL.Path, "/") == "" {
		url += WellKnown
	}
	b, err := get(url)
	if err != nil {
		return Endpoints{}, Unreachable(doing, err)
	}
	cfg, err := ParseRPMConfig(b)
	if err != nil {
		return Endpoints{}, Unreachable(doing, err)
	}
	return Endpoints{Small: cfg.URLs.Small, Down: cfg.URLs.Large, Up: cfg.URLs.Upload}, nil
}
