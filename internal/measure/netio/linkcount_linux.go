package netio

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A LinkCounter reads the counters of interfaces and of their queues, as often as
// twenty times a second: two system calls and no process each time. Its methods are
// for one goroutine.
type LinkCounter struct {
	fd    int
	seq   uint32 // of the last request
	begun uint32 // of the first that exchange has not sent
	out   []byte
	buf   []byte
	in    [answerParts]mmsg
	inV   [answerParts]unix.Iovec
	asked []int // of names that Read has, those that it asks for
}

// One system call takes so many parts of answers. The kernel makes none larger.
const (
	answerParts = 4
	answerPart  = 32 << 10
)

// newLinkCounter returns one that asks by a netlink socket.
func newLinkCounter(fd int) *LinkCounter {
	c := &LinkCounter{fd: fd, buf: make([]byte, answerParts*answerPart)}
	for i := range c.in {
		c.inV[i].Base = &c.buf[i*answerPart]
		c.inV[i].SetLen(answerPart)
		c.in[i].hdr.Iov = &c.inV[i]
		c.in[i].hdr.SetIovlen(1)
	}
	return c
}

// OpenLinkCounter opens one. It needs no privilege.
func OpenLinkCounter() (*LinkCounter, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket for the counters of interfaces: %w", err)
	}
	// The kernel answers before it returns from the request; a second is for a bug.
	patience := unix.Timeval{Sec: 1}
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &patience)
	return newLinkCounter(fd), nil
}

// Read puts the counters of each named interface into the same place of out. An
// interface that is not there has the zero Index, which is no error.
func (c *LinkCounter) Read(names []string, out []LinkCounts) error {
	var body [64]byte
	c.asked = c.asked[:0]
	for i, name := range names {
		out[i] = LinkCounts{}
		if name != "" {
			c.request(unix.RTM_GETLINK, 0, appendAttribute(body[:linkHeader], iflaIfname, append([]byte(name), 0)))
			c.asked = append(c.asked, i)
		}
	}
	clear(body[:])
	c.request(unix.RTM_GETQDISC, unix.NLM_F_DUMP, body[:qdiscHeader])
	var why error
	err := c.exchange(func(n int, kind uint16, b []byte, err error) {
		links := n < len(c.asked)
		switch {
		case links && errors.Is(err, unix.ENODEV):
		case links && err != nil:
			why = fmt.Errorf("read the counters of %s: %w", names[c.asked[n]], err)
		case err != nil:
			why = fmt.Errorf("read the counters of queues: %w", err)
		case links:
			i := c.asked[n]
			if got, counts, ok := parseLink(b); ok && kind == rtmNewLink && got == names[i] {
				out[i] = counts
			}
		case kind == rtmNewQdisc:
			index, root, q, ok := parseQdisc(b)
			for i := range names {
				if ok && root && index == out[i].Index && index != 0 {
					out[i].Queue = q
				}
			}
		}
	})
	if err != nil {
		return fmt.Errorf("read the counters of interfaces: %w", err)
	}
	return why
}

func appendAttribute(b []byte, kind uint16, value []byte) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(4+len(value)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = append(b, value...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

// request adds a request to those that exchange sends.
func (c *LinkCounter) request(kind, flags uint16, body []byte) {
	if len(c.out) == 0 {
		c.begun = c.seq + 1
	}
	c.seq++
	c.out = binary.NativeEndian.AppendUint32(c.out, uint32(nlHeader+len(body)))
	c.out = binary.NativeEndian.AppendUint16(c.out, kind)
	c.out = binary.NativeEndian.AppendUint16(c.out, unix.NLM_F_REQUEST|flags)
	c.out = binary.NativeEndian.AppendUint32(c.out, c.seq)
	c.out = binary.NativeEndian.AppendUint32(c.out, 0)
	c.out = append(c.out, body...)
	for len(c.out)%4 != 0 {
		c.out = append(c.out, 0)
	}
}

// exchange sends the requests, and hands over what the kernel answers to the n-th of
// them until all are answered: messages, or the error that it failed with. A request
// for a dump has any number of messages, another one or none.
func (c *LinkCounter) exchange(answer func(n int, kind uint16, body []byte, err error)) error {
	requests, open := c.out, int(c.seq-c.begun)+1
	c.out = c.out[:0]
	// The kernel answers before it returns from the request, and waits for its own lock
	// alone. So the scheduler need not know of the calls, which would wake its monitor.
	if _, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(c.fd), uintptr(unsafe.Pointer(&requests[0])), uintptr(len(requests))); errno != 0 {
		return os.NewSyscallError("write", errno)
	}
	for open > 0 {
		got, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(c.fd), uintptr(unsafe.Pointer(&c.in[0])), answerParts, unix.MSG_DONTWAIT, 0, 0)
		if errno == unix.EAGAIN { // it should not be
			got, _, errno = unix.Syscall6(unix.SYS_RECVMMSG, uintptr(c.fd), uintptr(unsafe.Pointer(&c.in[0])), answerParts, unix.MSG_WAITFORONE, 0, 0)
		}
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 {
			return os.NewSyscallError("recvmmsg", errno)
		}
		for i := range c.in[:got] {
			done, err := c.part(c.buf[i*answerPart:][:c.in[i].len], answer)
			if err != nil {
				return err
			}
			open -= done
		}
	}
	return nil
}

// part hands over what is in one part of an answer, and returns how many requests are
// answered with it.
func (c *LinkCounter) part(m []byte, answer func(n int, kind uint16, body []byte, err error)) (done int, err error) {
	for len(m) >= nlHeader {
		size := int(binary.NativeEndian.Uint32(m))
		if size < nlHeader || size > len(m) {
			break
		}
		kind, flags, seq := binary.NativeEndian.Uint16(m[4:]), binary.NativeEndian.Uint16(m[6:]), binary.NativeEndian.Uint32(m[8:])
		content := m[nlHeader:size]
		m = m[min((size+3)&^3, len(m)):]
		n := seq - c.begun
		if n > c.seq-c.begun {
			continue // of a request that was given up
		}
		switch kind {
		case nlMsgDone:
			done++
			continue
		case nlMsgError:
			if len(content) < 4 {
				return done, errors.New("a netlink error without a number")
			}
			if errno := int32(binary.NativeEndian.Uint32(content)); errno != 0 {
				answer(int(n), kind, nil, unix.Errno(-errno))
			}
			done++
			continue
		}
		answer(int(n), kind, content, nil)
		if flags&unix.NLM_F_MULTI == 0 {
			done++
		}
	}
	return done, nil
}

// ask sends one request and hands over the messages of its answer.
func (c *LinkCounter) ask(kind, flags uint16, body []byte, receive func(kind uint16, body []byte)) error {
	c.request(kind, flags, body)
	var why error
	err := c.exchange(func(_ int, kind uint16, b []byte, err error) {
		if err != nil {
			why = err
			return
		}
		receive(kind, b)
	})
	return errors.Join(err, why)
}

// Close closes it.
func (c *LinkCounter) Close() error { return unix.Close(c.fd) }
