//go:build !linux

package netio

import (
	"net"

	"unbloat/unit"
)

// Pace does nothing on this system.
func Pace(*net.TCPConn, unit.Rate) {}
