package web

import (
	"errors"
	"strings"
	"testing"

	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/protocol"
)

// A web server that answers each path with a page of its own is no backend, and the
// error says what it answered.
func TestNoBackend(t *testing.T) {
	s := &protocol.Session{}
	s.Address.Host = "192.0.2.1"
	_, err := findLibreSpeed(s, func(string) ([]byte, error) { return []byte("<html>"), nil })
	if !errors.Is(err, phases.ErrUnreachable) || strings.Contains(err.Error(), "%!") || !strings.Contains(err.Error(), "6 bytes") {
		t.Errorf("%v", err)
	}
	if _, err := findLibreSpeed(s, func(string) ([]byte, error) { return nil, errors.New("404 Not Found") }); !strings.Contains(err.Error(), "404 Not Found") {
		t.Errorf("%v", err)
	}
}
