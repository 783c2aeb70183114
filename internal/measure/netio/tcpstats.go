package netio

import "time"

// TCPStats is what the system knows of one TCP connection (tcp_info of Linux).
type TCPStats struct {
	RTT, RTTVar, MinRTT                  time.Duration
	Acked, Received, Sent, Retransmitted int64 // bytes
	Busy, RwndLimited, BufLimited        time.Duration
}
