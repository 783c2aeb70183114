package netio

import (
	"fmt"
	"net"
	"sync/atomic"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// A Capture hands over the headers of TCP segments that cross one interface. The
// kernel copies what its filter lets pass into memory that is shared with it
// (TPACKET_V2 of packet(7)), so reading costs no system call, and nothing wakes
// when a packet comes: Drain takes what is there. Its methods are for one
// goroutine.
type Capture struct {
	fd      int
	device  string
	stamp   stamper
	clock   *Clock
	ring    []byte
	next    int
	dropped uint64
}

// The ring's size. 512 segments are a fifth of a second of what delay.Watch lets
// pass; a header takes the first 80 bytes of a frame, and CaptureLength fits behind it.
const (
	captureFrame  = 256
	captureFrames = 512
	captureBlock  = 64 << 10 // whole pages on every system
)

// OpenCapture starts to watch an interface. It needs CAP_NET_RAW: without, the
// error wraps ErrNotAllowed. A Capture does not follow an interface that goes and
// comes again with the same name.
func OpenCapture(clock *Clock, device string) (*Capture, error) {
	failed := func(what string, err error) error {
		return fmt.Errorf("watch the TCP segments on %s: %s: %w", device, what, err)
	}
	link, err := net.InterfaceByName(device)
	if err != nil {
		return nil, failed("find the interface", err)
	}
	// Without a protocol it hears nothing until it is bound.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, failed("open a packet socket", allowed(HopRaw, err))
	}
	c := &Capture{fd: fd, device: device, clock: clock, stamp: stamper{clock: clock}}
	if err := c.open(link.Index); err != nil {
		unix.Close(fd)
		return nil, failed("set the packet socket up", err)
	}
	return c, nil
}

func (c *Capture) open(index int) error {
	if err := c.Filter(0, 0, 0); err != nil {
		return err
	}
	if err := unix.SetsockoptInt(c.fd, unix.SOL_PACKET, unix.PACKET_VERSION, unix.TPACKET_V2); err != nil {
		return err
	}
	size := captureFrame * captureFrames
	ring := unix.TpacketReq{Block_size: captureBlock, Block_nr: uint32(size / captureBlock), Frame_size: captureFrame, Frame_nr: captureFrames}
	if err := unix.SetsockoptTpacketReq(c.fd, unix.SOL_PACKET, unix.PACKET_RX_RING, &ring); err != nil {
		return err
	}
	b, err := unix.Mmap(c.fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	c.ring = b
	if err := unix.Bind(c.fd, &unix.SockaddrLinklayer{Protocol: networkOrder(unix.ETH_P_ALL), Ifindex: index}); err != nil {
		_ = unix.Munmap(b)
		return err
	}
	return nil
}

// networkOrder returns a number as it stands in a packet.
func networkOrder(v uint16) uint16 {
	b := [2]byte{byte(v >> 8), byte(v)}
	return *(*uint16)(unsafe.Pointer(&b))
}

// Filter lets only those segments pass whose timestamps have the bits of the
// mask zero, one of the two at least, and data whose sequence numbers have those of
// their direction zero; 0 lets all pass. It changes what is under way at once.
func (c *Capture) Filter(mask, down, up uint32) error {
	raw, err := bpf.Assemble(captureFilter(mask, down, up))
	if err != nil {
		return fmt.Errorf("filter the TCP segments on %s: %w", c.device, err)
	}
	program := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		program[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	p := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	if err := unix.SetsockoptSockFprog(c.fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &p); err != nil {
		return fmt.Errorf("filter the TCP segments on %s: %w", c.device, err)
	}
	return nil
}

// Drain hands over every packet that has come since. missed says that the ring was full,
// so that others did not fit. An error says that the interface has gone or is down; Drain
// can be called again when it is up.
func (c *Capture) Drain(receive func(Packet)) (missed bool, err error) {
	now := c.stamp.look()
	came := 0
	for range captureFrames {
		frame := c.ring[c.next*captureFrame:][:captureFrame]
		h := (*unix.Tpacket2Hdr)(unsafe.Pointer(&frame[0]))
		if atomic.LoadUint32(&h.Status)&unix.TP_STATUS_USER == 0 {
			break
		}
		from := (*unix.RawSockaddrLinklayer)(unsafe.Pointer(&frame[captureSender]))
		if begin := int(h.Net); begin <= captureFrame {
			data := frame[begin:]
			kind := (*[2]byte)(unsafe.Pointer(&from.Protocol))
			receive(Packet{
				At:  c.stamp.instant(int64(h.Sec)*1e9+int64(h.Nsec), now),
				Out: from.Pkttype == unix.PACKET_OUTGOING, Type: uint16(kind[0])<<8 | uint16(kind[1]),
				Length: int(h.Len), Data: data[:min(int(h.Snaplen), len(data))],
			})
		}
		atomic.StoreUint32(&h.Status, unix.TP_STATUS_KERNEL)
		c.next = (c.next + 1) % captureFrames
		came++
	}
	if came > 0 {
		return came == captureFrames, nil // it is there
	}
	if err := socketError(c.fd); err != nil {
		return false, fmt.Errorf("watch the TCP segments on %s: %w", c.device, err)
	}
	return false, nil
}

// captureSender is where a frame tells who sent the packet: behind its header.
const captureSender = unix.SizeofTpacket2Hdr

// Dropped returns how many segments did not fit into the ring, since it was opened.
func (c *Capture) Dropped() uint64 {
	var s struct{ packets, drops uint32 } // struct tpacket_stats; reading sets it to zero
	if getOption(c.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS, unsafe.Pointer(&s), unsafe.Sizeof(s)) == 0 {
		c.dropped += uint64(s.drops)
	}
	return c.dropped
}

// socketError returns the error that waits in a socket, and clears it.
func socketError(fd int) error {
	var code int32
	if errno := getOption(fd, unix.SOL_SOCKET, unix.SO_ERROR, unsafe.Pointer(&code), unsafe.Sizeof(code)); errno != 0 {
		return errno
	}
	if code != 0 {
		return unix.Errno(code)
	}
	return nil
}

// getOption reads an option of a socket. It never waits, so that the scheduler need
// not know of it.
func getOption(fd, level, option int, value unsafe.Pointer, size uintptr) unix.Errno {
	length := uint32(size)
	_, _, errno := unix.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(option), uintptr(value), uintptr(unsafe.Pointer(&length)), 0)
	return errno
}

// Steps returns how often the machine's clock was set meanwhile.
func (c *Capture) Steps() int { return c.stamp.steps }

// Close ends it. No other call may be under way.
func (c *Capture) Close() error {
	err := unix.Munmap(c.ring)
	c.ring = nil
	if closed := unix.Close(c.fd); err == nil {
		err = closed
	}
	return err
}
