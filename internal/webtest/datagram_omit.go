//go:build omit_web

package webtest

import (
	"errors"
	"net"
	"net/netip"
)

// datagrams is the page's side of WebTransport; this build has no page.
type datagrams struct{}

// ListenDatagrams returns an error: there is no page whose probes could travel
// so.
func (h *Handler) ListenDatagrams(string) (netip.AddrPort, error) {
	return netip.AddrPort{}, errors.New("serve datagrams: this build has no web page")
}

// ServeDatagrams returns the same error.
func (h *Handler) ServeDatagrams(*net.UDPConn) (netip.AddrPort, error) { return h.ListenDatagrams("") }

func (*datagrams) close() {}
