package remote_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"unbloat/internal/lab"
	"unbloat/internal/lab/labtest"
)

// A gate is the lab's router with an SSH server, as a machine of the home sees it.
type gate struct {
	t     *testing.T
	flags []string
	state string
	// before are the guards of others: the guest sees the host's /tmp.
	before []string
}

// newGate starts sshd in the router, where the test runs.
func newGate(t *testing.T) *gate {
	t.Helper()
	const sshd = "/usr/sbin/sshd"
	if _, err := os.Stat(sshd); err != nil {
		t.Skip("SKIPPED: there is no sshd; install openssh-server")
	}
	dir := t.TempDir()
	if err := os.MkdirAll("/run/sshd", 0o755); err != nil {
		t.Fatal(err)
	}
	hostKey, userKey := newKey(t, filepath.Join(dir, "host")), newKey(t, filepath.Join(dir, "user"))
	write(t, filepath.Join(dir, "authorized"), string(ssh.MarshalAuthorizedKey(userKey)))
	write(t, filepath.Join(dir, "known"), knownhosts.Line([]string{"[10.1.0.1]:2222"}, hostKey)+"\n")
	write(t, filepath.Join(dir, "config"), fmt.Sprintf("Port 2222\nHostKey %s/host\nAuthorizedKeysFile %s/authorized\nPidFile none\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin prohibit-password\nUseDNS no\n", dir, dir))
	var log bytes.Buffer
	cmd := exec.Command(sshd, "-D", "-e", "-f", filepath.Join(dir, "config"))
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("sshd: %s", log.String())
		}
	})
	time.Sleep(500 * time.Millisecond) // until it listens
	g := &gate{t: t, state: filepath.Join(dir, "state")}
	g.before = g.guards()
	g.flags = []string{"--router", "ssh://root@10.1.0.1:2222", "--identity", filepath.Join(dir, "user"), "--known-hosts", filepath.Join(dir, "known"), "--state-dir", g.state}
	return g
}

// from is a command of a machine of the home.
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

// queues prints what is shaped on the router.
func queues(t *testing.T) string {
	t.Helper()
	out := ""
	for _, line := range []string{"tc qdisc show", "tc class show dev wan", "tc filter show dev wan", "tc filter show dev wan ingress", "ip -br link", "ethtool -k wan", "ethtool -k lan"} {
		words := strings.Fields(line)
		b, err := exec.Command(words[0], words[1:]...).CombinedOutput()
		if err != nil && words[1] == "qdisc" {
			t.Fatalf("%s: %v: %s", line, err, b)
		}
		out += "$ " + line + "\n" + string(b)
	}
	return out
}

// guards returns what guards have left behind since this one was made.
func (g *gate) guards() []string {
	found, _ := filepath.Glob("/tmp/unbloat-guard-*")
	return slices.DeleteFunc(found, func(f string) bool { return slices.Contains(g.before, f) })
}

// TestRouterFromHome: a machine of the home changes a real router over SSH: kept,
// reverted, not confirmed, and cut off in the middle.
func TestRouterFromHome(t *testing.T) {
	if !labtest.Inside(t, labtest.Options{Node: lab.NodeRouter}) {
		return
	}
	g := newGate(t)
	start := queues(t)
	g.run(0, "Nothing is shaped", "status")
	g.run(0, "Nothing stands in the way", "doctor", "--wan", "wan", "--lan", "lan")
	g.run(0, "read back and kept", "apply", "--wan", "wan", "--lan", "lan", "--down", "20mbit", "--up", "4mbit", "--yes")
	if q := queues(t); !strings.Contains(q, "cake") || !strings.Contains(q, "bandwidth 4Mbit") || !strings.Contains(q, "ifb4wan") {
		t.Errorf("the router has %s", q)
	}
	g.run(0, "held to 4 Mbit/s by cake", "status")
	g.run(5, "on the router", "apply", "--wan", "wan", "--up", "3mbit", "--yes", "--persist")
	g.run(0, "as it was before", "revert")
	if q := queues(t); q != start {
		t.Errorf("reverted, it has %s\nbefore: %s", q, start)
	}
	for _, aqm := range []string{"cake", "fq_codel"} { // nobody confirms
		g.run(0, "undone in 5s", "apply", "--wan", "wan", "--lan", "lan", "--down", "20mbit", "--up", "4mbit", "--confirm", "5s", "--aqm", aqm)
		if queues(t) == start {
			t.Errorf("%s: nothing was changed", aqm)
		}
		waitFor(t, "the router's guard", func() bool { return queues(t) == start })
		g.run(5, "", "confirm")
	}
	g.run(0, "undone in 30s", "apply", "--wan", "wan", "--up", "4mbit", "--confirm", "30s")
	g.run(0, "Kept", "confirm")
	g.run(0, "as it was before", "revert")

	// The way to the router goes in the middle of a change.
	cmd := g.from("apply", "--wan", "wan", "--lan", "lan", "--down", "20mbit", "--up", "4mbit", "--yes", "--confirm", "8s", "--aqm", "fq_codel")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the first queue", func() bool {
		b, _ := exec.Command("tc", "qdisc", "show", "dev", "wan").Output()
		return strings.Contains(string(b), "htb")
	})
	if b, err := exec.Command("tc", "qdisc", "add", "dev", "lan", "root", "netem", "loss", "100%").CombinedOutput(); err != nil {
		t.Fatalf("cut: %v: %s", err, b)
	}
	cut := time.Now()
	waitFor(t, "the router's guard", func() bool {
		b, _ := exec.Command("tc", "qdisc", "show", "dev", "wan").Output()
		return !strings.Contains(string(b), "htb")
	})
	t.Logf("cut off in the middle, the router undid it by itself after %.1f s", time.Since(cut).Seconds())
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	_, _ = exec.Command("tc", "qdisc", "del", "dev", "lan", "root").CombinedOutput()
	g.run(0, "", "revert")
	if q := queues(t); q != start {
		t.Errorf("cut off, it has %s\nbefore: %s", q, start)
	}
	if left := g.guards(); len(left) > 0 {
		t.Errorf("guards are left: %v", left)
	}
}

// TestTuneFromHome: a tuning from a machine of the home, the router reached by
// SSH, ends as a local one does.
func TestTuneFromHome(t *testing.T) {
	if !labtest.Inside(t, labtest.Options{Node: lab.NodeRouter, Server: true}) {
		return
	}
	g := newGate(t)
	out := g.run(0, "Kept:", "tune", "--server", lab.ServerAddr, "--wan", "wan", "--lan", "lan")
	t.Log(out)
	if q := queues(t); !strings.Contains(q, "cake") {
		t.Errorf("the router has %s", q)
	}
	if left := g.guards(); len(left) > 0 {
		t.Errorf("guards are left: %v", left)
	}
}
