package bpf_test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"unbloat/internal/cure/classify"
)

// This file runs in the guest of qemu_linux_test.go: a router with nothing but a
// kernel of Debian's, whose first process is this test's program.

// guestEnv says what the guest does: "load", "cost", or "promised", which counts in one
// turn those costs alone that are promised.
const guestEnv = "UNBLOAT_BPF_GUEST"

func TestMain(m *testing.M) {
	if os.Getpid() == 1 {
		inGuest()
	}
	os.Exit(m.Run())
}

// inGuest does what it is asked for, says guestPassed or what failed on the
// console, and switches off.
func inGuest() {
	err := startGuest()
	if err == nil {
		switch os.Getenv(guestEnv) {
		case "load":
			err = guestLoads()
		case "cost":
			err = guestCosts(costTurns)
		case "promised":
			err = guestCosts(1, cakeWithNAT, defaultOneLAN, defaultTwoLANs)
		default:
			err = errors.New("nobody said what to do")
		}
	}
	if err != nil {
		fmt.Printf("guest: failed: %v\n", err)
	} else {
		fmt.Println(guestPassed)
	}
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

const guestPassed = "guest: passed"

// The router's network. Both far ends of its cables are in the same kernel, and
// nobody there takes what arrives.
const (
	guestWAN    = "198.51.100.2"
	guestFar    = "198.51.100.1"
	guestHosts  = 20
	guestServer = 200
)

func hostMAC(i int) net.HardwareAddr { return net.HardwareAddr{2, 0, 0, 0, 1, byte(i)} }

func startGuest() error {
	for _, m := range []struct{ kind, at string }{{"devtmpfs", "/dev"}, {"proc", "/proc"}, {"sysfs", "/sys"}, {"tmpfs", "/tmp"}, {"tmpfs", "/run"}} {
		if err := unix.Mount("none", m.at, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.at, err)
		}
	}
	if c, err := os.OpenFile("/dev/console", os.O_RDWR, 0); err == nil {
		os.Stdout, os.Stderr = c, c
	}
	for k, v := range map[string]string{"PATH": "/bin", "HOME": "/tmp"} {
		os.Setenv(k, v)
	}
	if err := lines(`
		ip link set lo up
		ip link add lan type veth peer name homes
		ip link add wan type veth peer name provider`); err != nil {
		return err
	}
	for _, dev := range []string{"all", "default", "lan", "wan", "homes", "provider"} {
		_ = os.WriteFile("/proc/sys/net/ipv6/conf/"+dev+"/disable_ipv6", []byte("1"), 0) // no messages of its own
	}
	if err := lines(`
		ip link set lan up
		ip link set homes up
		ip link set wan up
		ip link set provider up
		ip addr add 192.168.1.1/24 dev lan
		ip addr add ` + guestWAN + `/24 dev wan
		ip neigh add ` + guestFar + ` lladdr 02:00:00:00:02:01 dev wan nud permanent
		ip route add default via ` + guestFar + ` dev wan
		nft add table ip home
		nft add chain ip home out { type nat hook postrouting priority 100; }
		nft add rule ip home out oifname wan masquerade`); err != nil {
		return err
	}
	for i := range guestHosts {
		if err := lines(fmt.Sprintf("ip neigh add 192.168.1.%d lladdr %s dev lan nud permanent", 10+i, hostMAC(i))); err != nil {
			return err
		}
	}
	for name, v := range map[string]string{"net/ipv4/ip_forward": "1", "net/netfilter/nf_conntrack_tcp_be_liberal": "1", "net/netfilter/nf_conntrack_checksum": "0",
		"net/core/bpf_jit_enable": "1", "net/netfilter/nf_conntrack_acct": "1"} {
		if err := os.WriteFile("/proc/sys/"+name, []byte(v), 0); err != nil && name != "net/core/bpf_jit_enable" { // some kernels allow no other
			return fmt.Errorf("set %s: %w", name, err)
		}
	}
	return nil
}

// lines runs commands, one a line.
func lines(text string) error {
	for line := range strings.Lines(text) {
		if argv := strings.Fields(line); len(argv) > 0 {
			if _, err := command(argv...); err != nil {
				return err
			}
		}
	}
	return nil
}

func command(argv ...string) (string, error) {
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%q: %w: %s", argv, err, out)
	}
	return string(out), nil
}

// guestApply applies a plan that shapes to more than the machine can carry, so
// that no packet waits.
func guestApply(more ...string) error {
	_, err := command(append(strings.Fields("unbloat apply --shape-down 10gbit --shape-up 10gbit --wan wan --lan lan --aqm cake --yes --state-dir /tmp/state --root /tmp/root"), more...)...)
	return err
}

// guestLoads applies plans with the program, and sends packets through it.
func guestLoads() error {
	kernel, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return err
	}
	fmt.Printf("guest: kernel %s", kernel)
	clean, err := command("sh", "-c", "tc qdisc show; ip -br link; ls /sys/fs/bpf")
	if err != nil {
		return err
	}
	if err := guestApply("--classifier", "bpf", "--rule", "class=bulk,protocol=udp,far_port=9"); err != nil {
		return err
	}
	w, err := newWires(100)
	if err != nil {
		return err
	}
	if err := w.connect(); err != nil {
		return err
	}
	if err := w.round(20); err != nil {
		return err
	}
	status, err := command("unbloat", "status", "--wan", "wan", "--state-dir", "/tmp/state")
	if err != nil {
		return err
	}
	shown, err := command("sh", "-c", "unbloat classifier attached wan; for d in /sys/fs/bpf/unbloat/*; do unbloat classifier show $d; done")
	if err != nil {
		return err
	}
	if n := strings.Count(shown, `"lane":"voice"`); n == 0 || !strings.Contains(shown, `"as_built":true`) || !strings.Contains(status, "192.168.1.10") {
		return fmt.Errorf("%d flows have class voice: %s\n%s", n, status, shown)
	}
	for i := range guestHosts {
		if home := fmt.Sprintf(`"home":"192.168.1.%d:`, 10+i); !strings.Contains(shown, home) {
			return fmt.Errorf("machine %d has no number: %s", i, shown)
		}
	}
	if _, err := command("unbloat", "revert", "--wan", "wan", "--state-dir", "/tmp/state"); err != nil {
		return err
	}
	after, err := command("sh", "-c", "tc qdisc show; ip -br link; ls /sys/fs/bpf; ls /sys/fs/bpf/unbloat")
	if after = strings.TrimSuffix(after, "unbloat\n"); err != nil || after != clean {
		return fmt.Errorf("revert leaves %v\n%s\nwhere there was\n%s", err, after, clean)
	}
	return nil
}

// wires are the far ends of the router's cables, with flows across it.
type wires struct {
	homes, provider int // sockets
	lan, wan        net.HardwareAddr
	flows           []guestFlow
}

// A guestFlow is what one connection's packets are, each way.
type guestFlow struct {
	up, down []byte
	open     [][]byte // what goes first
}

func newWires(n int) (*wires, error) {
	w := &wires{}
	for _, x := range []struct {
		dev string
		fd  *int
	}{{"homes", &w.homes}, {"provider", &w.provider}} {
		link, err := net.InterfaceByName(x.dev)
		if err != nil {
			return nil, err
		}
		if *x.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0); err != nil {
			return nil, err
		}
		if err := unix.Bind(*x.fd, &unix.SockaddrLinklayer{Ifindex: link.Index}); err != nil {
			return nil, err
		}
	}
	for dev, mac := range map[string]*net.HardwareAddr{"lan": &w.lan, "wan": &w.wan} {
		link, err := net.InterfaceByName(dev)
		if err != nil {
			return nil, err
		}
		*mac = link.HardwareAddr
	}
	for i := range n {
		home := netip.AddrFrom4([4]byte{192, 168, 1, byte(10 + i%guestHosts)})
		far := netip.AddrFrom4([4]byte{203, 0, 113, byte(1 + i%guestServer)})
		seen := netip.MustParseAddr(guestWAN)
		port := uint16(20000 + i)
		f := guestFlow{}
		both := func(protocol uint8, far16 uint16, up, down int, flagsUp, flagsDown byte) ([]byte, []byte) {
			return packet(hostMAC(i%guestHosts), w.lan, home, far, port, far16, protocol, flagsUp, up),
				packet(net.HardwareAddr{2, 0, 0, 0, 2, 1}, w.wan, far, seen, far16, port, protocol, flagsDown, down)
		}
		switch i % 10 {
		case 0, 1, 2, 3: // downloads by TCP
			up, down := both(classify.TCP, 443, 52, 1500, classify.SYN, classify.SYN|classify.ACK)
			f.open = [][]byte{up, down}
			f.up, f.down = both(classify.TCP, 443, 52, 1500, classify.ACK, classify.ACK)
		case 4, 5: // uploads by QUIC
			f.up, f.down = both(classify.UDP, 443, 1300, 80, 0, 0)
			f.open = [][]byte{f.up, f.down}
		case 6: // downloads by QUIC
			f.up, f.down = both(classify.UDP, 443, 80, 1300, 0, 0)
			f.open = [][]byte{f.up, f.down}
		default: // calls
			f.up, f.down = both(classify.UDP, 5004, 200, 200, 0, 0)
			f.open = [][]byte{f.up, f.down}
		}
		w.flows = append(w.flows, f)
	}
	return w, nil
}

// packet makes a frame.
func packet(from, to net.HardwareAddr, src, dst netip.Addr, sport, dport uint16, protocol uint8, flags byte, size int) []byte {
	b := make([]byte, 14+size)
	copy(b, to)
	copy(b[6:], from)
	binary.BigEndian.PutUint16(b[12:], 0x0800)
	ip := b[14:]
	ip[0], ip[8], ip[9] = 0x45, 64, protocol
	binary.BigEndian.PutUint16(ip[2:], uint16(size))
	copy(ip[12:], src.AsSlice())
	copy(ip[16:], dst.AsSlice())
	checksum(ip)
	th := ip[20:]
	binary.BigEndian.PutUint16(th, sport)
	binary.BigEndian.PutUint16(th[2:], dport)
	if protocol == classify.TCP {
		th[12], th[13] = 8<<4, flags
		binary.BigEndian.PutUint16(th[14:], 65535)
		copy(th[20:], []byte{1, 1, 8, 10}) // a timestamp, as all of today's have
	} else {
		binary.BigEndian.PutUint16(th[4:], uint16(size-20))
	}
	return b
}

// checksum fills in that of an IPv4 header.
func checksum(ip []byte) {
	sum := uint32(0)
	ip[10], ip[11] = 0, 0
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	sum = sum>>16 + sum&0xffff
	sum += sum >> 16
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum))
}

// send sends a packet and has the kernel carry it to the other end. The router's work
// is done after the system call as a rule; what the kernel leaves to a thread of its own
// is done before the next packet, so that it costs the same. Go's scheduler does not
// learn of these calls: what it does about slow ones costs some thousand instructions.
func (w *wires) send(fd int, frame []byte) error {
	if _, _, e := unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(frame))), uintptr(len(frame))); e != 0 {
		return e
	}
	unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	return nil
}

// connect opens every flow.
func (w *wires) connect() error {
	for _, f := range w.flows {
		for i, frame := range f.open {
			if err := w.send([]int{w.homes, w.provider}[i%2], frame); err != nil {
				return err
			}
		}
	}
	return nil
}

// round sends packets of all flows in turn, as many of each in both directions.
func (w *wires) round(each int) error {
	for range each {
		for _, f := range w.flows {
			if err := w.send(w.homes, f.up); err != nil {
				return err
			}
			if err := w.send(w.provider, f.down); err != nil {
				return err
			}
		}
	}
	return nil
}

// astray changes the receiver of every frame, and back: the router's network cards
// throw them away. What that takes is not forwarding.
func (w *wires) astray() {
	for _, f := range w.flows {
		f.up[5] ^= 0x80
		f.down[5] ^= 0x80
	}
}

// marked gives every flow's packets one of these marks (DSCP) in turn.
func (w *wires) marked(dscp ...uint8) {
	for i, f := range w.flows {
		for _, frame := range [][]byte{f.up, f.down} {
			frame[15] = dscp[i%len(dscp)] << 2
			checksum(frame[14:])
		}
	}
}

// arrived is how many packets came out of the router.
func arrived() (n int, err error) {
	for _, dev := range []string{"homes", "provider"} {
		text, err := os.ReadFile(filepath.Join("/sys/class/net", dev, "statistics/rx_packets"))
		if err != nil {
			return 0, err
		}
		x, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			return 0, err
		}
		n += x
	}
	return n, nil
}

// inTins is how many packets each of the WAN's tins has had; nil without CAKE.
func inTins() ([]int, error) {
	text, err := command("tc", "-s", "-j", "qdisc", "show", "dev", "wan", "root")
	if err != nil {
		return nil, err
	}
	var seen []struct {
		Tins []struct {
			Sent int `json:"sent_packets"`
		} `json:"tins"`
	}
	if err := json.Unmarshal([]byte(text), &seen); err != nil {
		return nil, fmt.Errorf("%w: %s", err, text)
	}
	var out []int
	for _, q := range seen {
		for _, tin := range q.Tins {
			out = append(out, tin.Sent)
		}
	}
	return out, nil
}

const (
	costFlows = 1000
	costEach  = 5 // packets of each flow and direction
	costTurns = 3 // of that, of which the median counts
	warmUp    = 3 // rounds before they are counted

	// cleansUp is for how long the kernel frees what a change has left; it costs no time.
	cleansUp = 3 * time.Second
)

// timed is how long sending takes. QEMU's clock counts the guest's instructions.
func timed(w *wires, each int) (time.Duration, error) {
	start := time.Now()
	err := w.round(each)
	return time.Since(start), err
}

// settled waits until no packets come out of the router any more, and returns how
// many have. Under load the kernel leaves some to a thread of its own, for later.
func settled() (n int, last time.Time, err error) {
	if n, err = arrived(); err != nil {
		return 0, last, err
	}
	last = time.Now()
	for time.Since(last) < 50*time.Millisecond {
		unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
		now, err := arrived()
		if err != nil {
			return 0, last, err
		}
		if now != n {
			n, last = now, time.Now()
		}
	}
	return n, last, nil
}

// guestCosts prints what a packet costs with each way to sort them, or with these, as the
// median of some turns.
func guestCosts(turns int, only ...string) error {
	w, err := newWires(costFlows)
	if err != nil {
		return err
	}
	packets := 2 * costFlows * costEach
	debug.SetGCPercent(-1)
	w.astray()
	if err := w.round(2); err != nil {
		return err
	}
	alone, err := timed(w, costEach)
	if err != nil {
		return err
	}
	w.astray()
	each := func(took time.Duration) int64 { return int64(took-alone) / int64(packets) }
	tins := func(mode string) func() error {
		return func() error {
			return lines("tc qdisc change dev wan root cake " + mode + "\ntc qdisc change dev ifb4wan root cake " + mode)
		}
	}
	for _, x := range []struct {
		name string
		how  func() error
	}{
		{"no shaper", func() error { return nil }},
		{"fq_codel", func() error { return guestApply("--aqm", "fq_codel", "--classes", "off") }},
		{"fq_codel + program", func() error { return guestApply("--aqm", "fq_codel", "--classes", "on") }},
		{"CAKE + u32", func() error { return guestApply("--classes", "off") }}, // filters for acknowledgements and small packets
		{cakeWithNAT, func() error {
			if err := guestApply("--classes", "off"); err != nil {
				return err
			}
			if err := lines("tc filter del dev wan parent b10a:"); err != nil {
				return err
			}
			return tins("besteffort")()
		}},
		{"CAKE", tins("besteffort nonat")},
		{"CAKE with nat, 3 of 8 tins", func() error {
			w.marked(0, 34, 46) // each is of another tin
			return tins("precedence nat")()
		}},
		{defaultOneLAN, func() error {
			w.marked(0)
			return guestApply()
		}},
		{defaultTwoLANs, func() error { // some machines may have no number, so CAKE looks for them
			if err := lines("ip addr add 192.168.2.1/24 dev lo"); err != nil {
				return err
			}
			return guestApply()
		}},
	} {
		if len(only) > 0 && !slices.Contains(only, x.name) {
			continue
		}
		if err := x.how(); err != nil {
			return err
		}
		runtime.GC()
		time.Sleep(cleansUp)
		if err := w.connect(); err != nil {
			return err
		}
		if err := w.round(warmUp); err != nil {
			return err
		}
		tinsBefore, err := inTins()
		if err != nil {
			return err
		}
		before, _, err := settled()
		if err != nil {
			return err
		}
		var took []time.Duration
		after := before
		for range turns {
			start := time.Now()
			if err := w.round(costEach); err != nil {
				return err
			}
			var end time.Time
			if after, end, err = settled(); err != nil {
				return err
			}
			took = append(took, end.Sub(start))
		}
		slices.Sort(took)
		tinsAfter, err := inTins()
		if err != nil {
			return err
		}
		used := 0
		for i := range tinsAfter {
			if tinsAfter[i] > tinsBefore[i] {
				used++
			}
		}
		fmt.Printf("guest: cost %q %d instructions (%d to %d); %d of %d packets arrived, upwards by %d of %d tins\n", x.name, each(took[turns/2]), each(took[0]), each(took[turns-1]),
			after-before, turns*packets, used, len(tinsAfter))
		if after-before < turns*packets*99/100 {
			queues, _ := command("tc", "-s", "qdisc", "show")
			return fmt.Errorf("%s: %d of %d packets came out of the router: %s", x.name, after-before, turns*packets, queues)
		}
	}
	return nil
}
