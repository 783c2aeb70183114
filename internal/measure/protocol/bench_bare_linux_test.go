package protocol_test

import (
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const bareEnv = "UNBLOAT_BARE_ECHO"

// bareProcess runs TestBareEcho on the address, and returns the process id.
func bareProcess(b *testing.B, address string) int {
	b.Helper()
	cmd := exec.Command(os.Args[0], "-test.run", "^TestBareEcho$", "-test.timeout", "5m")
	cmd.Env = append(os.Environ(), bareEnv+"="+address)
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd.Process.Pid
}

// TestBareEcho is the simplest possible server of datagrams: it returns them
// unread, in batches, and sleeps as long between them as ours does. It shows
// the processor time of the kernel's part, which no server can avoid.
func TestBareEcho(t *testing.T) {
	at := os.Getenv(bareEnv)
	if at == "" {
		t.Skip("SKIPPED: it only runs as a child of BenchmarkThousandProbers")
	}
	to := netip.MustParseAddrPort(at)
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 4<<20)
		err = unix.Bind(fd, &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())})
	}
	if err != nil {
		t.Fatal(err)
	}
	const batch, rest = 128, 2 * time.Millisecond // as in package netio
	var msgs [batch]struct {
		hdr unix.Msghdr
		len uint32
	}
	var iovs [batch]unix.Iovec
	var names [batch]unix.RawSockaddrInet4
	var bufs [batch][2048]byte
	for {
		for i := range msgs {
			iovs[i].Base = &bufs[i][0]
			iovs[i].SetLen(len(bufs[i]))
			h := &msgs[i].hdr
			h.Name, h.Namelen = (*byte)(unsafe.Pointer(&names[i])), unix.SizeofSockaddrInet4
			h.Iov = &iovs[i]
			h.SetIovlen(1)
		}
		n, _, _ := unix.Syscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&msgs[0])), batch, unix.MSG_DONTWAIT, 0, 0)
		if n == 0 || n > batch { // nothing, or an error
			time.Sleep(rest)
			continue
		}
		for i := range int(n) {
			iovs[i].SetLen(int(msgs[i].len))
		}
		_, _, _ = unix.Syscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&msgs[0])), n, unix.MSG_DONTWAIT, 0, 0)
		if n < batch {
			time.Sleep(rest)
		}
	}
}
