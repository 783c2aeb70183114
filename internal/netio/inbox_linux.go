package netio

import (
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// An inbox takes datagrams that a socket has, many with one system call.
type inbox struct {
	size  int // of a slot
	msgs  []mmsg
	iovs  []unix.Iovec
	bufs  []byte
	oobs  []byte
	names []unix.RawSockaddrInet6 // room for either family's
}

// mmsg is struct mmsghdr of recvmmsg(2).
type mmsg struct {
	hdr unix.Msghdr
	len uint32
}

const oobSize = 96

// newInbox returns one for so many datagrams at once; what is longer than size is cut.
func newInbox(slots, size int) *inbox {
	b := &inbox{
		size: size, msgs: make([]mmsg, slots), iovs: make([]unix.Iovec, slots),
		bufs: make([]byte, slots*size), oobs: make([]byte, slots*oobSize), names: make([]unix.RawSockaddrInet6, slots),
	}
	for i := range b.msgs {
		b.iovs[i].Base = &b.bufs[i*size]
		b.iovs[i].SetLen(size)
		b.msgs[i].hdr.Iov = &b.iovs[i]
		b.msgs[i].hdr.SetIovlen(1)
		b.msgs[i].hdr.Control = &b.oobs[i*oobSize]
		b.msgs[i].hdr.Name = (*byte)(unsafe.Pointer(&b.names[i]))
	}
	return b
}

// take reads what is there, and returns how many datagrams it has read: fewer than
// there are slots if nothing is left. It never waits, so that the scheduler need not
// know of it.
func (b *inbox) take(fd int) (int, unix.Errno) {
	for i := range b.msgs {
		b.msgs[i].hdr.SetControllen(oobSize)
		b.msgs[i].hdr.Namelen = unix.SizeofSockaddrInet6
	}
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&b.msgs[0])), uintptr(len(b.msgs)), unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

// at returns a datagram that was read, and what the kernel tells of it. They are valid
// until the next call of take.
func (b *inbox) at(i int) (data, oob []byte) {
	m := &b.msgs[i]
	return b.bufs[i*b.size:][:min(int(m.len), b.size)], b.oobs[i*oobSize:][:min(int(m.hdr.Controllen), oobSize)]
}

// from returns who sent it; the zero value: not told.
func (b *inbox) from(i int) netip.Addr {
	name := &b.names[i]
	switch {
	case b.msgs[i].hdr.Namelen == 0:
	case name.Family == unix.AF_INET:
		return netip.AddrFrom4((*unix.RawSockaddrInet4)(unsafe.Pointer(name)).Addr)
	case name.Family == unix.AF_INET6:
		return netip.AddrFrom16(name.Addr)
	}
	return netip.Addr{}
}

// sendNow sends a message of a socket without ports to an address. It never waits
// either.
func sendNow(fd int, b []byte, to netip.Addr) error {
	var four unix.RawSockaddrInet4
	var six unix.RawSockaddrInet6
	name, size := unsafe.Pointer(&four), uintptr(unix.SizeofSockaddrInet4)
	if to.Is6() {
		six = unix.RawSockaddrInet6{Family: unix.AF_INET6, Addr: to.As16(), Scope_id: zoneIndex(to.Zone())}
		name, size = unsafe.Pointer(&six), unix.SizeofSockaddrInet6
	} else {
		four = unix.RawSockaddrInet4{Family: unix.AF_INET, Addr: to.As4()}
	}
	_, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT, uintptr(name), size)
	if errno != 0 {
		return errno
	}
	return nil
}

// socketError returns the error that waits in a socket, and clears it.
func socketError(fd int) error {
	var code int32
	size := uint32(unsafe.Sizeof(code))
	_, _, errno := unix.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_ERROR, uintptr(unsafe.Pointer(&code)), uintptr(unsafe.Pointer(&size)), 0)
	switch {
	case errno != 0:
		return errno
	case code != 0:
		return unix.Errno(code)
	}
	return nil
}
