package bpf

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"unbloat/internal/cure/lang/tc"
)

// Filters are attached and read by rtnetlink, so that no tc(8) is needed that knows
// BPF. OpenWrt's small one does not.

// The kernel's numbers for filters (linux/rtnetlink.h, linux/pkt_cls.h).
const (
	attrKind    = 1
	attrOptions = 2

	bpfFD    = 6
	bpfName  = 7
	bpfFlags = 8
	bpfTag   = 10
	bpfID    = 11

	flagActs = 1 // direct-action

	nested = 1 << 15 // a flag of an attribute's type

	ingressParent = 0xfffffff1

	sizeOfTcmsg = 20
)

// Attach attaches the program that is pinned at pin as a filter to a qdisc of a
// device. parent is the qdisc's handle, such as "b10a:". acts is for a program that
// says what becomes of a packet. Where packets enter from a LAN it makes the qdisc, unless there
// is one.
func Attach(device, parent string, pref int, pin string, acts bool) error {
	fail := func(err error) error {
		return fmt.Errorf("attach the BPF program %s to %s of %s: %w", pin, parent, device, err)
	}
	p, err := ebpf.LoadPinnedProgram(pin, nil)
	if err != nil {
		return fail(err)
	}
	defer p.Close()
	key := path.Base(path.Dir(pin))
	if parent == "ffff:" {
		if err := addIngress(device); err != nil && !errors.Is(err, unix.EEXIST) {
			return fail(err)
		}
	}
	if err := addFilter(device, parent, pref, tc.HandleOf(parent, key), path.Base(pin)+"_"+key, p, acts); err != nil {
		return fail(err)
	}
	return nil
}

func addFilter(device, parent string, pref int, handle uint32, name string, p *ebpf.Program, acts bool) error {
	options := attr(nil, bpfFD, word(uint32(p.FD())))
	options = attr(options, bpfName, append([]byte(name), 0))
	if acts {
		options = attr(options, bpfFlags, word(flagActs))
	}
	m, err := tcmsg(device, parent)
	if err != nil {
		return err
	}
	binary.NativeEndian.PutUint32(m[8:], handle)
	var all [2]byte
	binary.BigEndian.PutUint16(all[:], unix.ETH_P_ALL)
	binary.NativeEndian.PutUint32(m[16:], uint32(pref)<<16|uint32(binary.NativeEndian.Uint16(all[:])))
	m = attr(attr(m, attrKind, []byte("bpf\x00")), attrOptions|nested, options)
	_, err = request(unix.RTM_NEWTFILTER, unix.NLM_F_ACK|unix.NLM_F_CREATE|unix.NLM_F_EXCL, m)
	return err
}

// addIngress makes the qdisc for what enters a device.
func addIngress(device string) error {
	m, err := tcmsg(device, "ffff:")
	if err != nil {
		return err
	}
	copy(m[8:12], m[12:16]) // its own handle
	binary.NativeEndian.PutUint32(m[12:], ingressParent)
	_, err = request(unix.RTM_NEWQDISC, unix.NLM_F_ACK|unix.NLM_F_CREATE|unix.NLM_F_EXCL, attr(m, attrKind, []byte("ingress\x00")))
	return err
}

// tryFilter tests in a network of its own whether the kernel has BPF filters: it
// may lack the module.
func tryFilter(p *ebpf.Program) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread, which has another network now, ends with this
		done <- func() error {
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				return nil // it can't be tried: attaching will tell
			}
			if err := addIngress("lo"); err != nil {
				return fmt.Errorf("try a queue for what arrives: %w", err)
			}
			if err := addFilter("lo", "ffff:", 1, 1, "try", p, false); err != nil {
				return fmt.Errorf("try a BPF filter (cls_bpf; on OpenWrt kmod-sched-bpf): %w", err)
			}
			return nil
		}()
	}()
	return <-done
}

// Attached lists the BPF filters of a device.
func Attached(device string) ([]tc.Attached, error) {
	var out []tc.Attached
	qdiscs, err := qdiscs(device)
	if err != nil {
		return nil, fmt.Errorf("list the queues of %s: %w", device, err)
	}
	for _, parent := range qdiscs {
		m, err := tcmsg(device, parent)
		if err != nil {
			return nil, err
		}
		replies, err := request(unix.RTM_GETTFILTER, unix.NLM_F_DUMP, m)
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EOPNOTSUPP) { // a qdisc that has none
			return nil, fmt.Errorf("list the filters of %s %s: %w", device, parent, err)
		}
		for _, r := range replies {
			if f, ok := readFilter(r, parent); ok {
				out = append(out, f)
			}
		}
	}
	return out, nil
}

// readFilter reads a bpf filter from a reply; ok is false if it is none.
func readFilter(r []byte, parent string) (f tc.Attached, ok bool) {
	if len(r) < sizeOfTcmsg {
		return f, false
	}
	a := attrs(r[sizeOfTcmsg:])
	options := attrs(a[attrOptions])
	if string(bytes.TrimRight(a[attrKind], "\x00")) != "bpf" || a[attrOptions] == nil {
		return f, false
	}
	f = tc.Attached{Parent: parent, Pref: int(binary.NativeEndian.Uint32(r[16:]) >> 16),
		Handle: fmt.Sprintf("0x%x", binary.NativeEndian.Uint32(r[8:])),
		Name:   string(bytes.TrimRight(options[bpfName], "\x00")), Tag: hex.EncodeToString(options[bpfTag])}
	if parent == "ffff:" {
		f.Parent = tc.AtIngress
	}
	if b := options[bpfFlags]; len(b) == 4 {
		f.Acts = binary.NativeEndian.Uint32(b)&flagActs != 0
	}
	what, key, _ := strings.Cut(f.Name, "_")
	f.AsBuilt = Known(what, f.Tag)
	if b := options[bpfID]; len(b) == 4 && f.AsBuilt {
		f.AsBuilt = isPinned(path.Join(tc.Pins, key, what), binary.NativeEndian.Uint32(b))
	}
	return f, true
}

// isPinned reports whether the program with this number is the one that is pinned
// there. A user who may not look takes it for that.
func isPinned(pin string, id uint32) bool {
	p, err := ebpf.LoadPinnedProgram(pin, nil)
	if err != nil {
		return errors.Is(err, os.ErrPermission)
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		return false
	}
	got, ok := info.ID()
	return ok && uint32(got) == id
}

// qdiscs are the handles of a device's queues that may have filters.
func qdiscs(device string) ([]string, error) {
	m, err := tcmsg(device, "0:")
	if err != nil {
		return nil, err
	}
	replies, err := request(unix.RTM_GETQDISC, unix.NLM_F_DUMP, m)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, r := range replies {
		if len(r) < sizeOfTcmsg || !bytes.Equal(r[4:8], m[4:8]) { // a dump has those of all devices
			continue
		}
		if major := binary.NativeEndian.Uint32(r[8:]) >> 16; major != 0 {
			out = append(out, fmt.Sprintf("%x:", major))
		}
	}
	return out, nil
}

// tcmsg is the header of messages about queues and filters.
func tcmsg(device, parent string) ([]byte, error) {
	link, err := net.InterfaceByName(device)
	if err != nil {
		return nil, err
	}
	major, err := strconv.ParseUint(strings.TrimSuffix(parent, ":"), 16, 16)
	if err != nil {
		return nil, fmt.Errorf("%q is no handle of a qdisc", parent)
	}
	m := make([]byte, sizeOfTcmsg)
	binary.NativeEndian.PutUint32(m[4:], uint32(link.Index))
	binary.NativeEndian.PutUint32(m[12:], uint32(major)<<16)
	return m, nil
}

func word(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }

// attr appends an attribute.
func attr(to []byte, kind uint16, value []byte) []byte {
	to = binary.NativeEndian.AppendUint16(to, uint16(4+len(value)))
	to = binary.NativeEndian.AppendUint16(to, kind)
	to = append(to, value...)
	for len(to)%4 != 0 {
		to = append(to, 0)
	}
	return to
}

// attrs reads attributes by their type.
func attrs(b []byte) map[uint16][]byte {
	out := map[uint16][]byte{}
	for len(b) >= 4 {
		n := int(binary.NativeEndian.Uint16(b))
		if n < 4 || n > len(b) {
			break
		}
		out[binary.NativeEndian.Uint16(b[2:])&^nested] = b[4:n]
		b = b[min((n+3)&^3, len(b)):]
	}
	return out
}

// request sends a message to the kernel, and returns the bodies of its replies. The
// error is the kernel's, with what it says of it.
func request(kind uint16, flags uint16, body []byte) ([][]byte, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	_ = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_EXT_ACK, 1) // the kernel's words; without them its number will do
	_ = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1)
	m := binary.NativeEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(body)))
	m = binary.NativeEndian.AppendUint16(m, kind)
	m = binary.NativeEndian.AppendUint16(m, unix.NLM_F_REQUEST|flags)
	m = append(append(m, make([]byte, 8)...), body...) // no number, no sender
	if err := unix.Sendto(fd, m, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, err
	}
	var out [][]byte
	buf := make([]byte, 1<<16)
	for {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if err != nil {
			return nil, err
		}
		for b := buf[:n]; len(b) >= unix.SizeofNlMsghdr; {
			size := int(binary.NativeEndian.Uint32(b))
			if size < unix.SizeofNlMsghdr || size > len(b) {
				return nil, errors.New("the kernel's answer is cut off")
			}
			payload := b[unix.SizeofNlMsghdr:size]
			switch binary.NativeEndian.Uint16(b[4:]) {
			case unix.NLMSG_DONE:
				return out, nil
			case unix.NLMSG_ERROR:
				return out, kernelError(payload, binary.NativeEndian.Uint16(b[6:]))
			}
			out = append(out, slices.Clone(payload))
			b = b[min((size+3)&^3, len(b)):]
		}
	}
}

// Flags of an answer that says more than a number, and the attribute with the words.
const (
	moreSaid   = 0x200
	wordsAttr  = 1
	sizeOfSaid = 4 + unix.SizeofNlMsghdr
)

// kernelError is what an acknowledgement says; nil if all went well.
func kernelError(b []byte, flags uint16) error {
	if len(b) < 4 {
		return errors.New("the kernel's answer is cut off")
	}
	n := int32(binary.NativeEndian.Uint32(b))
	if n == 0 {
		return nil
	}
	err := unix.Errno(-n)
	if flags&moreSaid != 0 && len(b) > sizeOfSaid {
		if words := bytes.TrimRight(attrs(b[sizeOfSaid:])[wordsAttr], "\x00"); len(words) > 0 {
			return fmt.Errorf("%w (%s)", err, words)
		}
	}
	return err
}
