package netio

import (
	"errors"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// readInfo reads a socket's tcp_info.
func readInfo(raw syscall.RawConn) (*unix.TCPInfo, error) {
	var info *unix.TCPInfo
	var got error
	err := raw.Control(func(fd uintptr) {
		info, got = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	})
	if err == nil {
		err = got
	}
	return info, err
}

// readArrivals reads what a receiving socket has received, and in segments of
// which size.
func readArrivals(raw syscall.RawConn) (mark, int64, error) {
	info, err := readInfo(raw)
	if err != nil {
		return mark{}, 0, err
	}
	return mark{inOrder: int64(info.Bytes_received), segments: int64(info.Data_segs_in)}, int64(info.Rcv_mss), nil
}

// readFlow reads how a sending socket fares.
func readFlow(c *net.TCPConn) (flowState, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return flowState{}, err
	}
	info, err := readInfo(raw)
	if err != nil {
		return flowState{}, err
	}
	return flowState{
		busy:        time.Duration(info.Busy_time) * time.Microsecond,
		rwndLimited: time.Duration(info.Rwnd_limited) * time.Microsecond,
		bufLimited:  time.Duration(info.Sndbuf_limited) * time.Microsecond,
		retransmits: info.Total_retrans,
		unsent:      info.Notsent_bytes,
		sacked:      info.Sacked,
		inFlight:    info.Unacked,
		mss:         info.Snd_mss,
		acked:       info.Bytes_acked,
	}, nil
}

// Headers of a segment on the wire, at most: Ethernet and IPv6 with the options
// that data carries, or that an acknowledgement does (timestamps and SACK blocks).
const (
	dataHeaders = 14 + 40 + 20 + 12
	ackHeaders  = 14 + 40 + 60
)

// passed reads what a connection has moved over the wire.
func passed(c *net.TCPConn) (in, out int64, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	i, err := readInfo(raw)
	if err != nil {
		return 0, 0, err
	}
	if i.Segs_in == 0 || i.Segs_out == 0 || i.Bytes_sent == 0 && i.Data_segs_out > 0 {
		return 0, 0, errors.ErrUnsupported // before Linux 4.19
	}
	dataIn, dataOut := int64(i.Data_segs_in), int64(i.Data_segs_out)
	in = dataIn*(int64(i.Rcv_mss)+dataHeaders) + (int64(i.Segs_in)-dataIn)*ackHeaders
	out = int64(i.Bytes_sent) + dataOut*dataHeaders + (int64(i.Segs_out)-dataOut)*ackHeaders
	return in, out, nil
}

// ReadTCPStats reads how a TCP connection fares.
func ReadTCPStats(c *net.TCPConn) (TCPStats, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return TCPStats{}, err
	}
	i, err := readInfo(raw)
	if err != nil {
		return TCPStats{}, err
	}
	us := func(n uint64) time.Duration { return time.Duration(n) * time.Microsecond }
	return TCPStats{
		RTT: us(uint64(i.Rtt)), RTTVar: us(uint64(i.Rttvar)), MinRTT: us(uint64(i.Min_rtt)),
		Acked: int64(i.Bytes_acked), Received: int64(i.Bytes_received), Sent: int64(i.Bytes_sent), Retransmitted: int64(i.Bytes_retrans),
		Busy: us(i.Busy_time), RwndLimited: us(i.Rwnd_limited), BufLimited: us(i.Sndbuf_limited),
	}, nil
}
