package main

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	kept "unbloat/internal/daemon/config"
	"unbloat/internal/platform/fake"
	"unbloat/internal/platform/linux"
)

// newLinux returns a Linux router in memory whose programs are in PATH, used by
// root.
func newLinux(t *testing.T) (*stage, *fake.Linux) {
	t.Helper()
	f := fake.NewLinux()
	f.Files["/proc/self/status"] = "CapEff:\t000001ffffffffff\n"
	return newStage(t, f.Machine, f, f.Text), f
}

// wants runs the program and expects an exit code, and words in the output.
func (s *stage) wants(t *testing.T, code int, says string, args ...string) string {
	t.Helper()
	out, is := s.run(t, append(args, "--for", "linux")...)
	if is != code || !strings.Contains(out, says) {
		t.Errorf("%q: exit %d, want %d with %q; it says\n%s", args, is, code, says, out)
	}
	return out
}

// byHand runs a command on the router, as a person would.
func (s *stage) byHand(t *testing.T, line string) {
	t.Helper()
	s.Lock()
	defer s.Unlock()
	if _, said, err := s.router.Run(t.Context(), strings.Fields(line), nil); err != nil {
		t.Fatalf("%s: %s", line, said)
	}
}

// TestNoAQM: on a kernel without CAKE and FQ-CoDel apply names what is missing
// and what installs it, and changes nothing. A FIFO must be asked for.
func TestNoAQM(t *testing.T) {
	s, f := newLinux(t)
	f.Kernel.Missing = []string{"cake", "fq_codel"}
	f.Files["/etc/os-release"] = "ID=ubuntu\n"
	start := s.Text()
	rates := []string{"--down", "20mbit", "--up", "4mbit", "--wan", "wan", "--lan", "lan"}
	apply := append([]string{"apply", "--yes"}, rates...)
	out := s.wants(t, exitPrecondition, "no cake (module sch_cake) and no fq_codel (module sch_fq_codel)", apply...)
	for _, says := range []string{"apt-get install linux-modules-extra-", "--aqm fifo"} {
		if !strings.Contains(out, says) {
			t.Errorf("it does not say %q: %s", says, out)
		}
	}
	s.wants(t, exitPrecondition, "no cake (module sch_cake)", append(apply, "--aqm", "cake")...)
	s.wants(t, exitPrecondition, "no-aqm", "doctor", "--json", "--wan", "wan")
	if s.Text() != start {
		t.Error("it was changed all the same")
	}
	s.wants(t, exitDone, "bfifo", append(apply, "--aqm", "fifo")...)
	s.wants(t, exitDone, "as it was before", "revert")
	f.Kernel.Missing = []string{"cake"}
	s.wants(t, exitDone, "fq_codel", apply...)
}

// TestContradictoryPlan: a plan file that says two things is refused before anything is
// run or locked, and what is said of it is harmless to a terminal.
func TestContradictoryPlan(t *testing.T) {
	s, _ := newLinux(t)
	out, code := s.run(t, "plan", "--down", "20mbit", "--up", "4mbit", "--wan", "wan", "--lan", "lan", "--json", "--for", "linux")
	var text string
	if text = out[strings.Index(out, "{"):]; code != exitDone {
		t.Fatal(out)
	}
	start, file := s.Text(), filepath.Join(t.TempDir(), "plan.json")
	for _, c := range [][3]string{
		{`"wan": "wan",`, `"wan": "wan9",`, `up.device: is "wan", but wan is "wan9"`},
		{`"lan": "lan",`, `"lan": "lan9",`, `basis.facts.lan: is "lan", but lan is "lan9"`},
		{`"aqm": "cake",`, `"aqm": "fq_codel",`, `up.aqm: is "cake", but aqm is "fq_codel"`},
		{`"wan": "wan",`, `"wan": "wan", "wan": "wan",`, `wan: is there twice`},
		{`"platform": "linux",`, `"platform": "\u001b[2Jlinux\u202e\nunbloat: Applied to wan, read back and kept.",`, `it is for "\x1b[2Jlinux\u202e\nunbloat`},
	} {
		if err := os.WriteFile(file, []byte(strings.Replace(text, c[0], c[1], 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		out := s.wants(t, exitUsage, c[2], "apply", file, "--yes")
		if strings.ContainsAny(out, "\x1b\u202e") || strings.Contains(out, "\nunbloat: Applied") {
			t.Errorf("it prints what is in the file: %q", out)
		}
	}
	if left, _ := os.ReadDir(s.state); s.Text() != start || len(left) > 0 {
		t.Errorf("it leaves %v, and\n%s", left, s.Text())
	}
}

// TestDrift: status and doctor report how the router differs from what was
// applied, and name a command that repairs it.
func TestDrift(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: it takes long; `make test` runs it")
	}
	s, _ := newLinux(t)
	again := "unbloat apply --again --yes --wan wan"
	s.wants(t, exitPrecondition, "nothing was kept here", "apply", "--again", "--yes")
	s.wants(t, exitDone, "Applied to wan", "apply", "--yes", "--shape-down", "20mbit", "--shape-up", "4mbit", "--wan", "wan", "--lan", "lan", "--aqm", "fq_codel")
	applied := s.Text()
	s.wants(t, exitUsage, "--again", "apply", "--again", "--shape-up", "4mbit")
	mended := func(args ...string) {
		t.Helper()
		s.wants(t, exitDone, "Applied to wan", append([]string{"apply", "--again", "--yes"}, args...)...)
		s.wants(t, exitDone, "", "status")
		s.wants(t, exitDone, "nothing was run", "apply", "--again", "--yes", "--wan", "wan")
		if got := s.Text(); got != applied {
			t.Errorf("mended, it is\n%s\nit was\n%s", got, applied)
		}
	}
	if out := s.wants(t, exitDone, "kept at", "status"); strings.Contains(out, "WARNING") {
		t.Errorf("nobody touched it:\n%s", out)
	}
	s.byHand(t, "tc qdisc del dev wan root")
	for _, says := range []string{"wan: qdisc htb b10a: is missing", "To put it back: " + again, "what is there is not what was applied; put it back with: " + again} {
		s.wants(t, exitFailed, says, "status")
	}
	s.wants(t, exitFailed, `"mend":"`+again, "status", "--json")
	s.wants(t, exitPrecondition, "wan: qdisc htb b10a: is missing", "doctor", "--wan", "wan", "--lan", "lan")
	s.wants(t, exitDone, "is not what was applied", "why", "udp 10.1.0.2:5004 > 203.0.113.9:5004")
	mended("--wan", "wan")

	s.byHand(t, "ip link del dev ifb4wan")
	s.wants(t, exitFailed, "ifb4wan: the device is missing", "status")
	mended()

	s.byHand(t, "ethtool -K wan generic-segmentation-offload on")
	s.wants(t, exitFailed, "generic-segmentation-offload is on, not off", "status")
	mended()

	s.byHand(t, "tc qdisc del dev wan root")
	s.byHand(t, "tc qdisc add dev wan root handle 8001: tbf rate 3mbit burst 5000 limit 30000")
	s.wants(t, exitFailed, again+" --replace", "status")
	s.wants(t, exitPrecondition, "--replace", "apply", "--again", "--yes")
	s.wants(t, exitDone, "Applied to wan", "apply", "--again", "--yes", "--replace")
	s.wants(t, exitDone, "", "status")

	s.wants(t, exitPrecondition, "there is no such interface; name one of wan, lan", "status", "--wan", "nope")
}

// TestInterfaceNames: an interface may be called by any of its names, also in a plan that
// was made where nobody could look.
func TestInterfaceNames(t *testing.T) {
	s, f := newLinux(t)
	f.Kernel.Devices[1].AltNames = []string{"averyverylongname0", "enp9s0f1"}
	f.Kernel.Devices[2].AltNames = []string{"home0"}
	start := s.Text()
	rates := []string{"--shape-down", "20mbit", "--shape-up", "4mbit"}
	apply := append([]string{"apply", "--yes", "--wan", "enp9s0f1", "--lan", "home0"}, rates...)
	s.wants(t, exitDone, "Applied to wan", apply...)
	applied := s.Text()
	s.wants(t, exitDone, "wan", "status", "--wan", "averyverylongname0")
	s.wants(t, exitDone, "wan is as it was before", "revert", "--wan", "enp9s0f1")
	file := filepath.Join(t.TempDir(), "plan.json")
	out := s.wants(t, exitDone, `"wan": "enp9s0f1"`, "plan", "--wan", "enp9s0f1", "--lan", "home0", "--down", "20mbit", "--up", "4mbit", "--json")
	if err := os.WriteFile(file, []byte(out), 0o600); err != nil {
		t.Fatal(err)
	}
	s.wants(t, exitDone, "Applied to wan", "apply", "--yes", file)
	s.wants(t, exitDone, "wan is as it was before", "revert")
	if s.Text() != start || applied == start {
		t.Errorf("reverted, it is\n%s\nbefore:\n%s", s.Text(), start)
	}
	_, err := planOf(t.Context(), &router{driver: linux.Driver(), runner: f}, kept.WAN{Interface: "enp9s0f1"})
	if err == nil || !strings.Contains(err.Error(), "it is another name of wan; name wan in the configuration") {
		t.Errorf("the daemon's line: %v", err)
	}
}

// TestMultiqueue: mq whose queues hold back nothing is nobody's shaper, so it is in
// nobody's way, and comes back. --replace is advised where it would not refuse.
func TestMultiqueue(t *testing.T) {
	s, f := newLinux(t)
	f.Kernel.Devices[1].Queues = 4
	apply := []string{"apply", "--yes", "--wan", "wan", "--lan", "lan", "--shape-down", "20mbit", "--shape-up", "4mbit"}
	for _, by := range []string{"tc qdisc add dev wan root handle 1: mq", "tc qdisc add dev wan parent 1:2 handle 12: fq_codel limit 900 flows 512 quantum 300"} {
		s.byHand(t, by)
		start := s.Text()
		s.wants(t, exitDone, "Applied to wan", apply...)
		s.wants(t, exitDone, "as it was before", "revert")
		if s.Text() != start {
			t.Errorf("%s: reverted, it is\n%s\nbefore:\n%s", by, s.Text(), start)
		}
	}
	s.byHand(t, "tc qdisc add dev wan parent 1:3 handle 13: tbf rate 3mbit burst 5000 limit 30000")
	start := s.Text()
	s.wants(t, exitPrecondition, "--replace", apply...)
	s.wants(t, exitDone, "Applied to wan", append(apply, "--replace")...)
	s.wants(t, exitDone, "as it was before", "revert")
	f.Kernel.Missing = []string{"unshare"}
	for _, args := range [][]string{apply, append(apply, "--replace")} {
		if out := s.wants(t, exitPrecondition, "it could not be put back exactly", args...); strings.Contains(out, "--replace") {
			t.Errorf("it advises what is refused: %s", out)
		}
	}
	if out := s.wants(t, exitPrecondition, "it could not be put back exactly", "doctor", "--json", "--wan", "wan"); strings.Contains(out, "--replace") {
		t.Errorf("doctor advises what is refused: %s", out)
	}
	if s.Text() != start {
		t.Errorf("it is\n%s\nbefore:\n%s", s.Text(), start)
	}
}

// TestGuess: a preview by a user who may not test the kernel's features says
// that it guesses. A preview by root does not.
func TestGuess(t *testing.T) {
	s, f := newLinux(t)
	f.Kernel.Missing = []string{"cake"}
	preview := []string{"apply", "--dry-run", "--shape-down", "20mbit", "--shape-up", "4mbit", "--wan", "wan", "--lan", "lan"}
	if out := s.wants(t, exitDone, "fq_codel", preview...); strings.Contains(out, "guess") {
		t.Errorf("root's preview: %s", out)
	}
	unshare := f.Tools["unshare"]
	s.Lock()
	f.Files["/proc/self/status"] = "CapEff:\t0000000000000000\n"
	f.Tools["unshare"] = fake.Tool{Run: func([]string, []byte) (string, error) {
		return "", errors.New("unshare: unshare failed: Operation not permitted")
	}}
	s.Unlock()
	out := s.wants(t, exitDone, "This is a guess: what the kernel has could not be tried", preview...)
	if !strings.Contains(out, "cake") || !strings.Contains(out, "Operation not permitted") {
		t.Errorf("it assumes no CAKE, or does not say why it guesses: %s", out)
	}
	s.wants(t, exitDone, `"guess":"what the kernel has`, append(preview, "--json")...)
	s.wants(t, exitPrecondition, "this user may not configure the network", append([]string{"apply", "--yes"}, preview[2:]...)...)
	s.Lock()
	f.Tools["unshare"] = unshare
	s.Unlock()
	s.wants(t, exitDone, "This is a guess: this user may neither", preview...)
}

// TestBeforeLoad: conditions that would stop tune and prove are found before
// they contact the server.
func TestBeforeLoad(t *testing.T) {
	s, f := newLinux(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var heard atomic.Int32
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			heard.Add(1)
			c.Close()
		}
	}()
	defer l.Close()
	nowhere := filepath.Join(t.TempDir(), "no", "such", "page.html")
	folder := filepath.Join(t.TempDir(), "page.html")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	tune := []string{"tune", "--server", l.Addr().String(), "--wan", "wan"}
	prove := []string{"prove", "--server", l.Addr().String(), "--wan", "wan", "--up", "4mbit"}
	wants := func(code int, says string, args ...string) {
		t.Helper()
		if out, is := s.run(t, args...); is != code || !strings.Contains(out, says) {
			t.Errorf("%q: exit %d, want %d with %q: %s", args, is, code, says, out)
		}
	}
	for _, command := range [][]string{tune, prove} {
		wants(exitPrecondition, "the loopback leads to this machine itself", append(command, "--wan", "lo")...)
		wants(exitPrecondition, "there is no such interface", append(command, "--wan", "nope")...)
		wants(exitPrecondition, "congestion control", append(command, "--cc", "no-such-control")...)
	}
	wants(exitUsage, "no such file or directory", append(tune, "--report", nowhere)...)
	wants(exitUsage, "is a directory", append(tune, "--report", folder)...)
	wants(exitUsage, "no such file or directory", "test", "--server", l.Addr().String(), "-o", nowhere)
	wants(exitPrecondition, "congestion control", "test", "--server", l.Addr().String(), "--cc", "no-such-control")
	s.Lock()
	f.Kernel.Missing = []string{"cake", "fq_codel"}
	s.Unlock()
	for _, command := range [][]string{tune, prove} {
		wants(exitPrecondition, "module sch_cake", command...)
	}
	s.Lock()
	f.Kernel.Missing, f.Files["/proc/self/status"] = nil, "CapEff:\t0000000000000000\n"
	s.Unlock()
	for _, command := range [][]string{tune, prove} {
		wants(exitPrecondition, "this user may not configure the network", command...)
	}
	if n := heard.Load(); n > 0 {
		t.Errorf("the server was asked %d times", n)
	}
	s.Lock()
	f.Files["/proc/self/status"] = "CapEff:\t000001ffffffffff\n"
	s.Unlock()
	for _, command := range [][]string{tune, prove} {
		wants(exitPrecondition, "no test server answers", command...) // the server closes the connection
	}
	if heard.Load() == 0 {
		t.Error("nothing was in the way any more, and yet the server was not asked")
	}
	if len(f.Ran) > 0 {
		t.Errorf("it changed the router: %q", f.Ran)
	}
}
