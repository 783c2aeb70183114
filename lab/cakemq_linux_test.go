package lab_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unbloat/lab"
	"unbloat/lab/scenario"
	"unbloat/scenarios"
	"unbloat/testkit/labtest"
	"unbloat/unit"
)

// Numbers of CAKE's attributes (linux/pkt_sched.h).
const (
	tcaKind      = 1
	tcaOptions   = 2
	cakeFwmark   = 18
	mqMark       = 0xf00000 // bits of the packet's mark that hold its tin
	mqMarkShift  = 20
	nestedFlag   = 1 << 15
	tcHeaderSize = 20
)

// TestCakeMQInLab measures what many connections do to a call's packets where CAKE runs
// on several queues (cake_mq, Linux 7.0): docs/evidence/notes.md has the figures. tc of most systems
// does not know cake_mq, so its settings are those of a CAKE, copied by netlink.
func TestCakeMQInLab(t *testing.T) {
	if os.Getenv("UNBLOAT_LONG") == "" {
		t.Skip("SKIPPED: six homes with 200 connections; UNBLOAT_LONG=1 runs it")
	}
	for _, c := range []struct {
		queues   int
		mq       bool
		down, up unit.Rate // of the line
	}{
		{1, false, 30e6, 5e6}, {2, true, 30e6, 5e6}, {4, true, 30e6, 5e6},
		{1, false, 500e6, 100e6}, {2, true, 500e6, 100e6}, {4, true, 500e6, 100e6},
	} {
		t.Run(fmt.Sprintf("%.0f-%d-queues-mq-%v", c.down.Mbit(), c.queues, c.mq), func(t *testing.T) {
			text, err := scenarios.Text("many")
			if err != nil {
				t.Fatal(err)
			}
			s, err := scenario.Parse("many.toml", text)
			if err != nil {
				t.Fatal(err)
			}
			s.Home.Queues = c.queues
			s.Line.Down, s.Line.Up = c.down, c.up
			if c.down > 30e6 {
				s.Line.BufferDown, s.Line.BufferUp = 10*unit.MB, 4*unit.MB
			}
			if !labtest.Inside(t, labtest.Options{Scenario: s, Server: true}) {
				return
			}
			planned, err := labtest.In(t.Context(), lab.NodeRouter, labtest.Unbloat(), "plan", "--here", "--json", "--wan", lab.RouterWAN, "--lan", lab.RouterLAN,
				"--side", "lan", "--aqm", "cake", "--rtt", "20ms", "--shape-down", c.down.Scale(0.86).String(), "--shape-up", c.up.Scale(0.996).String(), "--interval", "2s").Output()
			if err != nil {
				t.Fatalf("plan: %v: %s", err, planned)
			}
			file := filepath.Join(t.TempDir(), "plan.json")
			if err := os.WriteFile(file, planned, 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := labtest.In(t.Context(), lab.NodeRouter, labtest.Unbloat(), "apply", "--yes", file).CombinedOutput(); err != nil {
				t.Fatalf("apply: %v: %s", err, out)
			}
			if c.mq {
				for _, dev := range []string{lab.RouterWAN, lab.RouterLAN} {
					multiply(t, dev)
				}
			}
			for _, dev := range []string{lab.RouterWAN, lab.RouterLAN} {
				out, err := exec.Command("tc", "qdisc", "show", "dev", dev).CombinedOutput()
				t.Logf("%s: %v\n%s", dev, err, out)
			}
			guest, err := json.Marshal(lab.Guest{Scenario: s, Case: s.Cases[0].Name})
			if err != nil {
				t.Fatal(err)
			}
			spec := filepath.Join(t.TempDir(), "guest.json")
			if err := os.WriteFile(spec, guest, 0o600); err != nil {
				t.Fatal(err)
			}
			measured := labtest.In(t.Context(), lab.Host(1), lab.GuestLab, "lab-household", spec)
			var errs bytes.Buffer
			measured.Stderr = &errs
			out, err := measured.Output()
			if err != nil {
				t.Fatalf("measure: %v: %s", err, errs.String())
			}
			var r lab.CaseResult
			if err := json.Unmarshal(out, &r); err != nil {
				t.Fatal(err)
			}
			p := r.Test.Loaded
			t.Logf("RESULT %.0f/%.0f queues %d mq %v: increase p50 %.1f p95 %.1f p99 %.1f ms, loss %.2f %%, down %.2f up %.2f Mbit/s", c.down.Mbit(), c.up.Mbit(), c.queues, c.mq, p.Latency.IncreaseMs.P50,
				p.Latency.IncreaseMs.P95, p.Latency.IncreaseMs.P99, 100*p.Latency.Loss, p.GoodputDownBps/1e6, p.GoodputUpBps/1e6)
			for _, dev := range []string{lab.RouterWAN, lab.RouterLAN} {
				out, err := exec.Command("tc", "-s", "qdisc", "show", "dev", dev).CombinedOutput()
				t.Logf("%s: %v\n%s", dev, err, out)
			}
		})
	}
}

var rootHandle = regexp.MustCompile(`(?m)^qdisc cake ([0-9a-f]+): root`)

// multiply puts cake_mq with CAKE's settings in CAKE's place, and gives its children the
// tin of a packet by its mark, since they do not look at the priority.
func multiply(t *testing.T, dev string) {
	t.Helper()
	out, err := exec.Command("tc", "qdisc", "show", "dev", dev).CombinedOutput()
	if err != nil {
		t.Fatalf("tc: %v: %s", err, out)
	}
	handle := rootHandle.FindStringSubmatch(string(out))
	if handle == nil {
		t.Fatalf("no CAKE on %s: %s", dev, out)
	}
	link, err := net.InterfaceByName(dev)
	if err != nil {
		t.Fatal(err)
	}
	options := cakeOptions(t, link.Index)
	if out, err := exec.Command("tc", "qdisc", "del", "dev", dev, "root").CombinedOutput(); err != nil {
		t.Fatalf("tc: %v: %s", err, out)
	}
	options = append(options, attribute(cakeFwmark, binary.NativeEndian.AppendUint32(nil, mqMark))...)
	header := make([]byte, tcHeaderSize)
	binary.NativeEndian.PutUint32(header[4:], uint32(link.Index))
	var major uint32
	if _, err := fmt.Sscanf(handle[1], "%x", &major); err != nil {
		t.Fatal(err)
	}
	binary.NativeEndian.PutUint32(header[8:], major<<16)
	binary.NativeEndian.PutUint32(header[12:], 0xffffffff) // the root
	message := append(append(header, attribute(tcaKind, []byte("cake_mq\x00"))...), attribute(tcaOptions|nestedFlag, options)...)
	if _, err := routeRequest(unix.RTM_NEWQDISC, unix.NLM_F_CREATE|unix.NLM_F_REPLACE|unix.NLM_F_ACK, message); err != nil {
		t.Fatalf("make cake_mq on %s: %v", dev, err)
	}
	var rules strings.Builder
	fmt.Fprintf(&rules, "table inet mq_%s {\n chain post { type filter hook postrouting priority 0;\n", dev)
	for tin := 1; tin <= 8; tin++ {
		fmt.Fprintf(&rules, "oifname %q meta priority %s:%x meta mark set meta mark and 0x%x or 0x%x\n", dev, handle[1], tin, ^uint32(mqMark), tin<<mqMarkShift)
	}
	rules.WriteString("}\n}\n")
	nft := exec.Command("nft", "-f", "-")
	nft.Stdin = strings.NewReader(rules.String())
	if out, err := nft.CombinedOutput(); err != nil {
		t.Fatalf("nft: %v: %s\n%s", err, out, rules.String())
	}
}

// cakeOptions returns the attributes of the CAKE at a device's root, but for the mark.
func cakeOptions(t *testing.T, index int) (out []byte) {
	t.Helper()
	messages, err := routeRequest(unix.RTM_GETQDISC, unix.NLM_F_DUMP, make([]byte, tcHeaderSize))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range messages {
		if len(m) < tcHeaderSize || int(binary.NativeEndian.Uint32(m[4:])) != index || binary.NativeEndian.Uint32(m[12:]) != 0xffffffff {
			continue
		}
		for kind, value := range attributes(m[tcHeaderSize:]) {
			if kind != tcaOptions {
				continue
			}
			for k, v := range attributes(value) {
				if k != cakeFwmark {
					out = append(out, attribute(k, v)...)
				}
			}
		}
	}
	if len(out) == 0 {
		t.Fatalf("interface %d has no CAKE", index)
	}
	return out
}

func attribute(kind uint16, value []byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(value)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = append(b, value...)
	return append(b, make([]byte, (4-len(b)%4)%4)...)
}

func attributes(b []byte) func(yield func(uint16, []byte) bool) {
	return func(yield func(uint16, []byte) bool) {
		for len(b) >= 4 {
			n := int(binary.NativeEndian.Uint16(b))
			if n < 4 || n > len(b) || !yield(binary.NativeEndian.Uint16(b[2:])&^nestedFlag, b[4:n]) {
				return
			}
			b = b[min(len(b), (n+3)&^3):]
		}
	}
}

// routeRequest sends a request to the kernel's routing, and returns the bodies of the answers.
func routeRequest(kind, flags uint16, body []byte) (answers [][]byte, err error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: int64(5 * time.Second / time.Second)}); err != nil {
		return nil, err
	}
	m := make([]byte, unix.NLMSG_HDRLEN)
	binary.NativeEndian.PutUint32(m, uint32(unix.NLMSG_HDRLEN+len(body)))
	binary.NativeEndian.PutUint16(m[4:], kind)
	binary.NativeEndian.PutUint16(m[6:], unix.NLM_F_REQUEST|flags)
	if err := unix.Sendto(fd, append(m, body...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, err
	}
	for b := make([]byte, 1<<17); ; {
		n, _, err := unix.Recvfrom(fd, b, 0)
		if err != nil {
			return nil, err
		}
		for got := b[:n]; len(got) >= unix.NLMSG_HDRLEN; {
			size := int(binary.NativeEndian.Uint32(got))
			text := bytes.Clone(got[unix.NLMSG_HDRLEN:size])
			switch binary.NativeEndian.Uint16(got[4:]) {
			case unix.NLMSG_ERROR:
				if code := int32(binary.NativeEndian.Uint32(text)); code != 0 {
					return nil, unix.Errno(-code)
				}
				return answers, nil
			case unix.NLMSG_DONE:
				return answers, nil
			}
			answers = append(answers, text)
			got = got[min(len(got), (size+3)&^3):]
		}
	}
}
