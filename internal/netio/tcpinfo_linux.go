package netio

import (
	"net"
	"time"

	"golang.org/x/sys/unix"

	"unbloat/internal/probe"
)

// addTCPInfo adds one sending socket's tcp_info to the sum.
func addTCPInfo(c *net.TCPConn, sum *probe.SenderSample) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var info *unix.TCPInfo
	var got error
	if err := raw.Control(func(fd uintptr) {
		info, got = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	}); err != nil {
		return err
	}
	if got != nil {
		return got
	}
	sum.Busy += time.Duration(info.Busy_time) * time.Microsecond
	sum.RwndLimited += time.Duration(info.Rwnd_limited) * time.Microsecond
	sum.BufLimited += time.Duration(info.Sndbuf_limited) * time.Microsecond
	sum.Retransmits += int64(info.Total_retrans)
	sum.Acked += int64(info.Bytes_acked)
	sum.Unsent += int64(info.Notsent_bytes)
	return nil
}
