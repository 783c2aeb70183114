//go:build !linux

package netio

import (
	"net"
	"syscall"
)

func readFlow(*net.TCPConn) (flowState, error) { return flowState{}, unsupported("TCP_INFO") }

func readArrivals(syscall.RawConn) (mark, int64, error) {
	return mark{}, 0, unsupported("TCP_INFO")
}

func passed(*net.TCPConn) (in, out int64, err error) { return 0, 0, unsupported("TCP_INFO") }

// ReadTCPStats is not supported on this system.
func ReadTCPStats(*net.TCPConn) (TCPStats, error) { return TCPStats{}, unsupported("read tcp_info") }
