package lab

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"unbloat/internal/cure/apply"
)

// Names in the folder that host and guest share.
const (
	specName   = "guest.json"
	resultName = "result.json"
	errorName  = "error.txt"
)

// boot runs one guest to its end and returns what it wrote as its result, and
// the time it took. console receives what the guest prints.
func boot(ctx context.Context, k Kernel, g Guest, console io.Writer) (text []byte, took spent, err error) {
	dir, err := shareDir(&g)
	if dir != "" {
		defer os.RemoveAll(dir)
	}
	if err != nil {
		return nil, took, fmt.Errorf("prepare the lab's guest: %w", err)
	}
	cpu, err := takeCPU(ctx)
	if err != nil {
		return nil, took, err
	}
	defer cpu.release()

	if !g.Shell { // a person ends a shell
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, cmp.Or(g.Within, bootTimeout))
		defer cancel()
	}
	cmd := exec.CommandContext(ctx, k.Path, kernelArgs(k, g.Shell)...)
	cmd.Dir = dir
	cmd.Env = []string{"TMPDIR=" + memoryDir(), "HOME=" + dir, "PATH=/usr/bin:/bin"}
	// A session of its own, so that it is alone in its autogroup (sched(7)): Linux 6.18 was
	// seen to run nothing else for ten seconds while one autogroup had guests on two CPUs.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: !g.Shell, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return endGroup(cmd.Process.Pid, g.Shell) }
	cmd.WaitDelay = 5 * time.Second
	tail := &tailWriter{}
	if g.Shell {
		cmd.Env = append(cmd.Env, hostRandom+"=1")
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		defer keepTerminal()()
	} else {
		out := io.Writer(tail)
		if console != nil {
			out = io.MultiWriter(tail, &guestWriter{w: console})
		}
		cmd.Stdout, cmd.Stderr = out, out
	}
	start := time.Now()
	err = runPinned(cmd, cpu.number, k.Engine)
	took.wall = time.Since(start)
	if s := cmd.ProcessState; s != nil { // of the guest's processes too: its kernel waits for all of them
		took.processor = s.UserTime() + s.SystemTime()
	}
	if ctx.Err() != nil {
		return nil, took, fmt.Errorf("lab guest of %s: ended after %v: %w", g.Scenario.Name, took.wall.Round(time.Second), context.Cause(ctx))
	}
	if text, e := os.ReadFile(filepath.Join(g.Out, errorName)); e == nil {
		return nil, took, errors.New(strings.TrimSpace(string(text)))
	}
	text, e := os.ReadFile(filepath.Join(g.Out, resultName))
	if e != nil && !g.Shell {
		return nil, took, &CrashedError{Scenario: g.Scenario.Name, Err: err, Tail: tail.String()}
	}
	return text, took, nil
}

// shareDir makes the folder that host and guest share, with the task, the
// programs and nothing else in it.
func shareDir(g *Guest) (string, error) {
	base := os.TempDir()
	if strings.ContainsAny(base, " \t\"") { // the kernel's command line splits at blanks
		base = "/tmp"
	}
	dir, err := os.MkdirTemp(base, "unbloat-lab-")
	if err != nil {
		return "", err
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return dir, err
	}
	g.Out = dir
	for from, to := range map[string]string{g.Programs.Lab: GuestLab, g.Programs.Unbloat: GuestUnbloat} {
		if err := linkOrCopy(from, filepath.Join(dir, filepath.Base(to))); err != nil {
			return dir, err
		}
	}
	text, err := json.Marshal(g)
	if err != nil {
		return dir, err
	}
	return dir, os.WriteFile(filepath.Join(dir, specName), text, 0o644)
}

func linkOrCopy(from, to string) error {
	if os.Link(from, to) == nil {
		return nil
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}

// memoryDir is where user-mode Linux keeps the guest's memory: on a tmpfs, or
// every page would be written to the disk.
func memoryDir() string {
	var st unix.Statfs_t
	if unix.Statfs("/dev/shm", &st) == nil && st.Type == unix.TMPFS_MAGIC && unix.Access("/dev/shm", unix.W_OK) == nil {
		return "/dev/shm"
	}
	return os.TempDir()
}

// shared is the folder of a guest by a name that is the same for all of them:
// the kernel's command line is among what its random numbers come from. The
// first /proc a guest sees is the host's, in which "self" is its kernel.
const shared = "/proc/self/cwd"

// virtualStart is when every guest of the virtual engine boots.
var virtualStart = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func kernelArgs(k Kernel, shell bool) []string {
	args := []string{
		"mem=768M", "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro", "loglevel=1",
		"uml_dir=.", "umid=lab", "init=" + shared + "/" + filepath.Base(GuestLab), "con=null", "ssl=null",
	}
	if k.Engine == Virtual {
		args = append(args, "seccomp=auto", "stderr=1")
		if !shell {
			args = append(args, "time-travel=inf-cpu", fmt.Sprintf("time-travel-start=%d", virtualStart.UnixNano()))
		}
	}
	if shell {
		args = append(args, "quiet", "con0=fd:0,fd:1")
	} else {
		args = append(args, "con0=null,fd:1")
	}
	// What follows "--" is the first process's; user-mode Linux adds a word of its own.
	return append(args, "--", "lab-init", shared+"/"+specName)
}

// runPinned runs cmd on one CPU: the guest's kernel and its processes hand over
// to each other at every system call, and across CPUs that costs ten times as much.
func runPinned(cmd *exec.Cmd, cpu int, e Engine) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var old, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &old); err != nil {
		return err
	}
	one.Set(cpu)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return fmt.Errorf("pin the lab's guest to CPU %d: %w", cpu, err)
	}
	// In real time a guest that waits for its turn measures the host. With the
	// privilege it goes before ordinary processes; virtual time does not need it.
	ordinary, attrErr := unix.SchedGetAttr(0, 0)
	urgent := e == Realtime && attrErr == nil &&
		unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: 1}, 0) == nil
	// The parent-death signal is tied to this thread, which therefore waits too.
	startErr := cmd.Start()
	if urgent {
		startErr = errors.Join(startErr, unix.SchedSetAttr(0, ordinary, 0))
	}
	startErr = errors.Join(startErr, unix.SchedSetaffinity(0, &old))
	if startErr != nil {
		return startErr
	}
	if e == Virtual { // whoever measures in real time goes first
		setNice(cmd.Process.Pid, 5)
	}
	return cmd.Wait()
}

// setNice sets the nice value of a process group that is a session too (0: our own), if
// the system permits it: that of its autogroup as well, since the kernel first shares
// time among these.
func setNice(group, nice int) {
	leader := "self"
	if group != 0 {
		leader = strconv.Itoa(group)
	}
	_ = os.WriteFile("/proc/"+leader+"/autogroup", []byte(strconv.Itoa(nice)), 0o644)
	_ = unix.Setpriority(unix.PRIO_PGRP, group, nice)
}

// keepTerminal returns what puts the terminal's modes back: the guest's console
// takes every key as it is, and leaves it so if it dies.
func keepTerminal() (restore func()) {
	was, err := unix.IoctlGetTermios(int(os.Stdin.Fd()), unix.TCGETS)
	if err != nil {
		return func() {} // no terminal
	}
	return func() { _ = unix.IoctlSetTermios(int(os.Stdin.Fd()), unix.TCSETS, was) } // it was one a moment ago
}

// endGroup kills the guest's kernel and the processes it made on the host.
func endGroup(pid int, shell bool) error {
	if shell {
		return unix.Kill(pid, unix.SIGKILL)
	}
	return unix.Kill(-pid, unix.SIGKILL)
}

// A cpuLease is the right to run a guest on a CPU. Guests of other processes
// keep away from it by the lock on a file, which the system frees by itself.
type cpuLease struct {
	number int
	lock   *apply.Lock
}

func (c cpuLease) release() { c.lock.Unlock() }

// takeCPU waits until one of the CPUs this process may use has no guest.
func takeCPU(ctx context.Context) (cpuLease, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return cpuLease{}, err
	}
	var cpus []int
	var names []string
	for n := range 1024 {
		if set.IsSet(n) {
			cpus, names = append(cpus, n), append(names, fmt.Sprintf("cpu%d.lock", n))
		}
	}
	which, lock, err := takeLock(ctx, names, func() {})
	if err != nil {
		return cpuLease{}, fmt.Errorf("reserve a CPU that runs no other guest: %w", err)
	}
	return cpuLease{cpus[which], lock}, nil
}

// takeLock waits for one of several locks of this user's, and returns which. It calls
// waits once if another process has all of them.
func takeLock(ctx context.Context, names []string, waits func()) (which int, l *apply.Lock, err error) {
	cache, err := cacheDir()
	if err == nil {
		err = os.MkdirAll(cache, 0o755)
	}
	if err != nil {
		return 0, nil, err
	}
	for first := true; ; first = false {
		for i, name := range names {
			if l, err := apply.TryLock(filepath.Join(cache, name)); !errors.Is(err, apply.ErrLocked) {
				return i, l, err
			}
		}
		if first {
			waits()
		}
		select {
		case <-ctx.Done():
			return 0, nil, context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// guestReady is the line after which the guest's output is its own; what comes
// before it is the kernel's.
const guestReady = "unbloat lab: ready"

// guestWriter passes on what the guest prints from guestReady on, without the
// kernel's last words.
type guestWriter struct {
	w     io.Writer
	line  bytes.Buffer
	ready bool
}

func (g *guestWriter) Write(b []byte) (int, error) {
	for _, c := range b {
		if c == '\r' {
			continue
		}
		g.line.WriteByte(c)
		if c != '\n' {
			continue
		}
		line := g.line.String()
		g.line.Reset()
		switch {
		case strings.TrimSpace(line) == guestReady:
			g.ready = true
		case !g.ready || strings.HasPrefix(line, "reboot: "):
		default:
			if _, err := io.WriteString(g.w, line); err != nil {
				return 0, err
			}
		}
	}
	return len(b), nil
}

// tailWriter keeps the last lines of what a guest printed, for errors.
type tailWriter struct{ buf bytes.Buffer }

func (t *tailWriter) Write(b []byte) (int, error) {
	if t.buf.Len() > 1<<16 {
		t.buf.Next(t.buf.Len() - 1<<14)
	}
	return t.buf.Write(b)
}

func (t *tailWriter) String() string { return lastLines(t.buf.String(), 25) }

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
