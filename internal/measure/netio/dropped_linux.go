package netio

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// dropsAt is SK_MEMINFO_DROPS of linux/sock_diag.h.
const dropsAt = 8

// dropped returns how many datagrams a socket had no room for; 0 where the kernel
// does not say.
func dropped(fd int) int {
	var info [dropsAt + 1]uint32
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MEMINFO, uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 || size < uint32(unsafe.Sizeof(info)) {
		return 0
	}
	return int(info[dropsAt])
}

// Dropped returns how many datagrams have come and found no room in the socket.
func (d *Datagram) Dropped() int { return dropped(d.fd) }

// Dropped returns how many datagrams have come and found no room in the socket.
func (s *PacketServer) Dropped() (n int) {
	_ = s.socket.raw.Control(func(fd uintptr) { n = dropped(int(fd)) })
	return n
}
