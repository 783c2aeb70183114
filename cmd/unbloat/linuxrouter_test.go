package main

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"unbloat/internal/cure/platform/linux"
	kept "unbloat/internal/keep/config"
	"unbloat/internal/show/cli"
	"unbloat/testkit/await"
	"unbloat/testkit/fake"
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
	await.NotShort(t)
	s, f := newLinux(t)
	f.Kernel.Missing = []string{"cake", "fq_codel"}
	f.Files["/etc/os-release"] = "ID=ubuntu\n"
	start := s.Text()
	rates := []string{"--down", "20mbit", "--up", "4mbit", "--wan", "wan", "--lan", "lan"}
	apply := append([]string{"apply", "--yes"}, rates...)
	out := s.wants(t, cli.Precondition, "no cake (module sch_cake) and no fq_codel (module sch_fq_codel)", apply...)
	for _, says := range []string{"apt-get install linux-modules-extra-", "--aqm fifo"} {
		if !strings.Contains(out, says) {
			t.Errorf("it does not say %q: %s", says, out)
		}
	}
	s.wants(t, cli.Precondition, "no cake (module sch_cake)", append(apply, "--aqm", "cake")...)
	s.wants(t, cli.Precondition, "no-aqm", "doctor", "--json", "--wan", "wan")
	if s.Text() != start {
		t.Error("it was changed all the same")
	}
	s.wants(t, cli.Done, "bfifo", append(apply, "--aqm", "fifo")...)
	s.wants(t, cli.Done, "as it was before", "revert")
	f.Kernel.Missing = []string{"cake"}
	s.wants(t, cli.Done, "fq_codel", apply...)
}

// TestContradictoryPlan: a plan file that says two things is refused before anything is
// run or locked, and what is said of it is harmless to a terminal.
func TestContradictoryPlan(t *testing.T) {
	s, _ := newLinux(t)
	out, code := s.run(t, "plan", "--down", "20mbit", "--up", "4mbit", "--wan", "wan", "--lan", "lan", "--json", "--for", "linux")
	var text string
	if text = out[strings.Index(out, "{"):]; code != cli.Done {
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
		out := s.wants(t, cli.Usage, c[2], "apply", file, "--yes")
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
	await.NotShort(t)
	s, _ := newLinux(t)
	again := "unbloat apply --again --yes --wan wan"
	s.wants(t, cli.Precondition, "nothing was kept here", "apply", "--again", "--yes")
	s.wants(t, cli.Done, "Applied to wan", "apply", "--yes", "--shape-down", "20mbit", "--shape-up", "4mbit", "--wan", "wan", "--lan", "lan", "--aqm", "fq_codel")
	applied := s.Text()
	s.wants(t, cli.Usage, "--again", "apply", "--again", "--shape-up", "4mbit")
	mended := func(args ...string) {
		t.Helper()
		s.wants(t, cli.Done, "Applied to wan", append([]string{"apply", "--again", "--yes"}, args...)...)
		s.wants(t, cli.Done, "", "status")
		s.wants(t, cli.Done, "nothing was run", "apply", "--again", "--yes", "--wan", "wan")
		if got := s.Text(); got != applied {
			t.Errorf("mended, it is\n%s\nit was\n%s", got, applied)
		}
	}
	if out := s.wants(t, cli.Done, "kept at", "status"); strings.Contains(out, "WARNING") {
		t.Errorf("nobody touched it:\n%s", out)
	}
	s.byHand(t, "tc qdisc del dev wan root")
	for _, says := range []string{"wan: qdisc htb b10a: is missing", "To put it back: " + again, "what is there is not what was applied; put it back with: " + again} {
		s.wants(t, cli.Failed, says, "status")
	}
	s.wants(t, cli.Failed, `"mend":"`+again, "status", "--json")
	s.wants(t, cli.Precondition, "wan: qdisc htb b10a: is missing", "doctor", "--wan", "wan", "--lan", "lan")
	s.wants(t, cli.Done, "is not what was applied", "why", "udp 10.1.0.2:5004 > 203.0.113.9:5004")
	mended("--wan", "wan")

	s.byHand(t, "ip link del dev ifb4wan")
	s.wants(t, cli.Failed, "ifb4wan: the device is missing", "status")
	mended()

	s.byHand(t, "ethtool -K wan generic-segmentation-offload on")
	s.wants(t, cli.Failed, "generic-segmentation-offload is on, not off", "status")
	mended()

	s.byHand(t, "tc qdisc del dev wan root")
	s.byHand(t, "tc qdisc add dev wan root handle 8001: tbf rate 3mbit burst 5000 limit 30000")
	s.wants(t, cli.Failed, again+" --replace", "status")
	s.wants(t, cli.Precondition, "--replace", "apply", "--again", "--yes")
	s.wants(t, cli.Done, "Applied to wan", "apply", "--again", "--yes", "--replace")
	s.wants(t, cli.Done, "", "status")

	s.wants(t, cli.Precondition, "there is no such interface; name one of wan, lan", "status", "--wan", "nope")
}

// TestInterfaceNames: an interface may be called by any of its names, also in a plan that
// was made where nobody could look.
func TestInterfaceNames(t *testing.T) {
	await.NotShort(t)
	s, f := newLinux(t)
	f.Kernel.Devices[1].AltNames = []string{"averyverylongname0", "enp9s0f1"}
	f.Kernel.Devices[2].AltNames = []string{"home0"}
	start := s.Text()
	rates := []string{"--shape-down", "20mbit", "--shape-up", "4mbit"}
	apply := append([]string{"apply", "--yes", "--wan", "enp9s0f1", "--lan", "home0"}, rates...)
	s.wants(t, cli.Done, "Applied to wan", apply...)
	applied := s.Text()
	s.wants(t, cli.Done, "wan", "status", "--wan", "averyverylongname0")
	s.wants(t, cli.Done, "wan is as it was before", "revert", "--wan", "enp9s0f1")
	file := filepath.Join(t.TempDir(), "plan.json")
	out := s.wants(t, cli.Done, `"wan": "enp9s0f1"`, "plan", "--wan", "enp9s0f1", "--lan", "home0", "--down", "20mbit", "--up", "4mbit", "--json")
	if err := os.WriteFile(file, []byte(out), 0o600); err != nil {
		t.Fatal(err)
	}
	s.wants(t, cli.Done, "Applied to wan", "apply", "--yes", file)
	s.wants(t, cli.Done, "wan is as it was before", "revert")
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
	await.NotShort(t)
	s, f := newLinux(t)
	f.Kernel.Devices[1].Queues = 4
	apply := []string{"apply", "--yes", "--wan", "wan", "--lan", "lan", "--shape-down", "20mbit", "--shape-up", "4mbit"}
	for _, by := range []string{"tc qdisc add dev wan root handle 1: mq", "tc qdisc add dev wan parent 1:2 handle 12: fq_codel limit 900 flows 512 quantum 300"} {
		s.byHand(t, by)
		start := s.Text()
		s.wants(t, cli.Done, "Applied to wan", apply...)
		s.wants(t, cli.Done, "as it was before", "revert")
		if s.Text() != start {
			t.Errorf("%s: reverted, it is\n%s\nbefore:\n%s", by, s.Text(), start)
		}
	}
	s.byHand(t, "tc qdisc add dev wan parent 1:3 handle 13: tbf rate 3mbit burst 5000 limit 30000")
	start := s.Text()
	s.wants(t, cli.Precondition, "--replace", apply...)
	s.wants(t, cli.Done, "Applied to wan", append(apply, "--replace")...)
	s.wants(t, cli.Done, "as it was before", "revert")
	f.Kernel.Missing = []string{"unshare"}
	for _, args := range [][]string{apply, append(apply, "--replace")} {
		if out := s.wants(t, cli.Precondition, "it could not be put back exactly", args...); strings.Contains(out, "--replace") {
			t.Errorf("it advises what is refused: %s", out)
		}
	}
	if out := s.wants(t, cli.Precondition, "it could not be put back exactly", "doctor", "--json", "--wan", "wan"); strings.Contains(out, "--replace") {
		t.Errorf("doctor advises what is refused: %s", out)
	}
	if s.Text() != start {
		t.Errorf("it is\n%s\nbefore:\n%s", s.Text(), start)
	}
}

// TestGuess: a preview by a user who may not test the kernel's features says
// that it guesses. A preview by root does not.
func TestGuess(t *testing.T) {
	await.NotShort(t)
	s, f := newLinux(t)
	f.Kernel.Missing = []string{"cake"}
	preview := []string{"apply", "--dry-run", "--shape-down", "20mbit", "--shape-up", "4mbit", "--wan", "wan", "--lan", "lan"}
	if out := s.wants(t, cli.Done, "fq_codel", preview...); strings.Contains(out, "guess") {
		t.Errorf("root's preview: %s", out)
	}
	unshare := f.Tools["unshare"]
	s.Lock()
	f.Files["/proc/self/status"] = "CapEff:\t0000000000000000\n"
	f.Tools["unshare"] = fake.Tool{Run: func([]string, []byte) (string, error) {
		return "", errors.New("unshare: unshare failed: Operation not permitted")
	}}
	s.Unlock()
	out := s.wants(t, cli.Done, "This is a guess: what the kernel has could not be tried", preview...)
	if !strings.Contains(out, "cake") || !strings.Contains(out, "Operation not permitted") {
		t.Errorf("it assumes no CAKE, or does not say why it guesses: %s", out)
	}
	s.wants(t, cli.Done, `"guess":"what the kernel has`, append(preview, "--json")...)
	s.wants(t, cli.Precondition, "this user may not configure the network", append([]string{"apply", "--yes"}, preview[2:]...)...)
	s.Lock()
	f.Tools["unshare"] = unshare
	s.Unlock()
	s.wants(t, cli.Done, "This is a guess: this user may neither", preview...)
}

// TestRatesInDoubt: apply says what it leaves unshaped, and which rates are hardly those of a
// line; doctor takes the rates of what is in force.
func TestRatesInDoubt(t *testing.T) {
	await.NotShort(t)
	s, _ := newLinux(t)
	line := []string{"--wan", "wan", "--lan", "lan"}
	preview := append([]string{"apply", "--dry-run"}, line...)
	s.wants(t, cli.Done, "Note: the upload of wan is not shaped; --up RATE says what it carries.", append(preview, "--down", "30mbit")...)
	if out := s.wants(t, cli.Done, "", append(preview, "--down", "30mbit", "--up", "5mbit")...); strings.Contains(out, "Note:") {
		t.Errorf("it doubts a usual line: %s", out)
	}
	s.wants(t, cli.Done, "Note: 28.5 Mbit/s up and 4.50 Mbit/s down may be swapped", append(preview, "--down", "5mbit", "--up", "30mbit")...)
	s.wants(t, cli.Done, "may have the wrong unit", append(preview, "--down", "30gbit", "--up", "5mbit")...)
	s.wants(t, cli.Done, "kept", append([]string{"apply", "--yes", "--down", "30mbit", "--up", "5mbit"}, line...)...)
	if out := s.wants(t, cli.Done, "", append([]string{"doctor"}, line...)...); strings.Contains(out, "no rate was given") {
		t.Errorf("doctor asks for rates that are in force: %s", out)
	}
}

// TestChangedElsewhere: where nothing was changed on this machine, status and revert name
// the routers that were changed from it.
func TestChangedElsewhere(t *testing.T) {
	s, _ := newLinux(t)
	for _, address := range []string{"ssh://root@192.168.1.1", "ssh://me@[2001:db8::1]:2222", "opnsense+https://192.168.1.2"} {
		dir := filepath.Join(s.state, journalName(address))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "wan.committed.json"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, command := range []string{"status", "revert"} {
			s.wants(t, cli.Done, "From here "+address+" was changed: unbloat "+command+" --router "+address+"\n", command)
		}
	}
}

// TestStatusSaysItFirst: status begins with a sentence; what queues have counted is for
// --verbose.
func TestStatusSaysItFirst(t *testing.T) {
	await.NotShort(t)
	s, _ := newLinux(t)
	s.wants(t, cli.Done, "kept", "apply", "--yes", "--down", "30mbit", "--up", "5mbit", "--wan", "wan", "--lan", "lan")
	first := "wan is shaped: download limited to 27.0 Mbit/s, upload limited to 4.75 Mbit/s. It was changed by unbloat, kept at "
	for command, counted := range map[string]bool{"status": false, "status --verbose": true} {
		out := s.wants(t, cli.Done, "unbloat's", strings.Fields(command)...)
		if !strings.HasPrefix(out, first) || strings.Contains(out, " packets, ") != counted {
			t.Errorf("%s says\n%s", command, out)
		}
	}
}

// TestBeforeLoad: conditions that would stop tune and prove are found before
// they contact the server.
func TestBeforeLoad(t *testing.T) {
	await.NotShort(t)
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
		wants(cli.Precondition, "the loopback leads to this machine itself", append(command, "--wan", "lo")...)
		wants(cli.Precondition, "there is no such interface", append(command, "--wan", "nope")...)
		wants(cli.Precondition, "congestion control", append(command, "--cc", "no-such-control")...)
	}
	wants(cli.Usage, "no such file or directory", append(tune, "--report", nowhere)...)
	wants(cli.Usage, "is a directory", append(tune, "--report", folder)...)
	wants(cli.Usage, "no such file or directory", "test", "--server", l.Addr().String(), "-o", nowhere)
	wants(cli.Precondition, "congestion control", "test", "--server", l.Addr().String(), "--cc", "no-such-control")
	s.Lock()
	f.Kernel.Missing = []string{"cake", "fq_codel"}
	s.Unlock()
	for _, command := range [][]string{tune, prove} {
		wants(cli.Precondition, "module sch_cake", command...)
	}
	s.Lock()
	f.Kernel.Missing, f.Files["/proc/self/status"] = nil, "CapEff:\t0000000000000000\n"
	s.Unlock()
	for _, command := range [][]string{tune, prove} {
		wants(cli.Precondition, "this user may not configure the network", command...)
	}
	if n := heard.Load(); n > 0 {
		t.Errorf("the server was asked %d times", n)
	}
	s.Lock()
	f.Files["/proc/self/status"] = "CapEff:\t000001ffffffffff\n"
	s.Unlock()
	for _, command := range [][]string{tune, prove} {
		wants(cli.Precondition, "no test server answers", command...) // the server closes the connection
	}
	if heard.Load() == 0 {
		t.Error("nothing was in the way any more, and yet the server was not asked")
	}
	if len(f.Ran) > 0 {
		t.Errorf("it changed the router: %q", f.Ran)
	}
}
