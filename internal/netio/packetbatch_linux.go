package netio

import (
	"encoding/binary"
	"net/netip"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// serverBatch is how many datagrams one system call reads or answers.
const serverBatch = 64

// A packetBatch is the memory of a batch, in and out.
type packetBatch struct {
	in, out   [serverBatch]mmsg
	inV, outV [serverBatch]unix.Iovec
	names     [serverBatch]unix.RawSockaddrInet6 // which also holds an IPv4 one
	bufs      [serverBatch][slotSize]byte
	oobs      [serverBatch][256]byte
	locals    [serverBatch][oobLocal]byte
}

// serve handles datagrams in batches: at 100 000 a second a system call for
// each costs more than all else.
func (s *PacketServer) serve(handle Handler) error {
	raw, err := s.conn.SyscallConn()
	if err != nil {
		return s.serveEach(handle)
	}
	p := &packetBatch{}
	for round := 0; ; round++ {
		n, err := p.receive(raw)
		if err != nil {
			return nil // closed
		}
		if round%16 == 0 {
			s.stamp.look()
		}
		now, answers := s.clock.Now(), 0
		for i := range n {
			oob := p.oobs[i][:min(int(p.in[i].hdr.Controllen), len(p.oobs[i]))]
			from := Peer{Addr: p.address(i)}
			from.n = putLocal(from.local[:], oob)
			b := handle(&from, s.stamp.instant(kernelStamp(oob), now), p.bufs[i][:min(p.in[i].len, slotSize)])
			if len(b) > 0 {
				p.answer(answers, i, &from, b)
				answers++
			}
		}
		p.send(raw, answers)
	}
}

// receive waits for datagrams and reads a batch of them.
func (p *packetBatch) receive(raw syscall.RawConn) (n int, err error) {
	for i := range p.in {
		h := &p.in[i].hdr
		p.inV[i].Base = &p.bufs[i][0]
		p.inV[i].SetLen(slotSize)
		h.Name, h.Namelen = (*byte)(unsafe.Pointer(&p.names[i])), unix.SizeofSockaddrInet6
		h.Iov = &p.inV[i]
		h.SetIovlen(1)
		h.Control = &p.oobs[i][0]
		h.SetControllen(len(p.oobs[i]))
	}
	err = raw.Read(func(fd uintptr) bool {
		r, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, fd, uintptr(unsafe.Pointer(&p.in[0])), serverBatch, unix.MSG_DONTWAIT, 0, 0)
		n = 0
		if errno == 0 {
			n = int(r)
		}
		return errno != unix.EAGAIN // other errors are what ICMP reports of earlier answers
	})
	return n, err
}

// address returns where the i-th datagram came from.
func (p *packetBatch) address(i int) netip.AddrPort {
	a := &p.names[i]
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

// answer puts the answer to the i-th datagram at place k of the batch to send.
func (p *packetBatch) answer(k, i int, from *Peer, b []byte) {
	h := &p.out[k].hdr
	p.outV[k].Base = &b[0]
	p.outV[k].SetLen(len(b))
	h.Name, h.Namelen = (*byte)(unsafe.Pointer(&p.names[i])), p.in[i].hdr.Namelen
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
func (p *packetBatch) send(raw syscall.RawConn, n int) {
	for first := 0; first < n; {
		sent := 0
		err := raw.Control(func(fd uintptr) {
			r, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, fd, uintptr(unsafe.Pointer(&p.out[first])), uintptr(n-first), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
			if errno == 0 {
				sent = int(r)
			}
		})
		if err != nil {
			return
		}
		first += max(sent, 1) // past the one that was not taken
	}
}
