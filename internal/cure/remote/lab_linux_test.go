package remote_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
	"golang.org/x/sys/unix"

	"unbloat/internal/cure/tune"
	"unbloat/lab"
	"unbloat/testkit/labtest"
	"unbloat/unit"
)

// A gate is the lab's router with an SSH server, as seen from a machine of the
// home.
type gate struct {
	t     *testing.T
	keys  *labKeys
	flags []string
	state string
}

// newGate starts sshd in the router, where the test runs.
func newGate(t *testing.T) *gate {
	t.Helper()
	dir := t.TempDir()
	k := newLabKeys(t, dir)
	k.serve(t, lab.NodeRouter, "10.1.0.1:2222")
	g := &gate{t: t, keys: k, state: filepath.Join(dir, "state")}
	g.flags = []string{"--router", "ssh://root@10.1.0.1:2222", "--identity", k.identity, "--known-hosts", k.known, "--state-dir", g.state}
	return g
}

// labKeys are the keys of SSH servers inside the guest.
type labKeys struct {
	dir      string
	host     ssh.PublicKey
	identity string // file of the user's private key
	known    string // file of the host keys that the user knows
}

func newLabKeys(t *testing.T, dir string) *labKeys {
	t.Helper()
	k := &labKeys{dir: dir, host: newKey(t, filepath.Join(dir, "host")), identity: filepath.Join(dir, "user"), known: filepath.Join(dir, "known")}
	write(t, filepath.Join(dir, "authorized"), string(ssh.MarshalAuthorizedKey(newKey(t, k.identity))))
	return k
}

// run is the directory that a node with sshd has as its /run.
func (k *labKeys) run(node string) string { return filepath.Join(k.dir, "run-"+node) }

// watchdogs returns what watchdogs have left behind on a node.
func (k *labKeys) watchdogs(node string) []string {
	found, _ := filepath.Glob(k.run(node) + "/unbloat-watchdog-*")
	return found
}

// serve starts sshd at an address of a node, until the test ends.
func (k *labKeys) serve(t *testing.T, node, address string) {
	t.Helper()
	const sshd = "/usr/sbin/sshd"
	if _, err := os.Stat(sshd); err != nil {
		t.Skip("SKIPPED: there is no sshd; install openssh-server")
	}
	for _, dir := range []string{"/run/sshd", k.run(node)} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	known, err := os.ReadFile(k.known)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	write(t, k.known, string(known)+knownhosts.Line([]string{knownhosts.Normalize(address)}, k.host)+"\n")
	config := filepath.Join(k.dir, "config-"+node)
	write(t, config, fmt.Sprintf("ListenAddress %s\nHostKey %s/host\nAuthorizedKeysFile %s/authorized\nPidFile none\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin prohibit-password\nUseDNS no\nSetEnv SHLVL=2\nSubsystem sftp internal-sftp\n", address, k.dir, k.dir))
	var log bytes.Buffer
	cmd := labtest.In(context.Background(), node, labtest.Own("/run", k.run(node), []string{"/run/sshd", filepath.Dir(lab.GuestUnbloat)}, sshd, "-D", "-e", "-f", config)...)
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("sshd of %s: %s", node, log.String())
		}
	})
	waitFor(t, "sshd of "+node, func() bool {
		out, err := labtest.In(t.Context(), node, "ss", "-Hltn", "src", address).Output()
		return err == nil && len(out) > 0
	})
}

// from returns a command that runs on a machine of the home.
func (g *gate) from(args ...string) *exec.Cmd {
	argv := append([]string{labtest.Unbloat(), args[0]}, g.flags...)
	return labtest.In(g.t.Context(), "home1", append(argv, args[1:]...)...)
}

func (g *gate) run(code int, says string, args ...string) string {
	g.t.Helper()
	out, err := g.from(args...).CombinedOutput()
	is := 0
	if e, ok := err.(*exec.ExitError); ok {
		is = e.ExitCode()
	} else if err != nil {
		g.t.Fatal(err)
	}
	if is != code || !strings.Contains(string(out), says) {
		g.t.Errorf("%v: exit %d, want %d with %q; it says %s", args, is, code, says, out)
	}
	return string(out)
}

// queues returns the shapers on the router.
func queues(t *testing.T) string {
	t.Helper()
	return queuesOf(t, lab.NodeRouter, "wan", "lan")
}

// queuesOf returns the shapers in a node with these interfaces. The classes that CAKE
// and FQ-CoDel list are the flows of the moment, and left out.
func queuesOf(t *testing.T, node, wan, lan string) string {
	t.Helper()
	out := ""
	for _, line := range []string{"tc qdisc show", "tc class show dev " + wan, "tc filter show dev " + wan, "tc filter show dev " + wan + " ingress", "ip -br link", "ethtool -k " + wan, "ethtool -k " + lan, "nft -s -t list ruleset"} {
		words := strings.Fields(line)
		b, err := labtest.In(t.Context(), node, words...).CombinedOutput()
		if err != nil && words[1] == "qdisc" {
			t.Fatalf("%s: %v: %s", line, err, b)
		}
		out += "$ " + line + "\n"
		for l := range strings.Lines(string(b)) {
			if !strings.HasPrefix(l, "class cake ") && !strings.HasPrefix(l, "class fq_codel ") {
				out += l
			}
		}
	}
	return out
}

// TestRouterFromHome: a machine of the home changes a real router over SSH. The
// change is kept; reverted; not confirmed while the router's clock jumps; and
// cut off in the middle.
func TestRouterFromHome(t *testing.T) {
	if !labtest.Inside(t, labtest.Options{Node: lab.NodeRouter}) {
		return
	}
	g := newGate(t)
	start := queues(t)
	g.run(0, "Nothing stands in the way", "doctor", "--wan", "wan", "--lan", "lan")
	byHand(t, "add", "dev", "wan", "root", "tbf", "rate", "4mbit", "burst", "5000", "latency", "50ms")
	g.run(0, "what leaves wan is held to 4.00 Mbit/s by tbf (not unbloat's)", "status")
	g.run(5, "in the way", "doctor", "--wan", "wan", "--lan", "lan")
	g.run(5, "--replace", "apply", "--wan", "wan", "--shape-up", "3mbit", "--yes")
	byHand(t, "del", "dev", "wan", "root")
	g.run(0, "read back and kept", "apply", "--wan", "wan", "--lan", "lan", "--shape-down", "20mbit", "--shape-up", "4mbit", "--yes")
	if q := queues(t); !strings.Contains(q, "cake") || !strings.Contains(q, "bandwidth 4Mbit") || !strings.Contains(q, "ifb4wan") {
		t.Errorf("the router has %s", q)
	}
	g.run(0, "held to 4.00 Mbit/s by cake", "status")
	g.run(5, "on the router", "apply", "--wan", "wan", "--shape-up", "3mbit", "--yes", "--persist")
	g.run(0, "as it was before", "revert")
	if q := queues(t); q != start {
		t.Errorf("reverted, it has %s\nbefore: %s", q, start)
	}
	// The change is not confirmed, and meanwhile the router's clock is set: a
	// day ahead, then two days back.
	g.run(0, "undone in 8 seconds", "apply", "--wan", "wan", "--lan", "lan", "--shape-down", "20mbit", "--shape-up", "4mbit", "--confirm", "8s", "--aqm", "fq_codel")
	for _, jump := range []time.Duration{24 * time.Hour, -48 * time.Hour, 24 * time.Hour} {
		at := unix.NsecToTimeval(time.Now().Add(jump).UnixNano())
		if err := unix.Settimeofday(&at); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if jump > 0 && queues(t) == start {
			t.Error("it was undone when the clock jumped, and not at its deadline")
		}
	}
	untilTC(t, "the router's watchdog", func() bool { return !shapedBy(t, "ifb4wan", "fq_codel") })
	waitFor(t, "the router's watchdog", func() bool { return queues(t) == start })
	g.run(5, "", "confirm")
	g.cutOff(start)
	if left := g.keys.watchdogs(lab.NodeRouter); len(left) > 0 {
		t.Errorf("watchdogs are left: %v", left)
	}
}

// shapedBy reports whether an interface of the router has a queue of a kind.
func shapedBy(t *testing.T, dev, kind string) bool {
	t.Helper()
	b, _ := exec.CommandContext(t.Context(), "tc", "qdisc", "show", "dev", dev).Output() // without the interface there is none
	return strings.Contains(string(b), kind)
}

// untilTC looks again whenever the router's queues have changed: in virtual time
// to look at intervals takes more of a processor than all that is tested.
func untilTC(t *testing.T, what string, ok func() bool) {
	t.Helper()
	news, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(news)
	if err := errors.Join(unix.Bind(news, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1 << (unix.RTNLGRP_TC - 1)}),
		unix.SetsockoptTimeval(news, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 120})); err != nil {
		t.Fatal(err)
	}
	for buffer := make([]byte, 1<<16); !ok(); {
		if _, _, err := unix.Recvfrom(news, buffer, 0); err != nil && !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.ENOBUFS) {
			t.Fatalf("waited in vain for %s: %v", what, err)
		}
	}
}

// byHand changes the router's queues as a person would.
func byHand(t *testing.T, args ...string) {
	t.Helper()
	if b, err := exec.Command("tc", append([]string{"qdisc"}, args...)...).CombinedOutput(); err != nil {
		t.Fatalf("tc qdisc %v: %v: %s", args, err, b)
	}
}

// cutOff cuts the connection to the router in the middle of a change.
func (g *gate) cutOff(start string) {
	t := g.t
	g.cutWhen("the first queue", func() bool { return shapedBy(t, "wan", "htb") }, false, "--aqm", "fq_codel")
	g.run(0, "", "revert")
	if q := queues(t); q != start {
		t.Errorf("cut off, it has %s\nbefore: %s", q, start)
	}
}

// cutWhen applies a plan, cuts the connection when something has happened on the
// router, waits until the router has undone it and the program has given up or was
// killed, and mends the connection.
func (g *gate) cutWhen(what string, happened func() bool, kill bool, args ...string) {
	t := g.t
	t.Helper()
	link := func(args ...string) {
		argv := append([]string{"tc", "qdisc"}, args...)
		if b, err := labtest.In(t.Context(), "home1", argv...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", argv, err, b)
		}
	}
	// In virtual time commands on the router take no time, but the way to it
	// does.
	link("add", "dev", "eth0", "root", "netem", "delay", "50ms")
	cmd := g.from(append([]string{"apply", "--wan", "wan", "--lan", "lan", "--shape-down", "20mbit", "--shape-up", "4mbit", "--yes"}, args...)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	untilTC(t, what, happened)
	link("change", "dev", "eth0", "root", "netem", "loss", "100%")
	cut := time.Now()
	if kill {
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	untilTC(t, "the router's watchdog", func() bool { return !happened() })
	t.Logf("cut off in the middle, the router undid it by itself after %.1f s", time.Since(cut).Seconds())
	err := cmd.Wait()
	t.Logf("the machine of the home noticed after %.1f s, and said: %s", time.Since(cut).Seconds(), out.String())
	if !kill && (cmd.ProcessState.ExitCode() == 0 || !strings.Contains(out.String(), "the watchdog on the router undoes")) {
		t.Errorf("cut off, it ended with %v", err)
	}
	link("del", "dev", "eth0", "root")
}

// TestLostCommandInLab: the connection is cut while a command is on its way to the
// router, and comes back when the program has given up, or was killed. The command,
// which the kernel of its machine still has, must not arrive: nobody would undo it.
func TestLostCommandInLab(t *testing.T) {
	if !labtest.Inside(t, labtest.Options{Node: lab.NodeRouter}) {
		return
	}
	g := newGate(t)
	start := queues(t)
	for _, killed := range []bool{false, true} {
		g.cutWhen("the queue towards the home", func() bool { return shapedBy(t, "ifb4wan", "cake") }, killed, "--aqm", "cake")
		waitFor(t, "the router's watchdog", func() bool { return queues(t) == start })
		// A kernel tries for less than three minutes to send what a process left behind.
		news, err := exec.CommandContext(t.Context(), "timeout", "180", "tc", "monitor").Output()
		var ended *exec.ExitError
		if !errors.As(err, &ended) || ended.ExitCode() != 124 || len(news) > 0 {
			t.Errorf("killed %v: after the router had undone it, this was changed (%v): %s", killed, err, news)
		}
		if q := queues(t); q != start {
			t.Errorf("killed %v: three minutes later it has %s\nbefore: %s", killed, q, start)
		}
		g.run(0, "", "revert")
	}
}

// TestTuneFromHome: a tuning by a machine of the home, over SSH, ends at the
// same rates as one on the router, within the 2 % of two tunings.
func TestTuneFromHome(t *testing.T) {
	if !labtest.Inside(t, labtest.Options{Node: lab.NodeRouter, Server: true, Scenario: labtest.HomeAt(15*unit.MbitPerSecond, 3*unit.MbitPerSecond)}) {
		return
	}
	g := newGate(t)
	start := queues(t)
	local := exec.Command(labtest.Unbloat(), "tune", "--state-dir", t.TempDir(), "--server", lab.ServerAddr, "--wan", "wan", "--lan", "lan", "--json", "--quiet")
	own := tuned(t, local)
	if out, err := exec.Command(labtest.Unbloat(), append([]string{"revert"}, local.Args[2:4]...)...).CombinedOutput(); err != nil {
		t.Fatalf("revert: %v: %s", err, out)
	}
	began := time.Now()
	far := tuned(t, g.from("tune", "--server", lab.ServerAddr, "--wan", "wan", "--lan", "lan", "--json", "--quiet"))
	t.Logf("on the router: %s down, %s up; from the home over SSH: %s down, %s up, in %.0f s",
		own.Plan.DownBps, own.Plan.UpBps, far.Plan.DownBps, far.Plan.UpBps, time.Since(began).Seconds())
	for _, x := range []struct {
		name     string
		own, far unit.Rate
	}{{"down", own.Plan.DownBps, far.Plan.DownBps}, {"up", own.Plan.UpBps, far.Plan.UpBps}} {
		if off := math.Abs(float64(x.far)/float64(x.own) - 1); off > 0.02 {
			t.Errorf("%s: %s over SSH, %s on the router itself: %.2f %% apart", x.name, x.far, x.own, off*100)
		}
	}
	if q := queues(t); !strings.Contains(q, "cake") {
		t.Errorf("the router has %s", q)
	}
	g.run(0, "as it was before", "revert")
	if q := queues(t); q != start {
		t.Errorf("reverted, it has %s\nbefore: %s", q, start)
	}
	if left := g.keys.watchdogs(lab.NodeRouter); len(left) > 0 {
		t.Errorf("watchdogs are left: %v", left)
	}
}

// tuned runs a tuning, which must keep a result.
func tuned(t *testing.T, cmd *exec.Cmd) tune.Result {
	t.Helper()
	var r tune.Result
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		t.Fatalf("tune: %v: %s", err, exit.Stderr)
	}
	if err != nil || json.Unmarshal(out, &r) != nil || !r.Kept {
		t.Fatalf("tune: %v: %s", err, out)
	}
	return r
}

// TestClassesFromHome: a router without unbloat gets the classes over SSH. Its own tc(8)
// loads the programs, for two WANs each with tables of its own; they classify both directions; what
// is applied is known again; `status` and `why` say what they can't read; and a revert, and the
// router's own undo, leave nothing.
func TestClassesFromHome(t *testing.T) {
	if !labtest.Inside(t, labtest.Options{Node: lab.NodeRouter}) {
		return
	}
	g := newGate(t)
	loaded := func() string {
		out, _ := labtest.In(t.Context(), lab.NodeRouter, "sh", "-c", "ls "+g.keys.run(lab.NodeRouter)+"/unbloat-bpf").Output()
		return strings.TrimSpace(string(out))
	}
	byIP := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil { // also when the test's context is over
			t.Fatalf("ip %v: %v: %s", args, err, out)
		}
	}
	for _, pair := range [][2]string{{"wan2", "far2"}, {"lan2", "near2"}} {
		byIP("link", "add", pair[0], "type", "veth", "peer", "name", pair[1])
		byIP("link", "set", pair[0], "up")
		byIP("link", "set", pair[1], "up")
		t.Cleanup(func() { byIP("link", "del", pair[0]) })
	}
	start := queues(t)
	apply := func(wan, lan string, more ...string) []string {
		return append([]string{"apply", "--wan", wan, "--lan", lan, "--shape-down", "20mbit", "--shape-up", "4mbit"}, more...)
	}
	g.run(0, "read back and kept", apply("wan", "lan", "--yes")...)
	first := loaded()
	filters, _ := exec.CommandContext(t.Context(), "sh", "-c", "tc filter show dev wan; tc filter show dev ifb4wan; tc filter show dev lan ingress").CombinedOutput()
	for _, what := range []string{"up", "out", "down", "lan"} {
		if !strings.Contains(string(filters), first+".o:[tc/"+what+"]") {
			t.Errorf("the program %s of %q is not there: %s", what, first, filters)
		}
	}
	if out, err := labtest.In(t.Context(), "home1", "ping", "-q", "-i", "0.05", "-c", "20", lab.ServerAddr).CombinedOutput(); err != nil {
		t.Errorf("ping: %v: %s", err, out)
	}
	for _, device := range []string{"wan", "ifb4wan"} {
		if n := inFirstTin(t, device); n < 20 {
			t.Errorf("%s: the tin of calls and names has had %d packets, not 20 pings", device, n)
		}
	}
	g.run(0, "there is nothing to run", apply("wan", "lan", "--dry-run")...)
	g.run(0, "can't be read over SSH", "status", "--wan", "wan")
	g.run(0, "can't be read over SSH", "why", "--wan", "wan", "udp 10.1.0.2:5004 > 203.0.113.9:5004")
	g.run(0, "read back and kept", apply("wan2", "lan2", "--yes")...)
	if both := strings.Fields(loaded()); len(both) != 2 || !strings.Contains(loaded(), first) {
		t.Errorf("two WANs have the programs %q; the first had %q", both, first)
	}
	g.run(0, "as it was before", "revert", "--wan", "wan2")
	if left := loaded(); left != first {
		t.Errorf("after the second WAN's revert %q is there, not %q", left, first)
	}
	g.run(0, "as it was before", "revert", "--wan", "wan")
	if q := queues(t); q != start || loaded() != "" {
		t.Errorf("reverted, it has %s and the programs %q\nbefore: %s", q, loaded(), start)
	}
	g.run(0, "undone in 8 seconds", apply("wan", "lan", "--confirm", "8s")...)
	waitFor(t, "the router's watchdog", func() bool { return queues(t) == start && loaded() == "" })
}

// inFirstTin is how many packets the first tin of a CAKE has sent.
func inFirstTin(t *testing.T, device string) int {
	t.Helper()
	var seen []struct {
		Tins []struct {
			Packets int `json:"sent_packets"`
		} `json:"tins"`
	}
	out, err := exec.CommandContext(t.Context(), "tc", "-s", "-j", "qdisc", "show", "dev", device, "root").Output()
	if err != nil || json.Unmarshal(out, &seen) != nil || len(seen) != 1 || len(seen[0].Tins) == 0 {
		t.Fatalf("%s: %v: %s", device, err, out)
	}
	return seen[0].Tins[len(seen[0].Tins)-1].Packets
}
