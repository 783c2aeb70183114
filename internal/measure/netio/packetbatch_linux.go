package netio

import (
	"encoding/binary"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// How many datagrams one system call reads, and how many answers one sends:
// few enough that the last, which has been stamped as sent, leaves within a
// tenth of a millisecond.
const (
	serverBatch = 128
	answerBatch = 32
)

// A packetBatch is the memory of a batch, in and out. The functions that make
// the system calls are made once and talk by its fields, so that a batch
// allocates nothing.
type packetBatch struct {
	in     *inbox
	out    [answerBatch]mmsg
	outV   [answerBatch]unix.Iovec
	locals [answerBatch][oobLocal]byte
	from   Peer

	socket    *packetSocket
	gate      syscall.RawConn
	read      func(fd uintptr)
	write     func(fd uintptr)
	arm       func(fd uintptr)
	open      func(fd uintptr) bool
	socketFD  int
	got       int // datagrams read
	sent, all int // answers sent, of so many
	events    [1]unix.EpollEvent
	load      moderation
}

func newPacketBatch(s *packetSocket) (*packetBatch, error) {
	gate, err := s.gate.SyscallConn()
	if err != nil {
		return nil, err
	}
	p := &packetBatch{in: newInbox(serverBatch, slotSize), socket: s, gate: gate}
	p.read = func(fd uintptr) {
		p.socketFD = int(fd)
		p.got, _ = p.in.take(p.socketFD) // none: there is nothing, or ICMP reports of earlier answers, once
	}
	p.write = func(fd uintptr) {
		n, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, fd, uintptr(unsafe.Pointer(&p.out[p.sent])), uintptr(p.all-p.sent), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
		if errno != 0 {
			n = 0
		}
		p.sent += max(int(n), 1) // past the one that was not taken
	}
	p.arm = func(fd uintptr) {
		_ = unix.EpollCtl(int(fd), unix.EPOLL_CTL_MOD, p.socketFD, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLONESHOT})
	}
	p.open = func(fd uintptr) bool {
		n, err := unix.EpollWait(int(fd), p.events[:], 0)
		return n > 0 || err != nil && err != unix.EINTR
	}
	return p, nil
}

// serve handles datagrams in batches: at 100 000 a second a system call for
// each costs more than all else.
func (s *PacketServer) serve(handle Handler) error {
	p, err := newPacketBatch(s.socket)
	if err != nil {
		return nil // closed
	}
	for round := 0; p.receive() == nil; round++ {
		if round%16 == 0 {
			s.stamp.look()
		}
		now, answers := s.clock.Now(), 0
		s.leaves = now
		for i := range p.got {
			datagram, oob := p.in.at(i)
			p.from.Addr = p.in.from(i)
			stamp, alone := stampAlone(oob)
			if p.from.n, p.from.classed = 0, false; !alone {
				stamp, p.from.n = kernelStamp(oob), putLocal(p.from.local[:], oob)
				p.from.class, p.from.classed = classOf(oob)
			}
			b := handle(&p.from, s.stamp.instant(stamp, now), datagram)
			if len(b) > 0 {
				p.answer(answers, i, &p.from, b)
				answers++
			}
			if answers == answerBatch || i == p.got-1 {
				p.send(answers)
				answers = 0
				if i < p.got-1 {
					s.leaves = s.clock.Now()
				}
			}
		}
		rest := p.load.rest(now, p.got)
		switch {
		case p.got == serverBatch: // there may be more
		case rest > 0:
			nap(rest)
		case p.got == 0:
			if p.wait() != nil {
				return nil
			}
		}
	}
	return nil
}

// nap sleeps in the system call itself, as no Sleeper does: a goroutine that the
// runtime's poller holds leaves its processor idle, and the runtime's monitor,
// woken a thousand times a second with it, polls every 20 µs.
func nap(d time.Duration) {
	t := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&t, nil) // a shorter rest is as good
}

// wait returns when there is something to read, or the socket is closed.
func (p *packetBatch) wait() error {
	if err := p.gate.Control(p.arm); err != nil {
		return err
	}
	return p.gate.Read(p.open)
}

// receive reads what there is; an error says that the socket is closed.
func (p *packetBatch) receive() error {
	return p.socket.raw.Control(p.read)
}

// stampAlone returns the kernel's stamp of a datagram that came with nothing
// else, as those of a socket do that is bound to one address. It is what
// kernelStamp and putLocal find, at a tenth of the cost.
func stampAlone(oob []byte) (stamp int64, ok bool) {
	const size = 16 // of a time of 64 bits
	if len(oob) != unix.CmsgSpace(size) {
		return 0, false
	}
	h := (*unix.Cmsghdr)(unsafe.Pointer(&oob[0]))
	if h.Level != unix.SOL_SOCKET || h.Type != unix.SCM_TIMESTAMPNS || int(h.Len) != unix.CmsgLen(size) {
		return 0, false
	}
	data := oob[unix.CmsgLen(0):]
	return int64(binary.NativeEndian.Uint64(data))*1e9 + int64(binary.NativeEndian.Uint64(data[8:])), true
}

// answer puts the answer to the i-th datagram at place k of the batch to send.
func (p *packetBatch) answer(k, i int, from *Peer, b []byte) {
	h := &p.out[k].hdr
	p.outV[k].Base = &b[0]
	p.outV[k].SetLen(len(b))
	h.Name, h.Namelen = p.in.msgs[i].hdr.Name, p.in.msgs[i].hdr.Namelen
	h.Iov = &p.outV[k]
	h.SetIovlen(1)
	h.Control = nil
	h.SetControllen(0)
	if from.n > 0 {
		p.locals[k] = from.local
		h.Control = &p.locals[k][0]
		h.SetControllen(from.n)
	}
}

// send sends n answers. What the system does not take is lost.
func (p *packetBatch) send(n int) {
	for p.sent, p.all = 0, n; p.sent < n; {
		if p.socket.raw.Control(p.write) != nil {
			return
		}
	}
}
