package lab_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"unbloat/lab"
	"unbloat/testkit/labtest"
)

// The home is wired as in the scenario: idle pings take the line's round trip
// time.
func TestGuestPing(t *testing.T) {
	t.Parallel()
	if !labtest.Inside(t, labtest.Options{Node: lab.Host(1)}) {
		return
	}
	out, err := exec.CommandContext(t.Context(), "ping", "-c", "5", "-i", "0.2", lab.ServerAddr).CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(out), "5 received") {
		t.Fatal("pings were lost on an idle line")
	}
}

// A packet that TCP sends again finds the queue of the first, as behind a wire: here
// nobody answers, and the connection is asked for again and again.
func TestRetransmissionsKeepTheirQueue(t *testing.T) {
	t.Parallel()
	if !labtest.Inside(t, labtest.Options{}) {
		return
	}
	run := func(argv ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), argv[0], argv[1:]...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", strings.Join(argv, " "), err, out)
		}
		return string(out)
	}
	run("tc", "qdisc", "add", "dev", "wan", "root", "cake", "bandwidth", "5mbit", "besteffort", "flows")
	run("tc", "qdisc", "add", "dev", "wan", "ingress")
	run("tc", "filter", "add", "dev", "wan", "ingress", "protocol", "ip", "matchall", "action", "drop")
	run("ip", "netns", "exec", lab.Host(1), "sh", "-c", "! timeout 20 bash -c ': </dev/tcp/"+lab.ServerAddr+"/9'")
	var shaped []struct {
		Packets uint64 `json:"packets"`
		Tins    []struct {
			Queues uint64 `json:"way_misses"` // that a flow has taken
		} `json:"tins"`
	}
	out := run("tc", "-s", "-j", "qdisc", "show", "dev", "wan", "root")
	if err := json.Unmarshal([]byte(out), &shaped); err != nil || len(shaped) != 1 || len(shaped[0].Tins) != 1 {
		t.Fatalf("%v: %s", err, out)
	}
	if q := shaped[0]; q.Packets < 3 || q.Tins[0].Queues != 1 {
		t.Errorf("%d packets of one connection took %d queues; want several packets and one queue", q.Packets, q.Tins[0].Queues)
	}
}

// Time in the guest is virtual: an hour passes in a moment.
func TestGuestTimeIsVirtual(t *testing.T) {
	const inside = "UNBLOAT_TEST_HOUR"
	if os.Getenv(inside) == "" {
		kernel := labtest.NeedKernel(t)
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		s := labtest.Home()
		r, wall, err := lab.Boot(t.Context(), kernel, lab.Guest{ // wall excludes the wait for a processor
			Engine: kernel.Engine, Scenario: s, Case: s.Cases[0].Name, Node: lab.NodeRouter, Programs: labtest.Programs(t), Dir: "/", Seed: labtest.Seed(t),
			Command: []string{self, "-test.run", "^" + t.Name() + "$", "-test.v"}, Env: []string{inside + "=1"},
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if c := r.Commands[0]; c.ExitCode != 0 || !strings.Contains(c.Output, "--- PASS: "+t.Name()) {
			t.Fatalf("exit code %d in the guest:\n%s", c.ExitCode, c.Output)
		}
		if wall > 2*time.Minute || r.VirtualSeconds < time.Hour.Seconds() {
			t.Fatalf("%.0f s of virtual time took %v", r.VirtualSeconds, wall)
		}
		return
	}
	start := time.Now()
	select {
	case <-time.After(time.Hour):
	case <-context.Background().Done():
	}
	if d := time.Since(start); d < time.Hour || d > time.Hour+time.Second {
		t.Fatalf("slept %v", d)
	}
}

// A guest may write, overwrite and delete any file without changing the host's.
func TestGuestChangesNothing(t *testing.T) {
	dir := os.Getenv("UNBLOAT_TEST_VICTIM")
	if dir == "" {
		dir = t.TempDir()
		t.Setenv("UNBLOAT_TEST_VICTIM", dir)
		for name, text := range map[string]string{"kept": "kept", "overwritten": "before"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if labtest.Inside(t, labtest.Options{Env: []string{"UNBLOAT_TEST_VICTIM=" + dir}}) {
			return
		}
		for name, want := range map[string]string{"kept": "kept", "overwritten": "before"} {
			if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
				t.Errorf("%s outside: %q, %v; want %q", name, got, err, want)
			}
		}
		if _, err := os.Stat("/etc/passwd"); err != nil {
			t.Errorf("what the guest deleted is gone outside: %v", err)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
			t.Errorf("the folder outside holds %v (%v), not two files", entries, err)
		}
		return
	}
	if err := os.Remove(filepath.Join(dir, "kept")); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"overwritten", "new"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("by the guest"), 0o600); err != nil {
			t.Error(err)
		}
	}
	for _, path := range []string{"/etc/hostname", "/usr/bin/tc"} {
		if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
			t.Error(err)
		}
	}
	if out, err := exec.Command("sh", "-c", "rm -rf /etc 2>/dev/null; test ! -e /etc/passwd").CombinedOutput(); err != nil {
		t.Errorf("delete in the guest: %v %s", err, out)
	}
}
