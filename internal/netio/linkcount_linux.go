package netio

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// A LinkCounter reads the counters of interfaces and of their queues, as often as
// ten times a second: a few system calls and no process each time. Its methods
// are for one goroutine.
type LinkCounter struct {
	fd  int
	seq uint32
	out []byte
	buf []byte
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
	return &LinkCounter{fd: fd, buf: make([]byte, 64<<10)}, nil
}

// Read puts the counters of each named interface into the same place of out. An
// interface that is not there has the zero Index, which is no error.
func (c *LinkCounter) Read(names []string, out []LinkCounts) error {
	for i, name := range names {
		out[i] = LinkCounts{}
		if name == "" {
			continue
		}
		request := make([]byte, linkHeader, 64)
		request = appendAttribute(request, iflaIfname, append([]byte(name), 0))
		err := c.ask(unix.RTM_GETLINK, 0, request, func(kind uint16, b []byte) {
			if got, counts, ok := parseLink(b); kind == rtmNewLink && ok && got == name {
				out[i] = counts
			}
		})
		if err != nil && !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("read the counters of %s: %w", name, err)
		}
	}
	err := c.ask(unix.RTM_GETQDISC, unix.NLM_F_DUMP, make([]byte, qdiscHeader), func(kind uint16, b []byte) {
		if kind != rtmNewQdisc {
			return
		}
		index, root, q, ok := parseQdisc(b)
		for i := range names {
			if ok && root && index == out[i].Index && index != 0 {
				out[i].Queue = q
			}
		}
	})
	if err != nil {
		return fmt.Errorf("read the counters of queues: %w", err)
	}
	return nil
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

// ask sends one request and hands over the messages of its answer.
func (c *LinkCounter) ask(kind, flags uint16, body []byte, receive func(kind uint16, body []byte)) error {
	c.seq++
	b := binary.NativeEndian.AppendUint32(c.out[:0], uint32(nlHeader+len(body)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST|flags)
	b = binary.NativeEndian.AppendUint32(b, c.seq)
	b = binary.NativeEndian.AppendUint32(b, 0)
	c.out = append(b, body...)
	if err := unix.Sendto(c.fd, c.out, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return os.NewSyscallError("sendto", err)
	}
	for {
		n, _, err := unix.Recvfrom(c.fd, c.buf, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return os.NewSyscallError("recvfrom", err)
		}
		for m := c.buf[:n]; len(m) >= nlHeader; {
			size := int(binary.NativeEndian.Uint32(m))
			if size < nlHeader || size > len(m) {
				break
			}
			got, seq := binary.NativeEndian.Uint16(m[4:]), binary.NativeEndian.Uint32(m[8:])
			content := m[nlHeader:size]
			m = m[min((size+3)&^3, len(m)):]
			if seq != c.seq {
				continue // of a request that was given up
			}
			switch got {
			case nlMsgDone:
				return nil
			case nlMsgError:
				if len(content) < 4 {
					return errors.New("a netlink error without a number")
				}
				if errno := int32(binary.NativeEndian.Uint32(content)); errno != 0 {
					return unix.Errno(-errno)
				}
				return nil
			}
			receive(got, content)
			if flags&unix.NLM_F_DUMP == 0 {
				return nil
			}
		}
	}
}

// Close closes it.
func (c *LinkCounter) Close() error { return unix.Close(c.fd) }
