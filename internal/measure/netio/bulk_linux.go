package netio

import (
	"net"
	"os"

	"golang.org/x/sys/unix"

	"unbloat/unit"
)

// A Bulk is incompressible bytes, kept where the kernel can send them from
// without a copy.
type Bulk struct {
	bytes []byte
	file  *os.File // the same in memory; nil where the system has no such files
}

// NewBulk makes so many bytes.
func NewBulk(n unit.Size) *Bulk {
	b := &Bulk{bytes: Incompressible(n)}
	fd, err := unix.MemfdCreate("bulk", unix.MFD_CLOEXEC)
	if err != nil {
		return b
	}
	f := os.NewFile(uintptr(fd), "bulk")
	if _, err := f.Write(b.bytes); err != nil {
		f.Close()
		return b
	}
	b.file = f
	return b
}

// Write sends head, and then the first n bytes of the bulk, whose pages the kernel
// takes without a copy (sendfile(2)). It returns how many bytes the connection
// has accepted.
func (b *Bulk) Write(c *net.TCPConn, head []byte, n int) (int, error) {
	if b.file == nil {
		return b.copy(c, head, n)
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	from := int(b.file.Fd())
	headed, offset, failed := 0, int64(0), error(nil)
	err = raw.Write(func(fd uintptr) bool {
		for headed < len(head) || offset < int64(n) {
			var k int
			if headed < len(head) {
				k, failed = unix.SendmsgN(int(fd), head[headed:], nil, nil, unix.MSG_MORE|unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
				headed += max(k, 0)
			} else {
				k, failed = unix.Sendfile(int(fd), from, &offset, n-int(offset))
			}
			switch {
			case failed == unix.EAGAIN:
				return false
			case failed == unix.EINTR:
			case failed != nil:
				return true
			case k == 0:
				failed = unix.EPIPE // the file is whole, so the connection is not
				return true
			}
		}
		failed = nil
		return true
	})
	if err == nil && failed != nil {
		err = os.NewSyscallError("sendfile", failed)
	}
	return headed + int(offset), err
}
