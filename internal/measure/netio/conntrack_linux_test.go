package netio

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// apart gives the test a network of its own.
func apart(t testing.TB) {
	t.Helper()
	runtime.LockOSThread() // and never unlock: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skipf("SKIPPED: a network of its own: %v; run as root", err)
	}
}

// The kernel's own entries, made by conntrack(8), are read back as they are.
func TestConnections(t *testing.T) {
	apart(t)
	for _, args := range []string{
		"-I -s 192.168.1.7 -d 198.51.100.1 -r 198.51.100.1 -q 203.0.113.2 -p tcp --sport 50000 --dport 443 --reply-port-src 443 --reply-port-dst 61000 --state ESTABLISHED -t 600 -u SEEN_REPLY -m 0x03000000",
		"-I -s 198.51.100.7 -d 203.0.113.2 -r 192.168.1.80 -q 198.51.100.7 -p udp --sport 4444 --dport 5353 --reply-port-src 53 --reply-port-dst 4444 -t 600",
		"-I -s 2001:db8:1::7 -d 2001:db8:9::1 -r 2001:db8:9::1 -q 2001:db8:1::7 -p udp --sport 1 --dport 2 --reply-port-src 2 --reply-port-dst 1 -t 600",
	} {
		if out, err := exec.Command("conntrack", strings.Fields(args)...).CombinedOutput(); err != nil {
			t.Skipf("SKIPPED: conntrack %s: %v: %s (Debian: apt install conntrack, as root)", args, err, out)
		}
	}
	got := connections(t)
	ap := netip.MustParseAddrPort
	for _, want := range []Connection{
		{Protocol: 6, From: ap("192.168.1.7:50000"), To: ap("198.51.100.1:443"), Answers: ap("198.51.100.1:443"), AnswersTo: ap("203.0.113.2:61000"), Answered: true, Mark: 0x03000000},
		{Protocol: 17, From: ap("198.51.100.7:4444"), To: ap("203.0.113.2:5353"), Answers: ap("192.168.1.80:53"), AnswersTo: ap("198.51.100.7:4444")},
		{Protocol: 17, From: ap("[2001:db8:1::7]:1"), To: ap("[2001:db8:9::1]:2"), Answers: ap("[2001:db8:9::1]:2"), AnswersTo: ap("[2001:db8:1::7]:1")},
	} {
		is := got[want.From]
		is.ID, is.Counted, is.Sent, is.Returned, is.Packets = 0, false, 0, 0, 0
		if is != want {
			t.Errorf("%+v\nwant %+v", is, want)
		}
	}
	if len(got) != 3 {
		t.Errorf("%d connections", len(got))
	}
}

func connections(t testing.TB) map[netip.AddrPort]Connection {
	t.Helper()
	c, err := OpenConnections()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	out := map[netip.AddrPort]Connection{}
	if err := c.Each(func(x Connection) { out[x.From] = x }); err != nil {
		t.Fatal(err)
	}
	return out
}

// connect makes n entries in the kernel.
func connect(t testing.TB, n int) {
	t.Helper()
	c, err := OpenConnections()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for i := range n {
		tuple := func(src, dst uint32, sport, dport uint16) []byte {
			ip := appendAttribute(nil, ctIPv4Src, binary.BigEndian.AppendUint32(nil, src))
			ip = appendAttribute(ip, ctIPv4Dst, binary.BigEndian.AppendUint32(nil, dst))
			proto := appendAttribute(nil, ctProtoNum, []byte{unix.IPPROTO_UDP})
			proto = appendAttribute(proto, ctSrcPort, binary.BigEndian.AppendUint16(nil, sport))
			proto = appendAttribute(proto, ctDstPort, binary.BigEndian.AppendUint16(nil, dport))
			out := appendAttribute(nil, ctTupleIP|unix.NLA_F_NESTED, ip)
			return appendAttribute(out, ctTupleProto|unix.NLA_F_NESTED, proto)
		}
		home, far, port := uint32(0xc0a80100+i%250), uint32(0xc6336400)+uint32(i>>15), uint16(i&0x7fff)+1
		body := []byte{unix.AF_INET, 0, 0, 0}
		body = appendAttribute(body, ctTupleOrig|unix.NLA_F_NESTED, tuple(home, far, port, 443))
		body = appendAttribute(body, ctTupleReply|unix.NLA_F_NESTED, tuple(far, home, 443, port))
		body = appendAttribute(body, ctStatus, binary.BigEndian.AppendUint32(nil, 1<<3)) // confirmed
		const ctTimeout = 7
		body = appendAttribute(body, ctTimeout, binary.BigEndian.AppendUint32(nil, 600))
		const ctNew = unix.NFNL_SUBSYS_CTNETLINK << 8
		err := c.c.ask(ctNew, unix.NLM_F_ACK|unix.NLM_F_CREATE, body, func(uint16, []byte) {})
		if errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.EPERM) {
			t.Skipf("SKIPPED: the kernel has room for %d connections: %v", i, err)
		}
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
	}
}

// BenchmarkConnections100000 reads 100,000 connections from the kernel. However many
// they are, it takes memory for 64 KiB of them.
func BenchmarkConnections100000(b *testing.B) {
	apart(b)
	connect(b, 100_000)
	c, err := OpenConnections()
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		if err := c.Each(func(Connection) { n++ }); err != nil || n != 100_000 {
			b.Fatal(n, err)
		}
	}
}

// What is malformed is left out.
func FuzzConnection(f *testing.F) {
	body := []byte{unix.AF_INET, 0, 0, 0}
	f.Add(appendAttribute(body, ctTupleOrig|unix.NLA_F_NESTED, appendAttribute(nil, ctTupleIP, make([]byte, 20))))
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, ok := parseConnection(b); ok && (!c.From.Addr().IsValid() || !c.Answers.Addr().IsValid()) {
			t.Errorf("%+v", c)
		}
	})
}
