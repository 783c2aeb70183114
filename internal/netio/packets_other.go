//go:build !linux

package netio

import "net"

func askStamps(*net.UDPConn) {}

func putLocal(_, _ []byte) int { return 0 }

func kernelStamp([]byte) int64 { return 0 }

func (s *PacketServer) serve(handle Handler) error { return s.serveEach(handle) }
