//go:build !linux

package netio

import (
	"net"

	"unbloat/internal/probe"
)

func addTCPInfo(*net.TCPConn, *probe.SenderSample) error { return unsupported("TCP_INFO") }
