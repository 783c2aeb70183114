//go:build !linux

package netio

import (
	"fmt"
	"net"
	"syscall"
)

// tcpOptions refuses what it cannot set.
func tcpOptions(_ syscall.RawConn, cc string, dscp int) error {
	if cc != "" {
		return unsupported(fmt.Sprintf("use congestion control %q", cc))
	}
	if dscp != 0 {
		return unsupported(fmt.Sprintf("mark with DSCP %d", dscp))
	}
	return nil
}

func setLowWater(*net.TCPConn, int) {}

// canDiscard says that discard does not work here.
const canDiscard = false

func discard(syscall.RawConn) (int, bool, error) { return 0, false, unsupported("discard") }

// awaitDiscard is never called where discard is not supported.
func awaitDiscard(syscall.RawConn) (int, bool, error) { return 0, false, unsupported("discard") }
