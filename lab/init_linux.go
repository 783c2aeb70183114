package lab

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"
)

// guestPath is where programs are found inside the guest.
const guestPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Init is the guest's first process: it makes the file system that the agent
// sees, starts it, reaps orphans until it ends, and powers the guest off. It
// does not return.
func Init(specFile string) error {
	err := guestInit(specFile)
	if err != nil {
		fmt.Fprintln(os.Stderr, "lab: guest:", err)
	}
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	select {}
}

func guestInit(specFile string) error {
	g, err := readGuest(specFile)
	if err != nil {
		return err
	}
	if err := seedRandom(g.Seed); err != nil {
		return err
	}
	if err := overlayRoot(g); err != nil {
		return err
	}
	if !g.Shell {
		fmt.Println(guestReady)
	}
	agent := exec.Command(GuestLab, "lab-agent", guestOut+"/"+specName)
	agent.Stdin, agent.Stdout, agent.Stderr = os.Stdin, os.Stdout, os.Stderr
	agent.Env = append(os.Environ(), guestPath, "HOME=/root", "UNBLOAT_CONFIG=", "TMPDIR=/tmp", "LANG=C.UTF-8")
	if err := agent.Start(); err != nil {
		return fmt.Errorf("start the agent: %w", err)
	}
	if err := reap(agent.Process.Pid); err != nil {
		return err
	}
	endOthers()
	return nil
}

// endOthers ends all processes of the guest but this one. The host's account of the
// guest has the processor time of those alone that have ended.
func endOthers() {
	if unix.Kill(-1, unix.SIGKILL) != nil {
		return // there is none
	}
	for {
		if _, err := unix.Wait4(-1, nil, 0, nil); err != nil && !errors.Is(err, unix.EINTR) {
			return // none is left
		}
	}
}

// seedRandom gives the guest's kernel the entropy that its random numbers are
// made of from here on, all of it: a guest of the same seed draws the same
// initial sequence numbers, ports and hash keys.
func seedRandom(seed uint64) error {
	pool := struct {
		bits, bytes int32 // as in struct rand_pool_info
		entropy     [sha256.Size]byte
	}{bits: 8 * sha256.Size, bytes: sha256.Size, entropy: sha256.Sum256(binary.BigEndian.AppendUint64(nil, seed))}
	f, err := os.OpenFile("/dev/random", os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("seed the guest's random numbers: %w", err)
	}
	defer f.Close()
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), unix.RNDADDENTROPY, uintptr(unsafe.Pointer(&pool))); errno != 0 {
		return fmt.Errorf("seed the guest's random numbers: %w", errno)
	}
	return nil
}

// reap waits for every child, adopted ones too, until pid has ended.
func reap(pid int) error {
	for {
		var ws unix.WaitStatus
		got, err := unix.Wait4(-1, &ws, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("wait for the agent: %w", err)
		case got == pid:
			return nil
		}
	}
}

// overlayRoot replaces the root: the host's files below, read-only, and a tmpfs
// above that takes every change. pivot_root rather than chroot, so that the
// kernel's own helpers (module loading) see the same tree.
func overlayRoot(g Guest) error {
	if err := loadOverlay(); err != nil {
		return err
	}
	const top = "/run/o"
	newRoot := top + "/r"
	type m struct{ source, target, kind, data string }
	steps := []m{
		{"tmpfs", "/run", "tmpfs", ""},
		{"overlay", newRoot, "overlay", "lowerdir=/,upperdir=" + top + "/u,workdir=" + top + "/w"},
		{"proc", newRoot + "/proc", "proc", ""},
		{"sysfs", newRoot + "/sys", "sysfs", ""},
		{"devtmpfs", newRoot + "/dev", "devtmpfs", ""},
		{"devpts", newRoot + "/dev/pts", "devpts", "ptmxmode=0666"},
		{"tmpfs", newRoot + "/dev/shm", "tmpfs", ""},
		{"tmpfs", newRoot + "/run", "tmpfs", "mode=755"},
		{"none", newRoot + guestOut, "hostfs", g.Out},
	}
	for i, s := range steps {
		if i == 1 {
			for _, d := range []string{"/u", "/w", "/r"} {
				if err := os.MkdirAll(top+d, 0o755); err != nil {
					return err
				}
			}
		} else if i > 1 {
			if err := os.MkdirAll(s.target, 0o755); err != nil {
				return err
			}
		}
		err := unix.Mount(s.source, s.target, s.kind, 0, s.data)
		if errors.Is(err, unix.ENODEV) && s.kind == "devpts" {
			continue // without terminals only the shell is poorer
		}
		if err != nil {
			return fmt.Errorf("mount %s on %s: %w", s.kind, s.target, err)
		}
	}
	if err := modules(newRoot); err != nil {
		return err
	}
	old := filepath.Join(newRoot, "run/old")
	if err := os.MkdirAll(old, 0o755); err != nil {
		return err
	}
	if err := unix.PivotRoot(newRoot, old); err != nil {
		return fmt.Errorf("pivot_root to %s: %w", newRoot, err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	if err := unix.Unmount("/run/old", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount the host's root: %w", err)
	}
	return console()
}

// umlModules is where Debian's user-mode-linux has its modules.
const umlModules = "/usr/lib/uml/modules"

// loadOverlay loads the overlay file system where it is a module: before the
// root is in place, modprobe(8) finds nothing.
func loadOverlay() error {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return err
	}
	f, err := os.Open(filepath.Join(umlModules, unix.ByteSliceToString(u.Release[:]), "kernel/fs/overlayfs/overlay.ko"))
	if err != nil {
		return nil // built in, or the mount will say what is missing
	}
	defer f.Close()
	if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("load the overlay module: %w", err)
	}
	return nil
}

// modules puts the modules of Debian's user-mode-linux where modprobe(8) looks.
func modules(root string) error {
	if _, err := os.Stat(root + umlModules); err != nil {
		return nil // the lab's own kernel has everything built in
	}
	at, err := filepath.EvalSymlinks(root + "/lib")
	if err != nil {
		return err
	}
	at += "/modules"
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(root+umlModules, at, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind the kernel's modules: %w", err)
	}
	return nil
}

// console points the standard streams at the guest's console.
func console() error {
	fd, err := unix.Open("/dev/console", unix.O_RDWR, 0)
	if err != nil {
		return nil // keep what the kernel gave
	}
	for i := range 3 {
		if err := unix.Dup3(fd, i, 0); err != nil {
			return err
		}
	}
	return unix.Close(fd)
}
