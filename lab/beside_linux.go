package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"unbloat/internal/measure/phases"
)

// bootBeside runs a home around a router's image on this machine's own kernel, in
// namespaces of its own: nothing of the machine's network is touched, its files
// are read-only there, and all processes end with the first of them.
func bootBeside(ctx context.Context, g Guest, console io.Writer) (*besideResult, error) {
	if os.Geteuid() != 0 {
		return nil, &MissingError{"the privilege to make network namespaces and tap devices", "run it as root (sudo unbloat lab run …); in virtual time the lab needs none, but has no place for a router's own image"}
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		return nil, &MissingError{"/dev/net/tun", "load the module tun (modprobe tun)"}
	}
	dir, err := shareDir(&g)
	if dir != "" {
		defer os.RemoveAll(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("prepare the lab beside a router's image: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, g.Router.Boot+time.Duration(len(g.Cases))*bootTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(dir, filepath.Base(GuestLab)), "lab-beside", filepath.Join(dir, specName))
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		Setsid:     true, Pdeathsig: syscall.SIGKILL,
	}
	cmd.Env = append(os.Environ(), guestPath, "HOME=/run", "UNBLOAT_CONFIG=", "XDG_STATE_HOME=/run", "TMPDIR=/run", "LANG=C.UTF-8")
	cmd.WaitDelay = 5 * time.Second
	tail := &tailWriter{}
	out := io.Writer(tail)
	if console != nil {
		out = io.MultiWriter(tail, console)
	}
	cmd.Stdout, cmd.Stderr = out, out
	err = runHere(cmd)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if text, e := os.ReadFile(filepath.Join(dir, errorName)); e == nil {
		return nil, errors.New(strings.TrimSpace(string(text)))
	}
	text, e := os.ReadFile(filepath.Join(dir, resultName))
	if e != nil {
		return nil, fmt.Errorf("the lab beside a router's image ended without a result (%v); its last words:\n%s", err, tail)
	}
	var r besideResult
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("read the result: %w", err)
	}
	return &r, nil
}

// runHere runs cmd on a thread of its own, to which its parent-death signal is tied.
func runHere(cmd *exec.Cmd) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this function
		done <- cmd.Run()
	}()
	return <-done
}

// RunBesideImage is the first process of the namespaces around a router's image. What it
// finds goes to the folder of specFile.
func RunBesideImage(ctx context.Context, specFile string) error {
	g, err := readGuest(specFile)
	if err != nil {
		return err
	}
	if err := privateRoot(filepath.Dir(specFile)); err != nil {
		return err
	}
	setNice(0, -20) // in real time a home that waits for the CPU measures the machine
	a := &agent{g: g, start: time.Now()}
	r, err := a.beside(ctx)
	a.stopAll()
	return handBack(guestOut, r, err)
}

// privateRoot makes this machine's files read-only for this process and its
// children, but for shared, and gives them empty folders where programs put what
// they need for a while.
func privateRoot(shared string) error {
	dir, err := os.Open(shared)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the mounts private: %w", err)
	}
	if err := unix.MountSetattr(unix.AT_FDCWD, "/", unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
		return fmt.Errorf("make this machine's files read-only (Linux 5.12 can): %w", err)
	}
	for _, m := range []struct{ at, kind string }{{"/proc", "proc"}, {"/run", "tmpfs"}, {"/dev/shm", "tmpfs"}} {
		if err := unix.Mount("none", m.at, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s on %s: %w", m.kind, m.at, err)
		}
	}
	if err := os.Mkdir(guestOut, 0o700); err != nil {
		return err
	}
	if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", dir.Fd()), guestOut, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s: %w", shared, err)
	}
	return unix.MountSetattr(unix.AT_FDCWD, guestOut, 0, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY})
}

// beside wires the home around the router, boots it, and runs the cases.
func (a *agent) beside(ctx context.Context) (*besideResult, error) {
	taps := map[string]*os.File{}
	for _, name := range []string{tapLAN, tapWAN, tapNear, tapFar} {
		f, err := Tap(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		taps[name] = f
	}
	if err := a.wire(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	carried := make(chan struct{})
	go func() {
		defer close(carried)
		if err := carry(ctx, a.g.Scenario.Line, a.g.Seed, taps[tapNear], taps[tapFar]); err != nil {
			cancel(err)
		}
	}()
	defer func() { cancel(nil); <-carried }()
	if err := a.startServer(ctx); err != nil {
		return nil, err
	}
	if err := a.startDHCP(ctx); err != nil {
		return nil, err
	}
	o := MachineOptions{File: a.g.Router.Image, MAC: routerMACs()}
	o.Taps[LAN], o.Taps[WAN] = taps[tapLAN], taps[tapWAN]
	started := time.Now()
	m, err := Start(ctx, o, &prefixWriter{w: os.Stdout, prefix: "router: "})
	if err != nil {
		return nil, err
	}
	defer m.Close()
	go func() {
		select {
		case <-m.Ended():
			cancel(errors.New("the router switched itself off"))
		case <-ctx.Done():
		}
	}()
	r := &besideResult{Kernel: kernelRelease(), Accelerator: m.Accelerator}
	for i, name := range a.g.Cases {
		err := a.oneCase(ctx, name, i == 0, r)
		if e := context.Cause(ctx); e != nil {
			err = e
		}
		if err != nil {
			return nil, fmt.Errorf("case %s: %w\nThe last lines of the router's serial console:\n%s", name, err, m.Console())
		}
	}
	r.BootSeconds = a.met.Answered.Sub(started).Seconds()
	return r, nil
}

// oneCase measures a case and adds it to the result. Before the first it waits for the router.
func (a *agent) oneCase(ctx context.Context, name string, first bool, r *besideResult) error {
	if first {
		if err := a.meetRouter(ctx); err != nil {
			return err
		}
	}
	start := time.Now()
	a.g.Case = name
	text, err := json.Marshal(a.g)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(guestOut, specName), text, 0o600); err != nil {
		return err
	}
	one, err := a.measure(ctx)
	if err != nil {
		return err
	}
	one.WallSeconds = time.Since(start).Seconds()
	one.VirtualSeconds = one.WallSeconds
	fmt.Printf("case %s took %.0f s\n", name, one.WallSeconds)
	r.Cases = append(r.Cases, *one)
	return phases.Sleep(ctx, queuesDrain)
}

// queuesDrain is a pause after which nothing of a case is left in a queue.
const queuesDrain = 2 * time.Second

func kernelRelease() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}
