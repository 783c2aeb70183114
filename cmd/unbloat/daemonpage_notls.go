//go:build !omit_ui && !omit_daemon && omit_http

package main

import (
	"errors"
	"net"
)

// pageTLS says that this build has no TLS.
func pageTLS(string, []string) (wrap func(net.Conn) net.Conn, fingerprint string, err error) {
	return nil, "", errors.New("this build has no TLS (build tag omit_http); use the full one, or tls = false and a tunnel, such as SSH's")
}
