package apply_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"unbloat/internal/cure/plan"
	"unbloat/testkit/labtest"
	"unbloat/unit"
)

func ip(t testing.TB, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// TestRefusals: each missing precondition is named with its remedy and has its
// exit code, and nothing is changed.
func TestRefusals(t *testing.T) {
	if !routerInLab(t) {
		return
	}
	dir := t.TempDir()
	ip(t, "link", "add", "downif", "type", "dummy")
	defer ip(t, "link", "del", "downif")
	bad := labPlan(t, plan.CAKE, 20*unit.MbitPerSecond, 4*unit.MbitPerSecond)
	file := func(name string, change func(p *plan.Plan)) string {
		p := bad
		up, down := *bad.Up, *bad.Down
		p.Up, p.Down = &up, &down
		change(&p)
		b, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	before := fullState(t)
	type refusal struct {
		name string
		code int
		says string
		args []string
	}
	refusals := []refusal{
		{"absent", 5, "no such interface", []string{"--wan", "nowhere", "--up", "4mbit"}},
		{"down", 5, "ip link set dev downif up", []string{"--wan", "downif", "--up", "4mbit"}},
		{"1 Pbit/s in a plan", 2, "the most that linux can hold", []string{file("peta.json", func(p *plan.Plan) { p.Down.Rate = 1e15 })}},
		{"ifb is the WAN", 2, `down.device: "wan" shapes on side in`, []string{file("loop.json", func(p *plan.Plan) { p.Down.Device = "wan" })}},
		{"long name", 2, "at most 15", []string{file("long.json", func(p *plan.Plan) { p.Down.Device = "ifb4averylongname" })}},
		{"unknown queue", 5, "cake2", []string{"--wan", "wan", "--up", "4mbit", "--aqm", "cake2"}},
	}
	if labtest.Long() { // these need no router
		refusals = append(refusals, []refusal{
			{"zero rate", 2, "above zero", []string{"--wan", "wan", "--up", "0mbit"}},
			{"negative rate", 2, "above zero", []string{"--wan", "wan", "--up", "-3mbit"}},
			{"1 Pbit/s", 2, "1 Tbit/s", []string{"--wan", "wan", "--up", "1000000gbit"}},
			{"no unit", 2, "no unit", []string{"--wan", "wan", "--up", "4000"}},
			{"no rate", 2, "--down RATE", []string{"--wan", "wan"}},
			{"no file", 2, "no such file", []string{filepath.Join(dir, "none.json")}},
			{"rate 0 in a plan", 2, "up.rate: 0 bit/s is too low", []string{file("zero.json", func(p *plan.Plan) { p.Up.Rate = 0 })}},
			{"negative in a plan", 2, "up.rate: ", []string{file("neg.json", func(p *plan.Plan) { p.Up.Rate = -5 })}},
			{"foreign platform", 2, `for "pfsense"`, []string{file("pf.json", func(p *plan.Plan) { p.Platform = "pfsense" })}},
			{"persist without yes", 2, "--yes", []string{"--wan", "wan", "--up", "4mbit", "--persist"}},
		}...)
	}
	for _, c := range refusals {
		out := runUnbloat(t, c.code, append([]string{"apply", "--state-dir", dir}, c.args...)...)
		if !strings.Contains(out, c.says) {
			t.Errorf("%s: it says %q, without %q", c.name, out, c.says)
		}
	}
	// As an unprivileged user, and without tc in PATH.
	program, err := os.ReadFile(labtest.Unbloat()) // only root can read its directory
	if err != nil {
		t.Fatal(err)
	}
	public := filepath.Join("/tmp", "unbloat-for-nobody")
	if err := os.WriteFile(public, program, 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(public)
	nobody := exec.Command(public, "apply", "--wan", "wan", "--shape-up", "4mbit", "--state-dir", filepath.Join("/tmp", "nobody"))
	nobody.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	wantExit(t, nobody, 5, "root")
	bare := exec.Command(labtest.Unbloat(), "apply", "--wan", "wan", "--shape-up", "4mbit", "--state-dir", dir)
	bare.Env = []string{"PATH=/nonexistent"}
	wantExit(t, bare, 5, "install the package iproute2")
	sameState(t, "after all refusals", before, fullState(t))
}

func wantExit(t testing.TB, cmd *exec.Cmd, code int, says string) {
	t.Helper()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != code || !strings.Contains(out.String(), says) {
		t.Errorf("%v: %v; it says %q; want exit %d and %q", cmd.Args, err, out.String(), code, says)
	}
}

// TestMissingModule uses a tc that lacks a kind of qdisc, since the lab's
// kernel has all of them.
func TestMissingModule(t *testing.T) {
	if !routerInLab(t) {
		return
	}
	dir := t.TempDir()
	real, err := exec.LookPath("tc")
	if err != nil {
		t.Fatal(err)
	}
	// It behaves as on a kernel without sch_cake, for commands and for batches.
	script := "#!/bin/bash\nin=\nfor a in \"$@\"; do [ \"$a\" = cake ] && { echo 'Error: Specified qdisc kind is unknown.' >&2; exit 2; }; [ \"$a\" = -batch ] && in=1; done\n" +
		"if [ -n \"$in\" ]; then sed 's/ cake.*/ nosuchqdisc/' | exec " + real + " \"$@\"; else exec " + real + " \"$@\"; fi\n"
	if err := os.WriteFile(filepath.Join(dir, "tc"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	before := fullState(t)
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	p, err := json.Marshal(labPlan(t, plan.CAKE, 20*unit.MbitPerSecond, 4*unit.MbitPerSecond))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "plan.json")
	if err := os.WriteFile(path, p, 0o644); err != nil {
		t.Fatal(err)
	}
	if out := runUnbloat(t, 5, "apply", path, "--state-dir", dir); !strings.Contains(out, "modprobe sch_cake") {
		t.Errorf("it says %q, without the remedy", out)
	}
	sameState(t, "without sch_cake", before, fullState(t))
	// Without a plan, apply falls back to fq_codel.
	out := runUnbloat(t, 0, "apply", "--wan", "wan", "--lan", "lan", "--shape-down", "20mbit", "--shape-up", "4mbit", "--yes", "--state-dir", dir)
	if !strings.Contains(out, "fq_codel") || strings.Contains(out, "cake") {
		t.Errorf("it ran %s", out)
	}
	runUnbloat(t, 0, "revert", "--state-dir", dir, "--root", dir)
	sameState(t, "after the revert", before, fullState(t))
}

// TestLongName shapes an interface whose name leaves no room for "ifb4".
func TestLongName(t *testing.T) {
	if !routerInLab(t) {
		return
	}
	const name = "exactly15bytes_"
	ip(t, "link", "add", name, "type", "veth", "peer", "name", "other")
	defer ip(t, "link", "del", name)
	ip(t, "link", "set", name, "up")
	ip(t, "link", "set", "other", "up")
	before := fullState(t)
	dir := t.TempDir()
	runUnbloat(t, 0, "apply", "--wan", name, "--shape-down", "20mbit", "--shape-up", "4mbit", "--yes", "--state-dir", dir)
	if s := fullState(t); strings.Count(s, `"ifname":"ifb-`) != 1 {
		t.Error("there is no ifb with a hashed name")
	}
	runUnbloat(t, 0, "revert", "--state-dir", dir, "--root", dir)
	sameState(t, "after the revert", before, fullState(t))
}

// onRouter returns the router's state, a directory in place of its disk, and a
// function that runs the program there.
func onRouter(t *testing.T) (before, dir string, run func(code int, args ...string) string) {
	t.Helper()
	dir = t.TempDir()
	return fullState(t), dir, func(code int, args ...string) string {
		t.Helper()
		return runUnbloat(t, code, append(args, "--state-dir", dir, "--root", dir)...)
	}
}

// TestDeadlineAndPersist: the deadline passes, a confirmed change stays, --persist
// makes it last, and revert takes everything away.
func TestDeadlineAndPersist(t *testing.T) {
	if !routerInLab(t) {
		return
	}
	before, dir, run := onRouter(t)
	plain := []string{"apply", "--wan", "wan", "--lan", "lan", "--shape-down", "20mbit", "--shape-up", "4mbit"}
	run(0, append(plain, "--dry-run")...)
	sameState(t, "after --dry-run", before, fullState(t))
	run(0, append(plain, "--confirm", "2s")...)
	waitWatchdog(t, dir)
	sameState(t, "after the deadline", before, fullState(t))
	run(5, "confirm")
	// The watchdog has its own session, so it survives the terminal.
	run(0, append(plain, "--confirm", "20s")...)
	if out := run(5, append(plain, "--confirm", "20s")...); !strings.Contains(out, "unbloat confirm") {
		t.Errorf("a second apply says %q", out)
	}
	run(5, "confirm", "--persist") // no systemd directory under --root
	if err := os.MkdirAll(filepath.Join(dir, "etc/systemd/system"), 0o755); err != nil {
		t.Fatal(err)
	}
	unitPath := filepath.Join(dir, "etc/systemd/system/unbloat.service")
	if err := os.WriteFile(unitPath, []byte("[Unit]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	run(5, "confirm", "--persist") // a foreign unit
	if err := os.Remove(unitPath); err != nil {
		t.Fatal(err)
	}
	run(0, "confirm", "--persist")
	time.Sleep(time.Second)
	var s struct {
		Shapers []struct {
			Device string
			Ours   bool
			Rate   unit.Rate `json:"rate_bps"`
		}
		Committed []struct{ WAN string }
		AtBoot    bool `json:"at_boot"`
	}
	if err := json.Unmarshal([]byte(run(0, "status", "--json")), &s); err != nil {
		t.Fatal(err)
	}
	if len(s.Shapers) != 2 || !s.Shapers[0].Ours || len(s.Committed) != 1 || !s.AtBoot {
		t.Errorf("status says %+v", s)
	}
	kept := filepath.Join(dir, "etc/unbloat/plan.json")
	if out := run(0, "apply", "--yes", kept); !strings.Contains(out, "nothing was run") {
		t.Errorf("applying what is kept says %q", out)
	}
	run(0, "revert")
	sameState(t, "after the revert", before, fullState(t))
	for _, p := range []string{kept, unitPath, filepath.Join(dir, "etc/systemd/system/multi-user.target.wants/unbloat.service")} {
		if _, err := os.Lstat(p); err == nil {
			t.Errorf("revert left %s", p)
		}
	}
	if out := run(0, "revert"); !strings.Contains(out, "nothing to undo") {
		t.Errorf("a second revert says %q", out)
	}
}

// TestRevertWithoutJournal: qdiscs with our handles are found and removed.
func TestRevertWithoutJournal(t *testing.T) {
	if !routerInLab(t) {
		return
	}
	before, dir, run := onRouter(t)
	aqms := []string{"fq_codel"}
	if labtest.Long() {
		aqms = append(aqms, "cake")
	}
	for _, aqm := range aqms {
		run(0, "apply", "--wan", "wan", "--shape-down", "200mbit", "--shape-up", "140mbit", "--yes", "--aqm", aqm) // too fast for offloads to be switched off
		if err := os.Remove(filepath.Join(dir, "wan.committed.json")); err != nil {
			t.Fatal(err)
		}
		if out := run(0, "status"); !strings.Contains(out, "what leaves wan is held to 140 Mbit/s") {
			t.Errorf("without a journal status says %s", out)
		}
		run(0, "revert")
		sameState(t, aqm+": after a revert without a journal", before, fullState(t))
	}
}

// watchdogOf returns the process id of the watchdog for dir.
func watchdogOf(t testing.TB, dir string) int {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err == nil && bytes.Contains(b, []byte("\x00watchdog\x00")) && bytes.Contains(b, []byte(dir)) {
			pid, _ := strconv.Atoi(strings.Split(p, "/")[2])
			return pid
		}
	}
	t.Fatal("there is no watchdog")
	return 0
}

// TestWatchdog: neither closing the terminal nor an interrupt stops it. If it
// is killed, the next command undoes the change.
func TestWatchdog(t *testing.T) {
	if !routerInLab(t) {
		return
	}
	before, dir, run := onRouter(t)
	plain := []string{"apply", "--wan", "wan", "--lan", "lan", "--shape-down", "20mbit", "--shape-up", "4mbit"}
	run(0, append(plain, "--confirm", "3s")...)
	pid := watchdogOf(t, dir)
	for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM} {
		if err := syscall.Kill(pid, s); err != nil {
			t.Fatal(err)
		}
		time.Sleep(300 * time.Millisecond)
	}
	if watchdogOf(t, dir) != pid {
		t.Fatal("it is another watchdog")
	}
	waitWatchdog(t, dir)
	sameState(t, "after the deadline", before, fullState(t))
	run(0, append(plain, "--confirm", "60s")...)
	if err := syscall.Kill(watchdogOf(t, dir), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	time.Sleep(300 * time.Millisecond)
	out := run(0, append(plain, "--aqm", "fq_codel", "--yes")...) // first undoes the change without a watchdog
	if !strings.Contains(out, "fq_codel") {
		t.Errorf("it ran %s", out)
	}
	run(0, "revert")
	sameState(t, "after the revert", before, fullState(t))
	if !labtest.Long() {
		return // a revert finds such a change by the same way
	}
	run(0, append(plain, "--confirm", "60s")...)
	if err := syscall.Kill(watchdogOf(t, dir), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	time.Sleep(300 * time.Millisecond)
	run(0, "revert")
	sameState(t, "after a revert without a watchdog", before, fullState(t))
}
