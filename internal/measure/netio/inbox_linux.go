package netio

import (
	"encoding/binary"
	"net/netip"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// An inbox takes datagrams that a socket has, many with one system call.
type inbox struct {
	size  int // of a slot
	got   int // datagrams that were read last
	msgs  []mmsg
	iovs  []unix.Iovec
	bufs  []byte
	oobs  []byte
	names []unix.RawSockaddrInet6 // which also hold an IPv4 one
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
	b.got = slots
	return b
}

// take reads what is there, and returns how many datagrams it has read: fewer than
// there are slots if nothing is left. It never waits, so that the scheduler need not
// know of it.
func (b *inbox) take(fd int) (int, unix.Errno) {
	for i := range b.got { // what the kernel has written
		b.msgs[i].hdr.SetControllen(oobSize)
		b.msgs[i].hdr.Namelen = unix.SizeofSockaddrInet6
	}
	b.got = 0
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&b.msgs[0])), uintptr(len(b.msgs)), unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	b.got = int(n)
	return b.got, 0
}

// at returns a datagram that was read, and what the kernel tells of it. They are valid
// until the next call of take.
func (b *inbox) at(i int) (data, oob []byte) {
	m := &b.msgs[i]
	return b.bufs[i*b.size:][:min(int(m.len), b.size)], b.oobs[i*oobSize:][:min(int(m.hdr.Controllen), oobSize)]
}

// from returns where it came from.
func (b *inbox) from(i int) netip.AddrPort {
	a := &b.names[i]
	port := func(v *uint16) uint16 { return binary.BigEndian.Uint16((*[2]byte)(unsafe.Pointer(v))[:]) }
	if a.Family == unix.AF_INET {
		four := (*unix.RawSockaddrInet4)(unsafe.Pointer(a))
		return netip.AddrPortFrom(netip.AddrFrom4(four.Addr), port(&four.Port))
	}
	ip := netip.AddrFrom16(a.Addr)
	if a.Scope_id != 0 {
		ip = ip.WithZone(strconv.FormatUint(uint64(a.Scope_id), 10))
	}
	return netip.AddrPortFrom(ip, port(&a.Port))
}
