// This part runs a router's own disk image under QEMU, with two network
// cards that lead into the lab: each is a tap device there.
//
// The image is never written to: what the router changes goes to a temporary
// file, which is gone when the router ends.

package lab

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// QEMU is the program that runs an image, and Package is Debian's package of it.
const (
	QEMU    = "qemu-system-x86_64"
	Package = "qemu-system-x86"
)

// The places of the network cards in a router, in the order in which it finds them.
const (
	LAN = iota
	WAN
	cards
)

// memory is what a router has, in MiB: enough for OPNsense. Of the machine's own
// it takes only what the router touches.
const memory = 2048

// Options say what is run.
type MachineOptions struct {
	File string          // the disk image
	MAC  [cards]string   // of the network cards
	Taps [cards]*os.File // the devices behind them, as Tap opens them; the caller closes them
}

// A Format is how a disk image is stored.
type Format string

// Formats. An ISO or a memstick image is Raw too.
const (
	Raw   Format = "raw"
	QCOW2 Format = "qcow2"
	VMDK  Format = "vmdk"
)

// A FileError says why a file is not an image that can be booted, and what to do.
type FileError struct {
	File, What, Remedy string
	Err                error
}

func (e *FileError) Error() string {
	return fmt.Sprintf("boot the router's image %s: %s; %s", e.File, e.What, e.Remedy)
}

// Unwrap returns the error of the system, if there was one.
func (e *FileError) Unwrap() error { return e.Err }

// Inspect returns how an image is stored. Errors are *FileError: there is no such
// file, it is compressed, or too small to have a boot sector.
func Inspect(file string) (Format, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", &FileError{file, err.Error(), "give the path of a disk image that can be read", err}
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.IsDir() {
		return "", &FileError{file, "it is a folder", "give the path of a disk image", err}
	}
	head := make([]byte, 512)
	if _, err := io.ReadFull(f, head); err != nil {
		return "", &FileError{file, "it is smaller than a boot sector", "give the path of a disk image", err}
	}
	for _, c := range []struct{ magic, kind, unpack string }{
		{"\x1f\x8b", "gzip", "gunzip -k"}, {"BZh", "bzip2", "bunzip2 -k"}, {"\xfd7zXZ\x00", "xz", "unxz -k"}, {"\x28\xb5\x2f\xfd", "zstd", "unzstd"},
	} {
		if bytes.HasPrefix(head, []byte(c.magic)) {
			return "", &FileError{File: file, What: "it is compressed with " + c.kind, Remedy: "unpack it first: " + c.unpack + " " + file}
		}
	}
	switch {
	case bytes.HasPrefix(head, []byte("QFI\xfb")):
		return QCOW2, nil
	case bytes.HasPrefix(head, []byte("KDMV")):
		return VMDK, nil
	}
	return Raw, nil
}

// Accelerator says by which means this machine runs a router's instructions: kvm
// where its processor has a hypervisor's instructions and this user may use
// them, else tcg, which translates them and is some 10 times slower.
func Accelerator() string {
	cpu, err := os.ReadFile("/proc/cpuinfo")
	if err != nil || !hypervisor(string(cpu)) {
		return "tcg"
	}
	f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return "tcg"
	}
	f.Close()
	return "kvm"
}

// hypervisor reports whether a processor can run guests by itself. A kernel may
// offer /dev/kvm without, for guests that are made for it alone.
func hypervisor(cpuinfo string) bool {
	for line := range strings.Lines(cpuinfo) {
		if name, flags, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "flags" {
			for _, f := range strings.Fields(flags) {
				if f == "vmx" || f == "svm" {
					return true
				}
			}
			return false
		}
	}
	return false
}

// firstFD is where the network cards' devices begin: behind the standard streams.
const firstFD = 3

// arguments are those of QEMU.
func arguments(o MachineOptions, format Format, accelerator string) ([]string, error) {
	path, err := filepath.Abs(o.File)
	if err != nil {
		return nil, err
	}
	cpu := "max"
	if accelerator == "kvm" {
		cpu = "host"
	}
	args := []string{
		"-nodefaults", "-no-user-config", "-display", "none", "-vga", "std", "-monitor", "none", "-serial", "stdio",
		"-accel", accelerator, "-cpu", cpu, "-smp", "1", "-m", strconv.Itoa(memory),
		"-rtc", "base=utc", "-object", "rng-random,id=random,filename=/dev/urandom", "-device", "virtio-rng-pci,rng=random",
		// In an argument of QEMU a comma is doubled.
		"-drive", "file=" + strings.ReplaceAll(path, ",", ",,") + ",format=" + string(format) + ",if=virtio,snapshot=on",
	}
	for i, mac := range o.MAC {
		args = append(args,
			"-netdev", fmt.Sprintf("tap,id=card%d,fd=%d", i, firstFD+i),
			"-device", fmt.Sprintf("virtio-net-pci,netdev=card%d,mac=%s", i, mac))
	}
	return args, nil
}

// A tail keeps the last words that a console printed.
type tail struct{ text []byte }

// mostTail is how much of a console is kept, in bytes.
const mostTail = 16 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.text = append(t.text, b...)
	if over := len(t.text) - mostTail; over > 0 {
		t.text = append(t.text[:0:0], t.text[over:]...)
	}
	return len(b), nil
}

// lines are the last of them, without what moves a cursor.
func (t *tail) lines(n int) string {
	var clean strings.Builder
	for _, c := range string(t.text) {
		if c == '\n' || c == '\t' || c >= ' ' {
			clean.WriteRune(c)
		}
	}
	all := strings.Split(strings.TrimSpace(clean.String()), "\n")
	return strings.Join(all[max(0, len(all)-n):], "\n")
}
