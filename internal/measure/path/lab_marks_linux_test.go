package path_test

import (
	"encoding/binary"
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"unbloat/internal/measure/path"
	"unbloat/lab"
	"unbloat/reason"
	"unbloat/testkit/labtest"
)

// has reports whether a finding of a code says all of these words.
func has(rs []reason.Reason, code reason.Code, words ...string) bool {
	return slices.ContainsFunc(rs, func(r reason.Reason) bool {
		return r.Code == code && !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(r.String(), w) })
	})
}

// Bleachers on a real kernel are found: the router clears EF and ECT(1) on the way up, which
// the next hop quotes and the server sees; the provider clears NQB and CE on the way down,
// which the server's answers show, and CE on the way up, behind the last hop that quotes.
func TestLabPathMarks(t *testing.T) {
	if !labtest.Inside(t, hostAlone()) {
		return
	}
	bleach := func(node, device string, rules ...string) {
		run(t.Context(), t, node, "nft", "add table ip bleach; add chain ip bleach out { type filter hook postrouting priority 10; }")
		for _, r := range rules {
			run(t.Context(), t, node, "nft", "add rule ip bleach out oifname "+device+" "+r)
		}
	}
	wake(t, lab.ServerAddr)
	r := trace(t, nil, lab.ServerAddr, "--marks", "--load", lab.Server(), "--direction", "up", "--seconds", "10")
	if m := r.Marks; m == nil || len(m.Changes) > 0 || m.LastHop["EF"] != 2 || len(m.Follows) > 0 || len(m.Server) != 4 || !has(m.Findings, reason.MarkServerKept, "NQB, down") {
		t.Errorf("nobody changes anything: %+v", m)
	}
	bleach(lab.NodeRouter, "wan", "ip dscp ef ip dscp set cs0", "ip ecn ect1 ip ecn set not-ect")
	bleach(lab.NodeISP, "home", "ip dscp 45 ip dscp set 0", "ip dscp ef ip dscp set 0", "ip ecn ce ip ecn set not-ect")
	bleach(lab.NodeISP, "net", "ip ecn ce ip ecn set not-ect")
	r = trace(t, nil, lab.ServerAddr, "--marks", "--load", lab.Server(), "--direction", "up", "--seconds", "10")
	m := r.Marks
	want := []path.MarkChange{{Mark: "EF", From: "EF", To: "CS0", After: 1, Hop: 2, Address: "10.2.0.1"}, {Mark: "ECT(1)", From: "ECT(1)", To: "Not-ECT", After: 1, Hop: 2, Address: "10.2.0.1"}}
	if m == nil || !slices.Equal(m.Changes, want) {
		t.Fatalf("%+v, want %+v", m, want)
	}
	for _, x := range [][]string{{"EF, up", "CS0"}, {"NQB, down", "CS0"}, {"CE, down", "Not-ECT"}, {"CE, up", "Not-ECT"}, {"ECT(1), up", "Not-ECT"}} {
		if !has(m.Findings, reason.MarkServerChanged, x...) {
			t.Errorf("no %q in %v", x, reason.Texts(m.Findings))
		}
	}
	if !has(m.Findings, reason.MarkServerKept, "NQB, up") {
		t.Errorf("NQB arrives at the server: %v", reason.Texts(m.Findings))
	}
	for _, code := range []reason.Code{reason.MarksTellNothing, reason.MarksReadHere, reason.MarksNoL4S, reason.MarksNoECNUp, reason.MarksNoECNDown} {
		if !has(m.Follows, code) {
			t.Errorf("no %s in %v", code, reason.Texts(m.Follows))
		}
	}
}

// A modem with L4S (dualpi2, RFC 9332) marks CE at ECT(1) under load, and seldom at ECT(0).
func TestLabPathL4S(t *testing.T) {
	if !labtest.Inside(t, hostAlone()) {
		return
	}
	if err := addQdisc(lab.NodeModem, "m1", 1<<16|1, "dualpi2"); errors.Is(err, unix.ENOENT) {
		t.Skip("SKIPPED: this kernel has no dualpi2; build it with CONFIG_NET_SCH_DUALPI2")
	} else if err != nil {
		t.Fatal(err)
	}
	r := trace(t, nil, lab.ServerAddr, "--marks", "--load", lab.Server(), "--direction", "up")
	t.Logf("under load: %+v", r.Marks.Loaded)
	if !has(r.Marks.Findings, reason.MarkL4S, "up") || !has(r.Marks.Follows, reason.MarksL4SBeyond) {
		t.Errorf("%v", reason.Texts(r.Marks.Findings))
	}
}

// addQdisc adds a queue discipline with its defaults below a class. tc(8) of Debian does not
// know each that a kernel has.
func addQdisc(node, device string, parent uint32, kind string) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its namespace
		done <- func() error {
			ns, err := os.Open("/run/netns/" + node)
			if err != nil {
				return err
			}
			defer ns.Close()
			if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
				return err
			}
			fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			dev, err := net.InterfaceByName(device)
			if err != nil {
				return err
			}
			// nlmsghdr, tcmsg (rtnetlink(7)), and TCA_KIND.
			b := make([]byte, unix.SizeofNlMsghdr+20)
			binary.NativeEndian.PutUint16(b[4:], unix.RTM_NEWQDISC)
			binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK|unix.NLM_F_CREATE|unix.NLM_F_REPLACE)
			binary.NativeEndian.PutUint32(b[20:], uint32(dev.Index))
			binary.NativeEndian.PutUint32(b[28:], parent)
			name := append([]byte(kind), 0)
			b = binary.NativeEndian.AppendUint16(b, uint16(4+len(name)))
			b = binary.NativeEndian.AppendUint16(b, unix.TCA_KIND)
			b = append(b, name...)
			b = append(b, make([]byte, (4-len(b)%4)%4)...)
			binary.NativeEndian.PutUint32(b, uint32(len(b)))
			if err := unix.Sendto(fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
				return err
			}
			reply := make([]byte, 4096)
			n, _, err := unix.Recvfrom(fd, reply, 0)
			if err != nil {
				return err
			}
			if code := int32(binary.NativeEndian.Uint32(reply[unix.SizeofNlMsghdr:n])); code != 0 {
				return unix.Errno(-code)
			}
			return nil
		}()
	}()
	return <-done
}

// Our shapers leave ECT(1) and CE as they are, both ways: by day CAKE, and HTB with fq_codel, at
// night every queue that Linux has. A queue that marks CE under load does what ECN is for.
func TestLabShapersPassECN(t *testing.T) {
	if !labtest.Inside(t, hostAlone()) {
		return
	}
	wake(t, lab.ServerAddr)
	file := filepath.Join(t.TempDir(), "plan.json")
	all := [][]string{{"--aqm", "cake"}, {"--aqm", "fq_codel"}}
	if labtest.Long() {
		all = append(all, [][]string{{"--aqm", "fifo"}, {"--aqm", "cake", "--classes", "off"}, {"--aqm", "fq_codel", "--classes", "off"}, {"--aqm", "cake", "--side", "lan"}}...)
	}
	for _, args := range all {
		run(t.Context(), t, lab.NodeRouter, "sh", "-c", labtest.Unbloat()+" plan --here --wan wan --lan lan --down 10mbit --up 2mbit --json "+strings.Join(args, " ")+" > "+file)
		run(t.Context(), t, lab.NodeRouter, labtest.Unbloat(), "apply", "--yes", file)
		m := trace(t, nil, lab.ServerAddr, "--marks", "--load", lab.Server(), "--idle", "5", "--seconds", "5").Marks
		if m == nil || len(m.Server) != 4 {
			t.Fatalf("%v: %+v", args, m)
		}
		for _, mark := range []string{"ECT(1)", "CE"} {
			for _, direction := range []string{"up", "down"} {
				if !has(m.Findings, reason.MarkServerKept, mark+", "+direction) {
					t.Errorf("%v: %s, %s: %v", args, mark, direction, reason.Texts(m.Findings))
				}
			}
		}
		run(t.Context(), t, lab.NodeRouter, labtest.Unbloat(), "revert", "--wan", "wan")
	}
}
