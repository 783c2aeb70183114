package lab

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A Machine is a router that runs.
type Machine struct {
	Accelerator string // kvm or tcg

	mu     sync.Mutex
	tail   tail
	cancel context.CancelFunc
	ended  chan struct{} // closed when QEMU is gone; err says why
	err    error
}

// Tap makes a tap device of a name in this process's network namespace. It is
// there as long as the file is open; a read or write is one Ethernet frame, never
// a bundle of several.
func Tap(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: "/dev/net/tun", Err: err}
	}
	request, err := unix.NewIfreq(name)
	if err == nil {
		request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err == nil {
		err = unix.SetNonblock(fd, true) // so that Go waits for it as for a socket
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("make the tap device %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// Start boots an image. The machine ends with Close, with ctx, and with this
// process, however that ends. console receives what the router writes to its
// serial port; it may be nil.
//
// Errors: *FileError for the image, exec.ErrNotFound where QEMU is missing.
func Start(ctx context.Context, o MachineOptions, console io.Writer) (*Machine, error) {
	format, err := Inspect(o.File)
	if err != nil {
		return nil, err
	}
	program, err := exec.LookPath(QEMU)
	if err != nil {
		return nil, err
	}
	m := &Machine{Accelerator: Accelerator(), ended: make(chan struct{})}
	args, err := arguments(o, format, m.Accelerator)
	if err != nil {
		return nil, err
	}
	ctx, m.cancel = context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.ExtraFiles = o.Taps[:]
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = 5 * time.Second
	out := io.Writer(&lockedWriter{&m.mu, &m.tail})
	if console != nil {
		out = io.MultiWriter(out, console)
	}
	cmd.Stdout, cmd.Stderr = out, out
	started := make(chan error)
	go m.run(cmd, started)
	if err := <-started; err != nil {
		m.cancel()
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	return m, nil
}

// run starts the process and waits for its end, on a thread that is this
// machine's alone: the parent-death signal is tied to it.
func (m *Machine) run(cmd *exec.Cmd, started chan<- error) {
	runtime.LockOSThread() // and never unlocked: the thread ends with this function
	err := cmd.Start()
	started <- err
	if err != nil {
		return
	}
	m.err = cmd.Wait()
	close(m.ended)
}

// Ended is closed when the router is gone, for whatever reason.
func (m *Machine) Ended() <-chan struct{} { return m.ended }

// Console returns the last lines that the router wrote to its serial port.
func (m *Machine) Console() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.tail.lines(25)
}

// Close ends the router as if its power was cut.
func (m *Machine) Close() error {
	m.cancel()
	<-m.ended
	return nil
}

// lockedWriter writes under a lock.
type lockedWriter struct {
	mu *sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}
