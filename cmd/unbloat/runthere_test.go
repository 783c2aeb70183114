//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"unbloat/internal/cure/apply"
	"unbloat/internal/keep/daemon"
	"unbloat/internal/keep/supervise"
	"unbloat/internal/measure/verdict"
	"unbloat/internal/show/cli"
	"unbloat/testkit/await"
	"unbloat/testkit/fake"
)

// TestTestThere: where a daemon runs it does `unbloat test`, which shows how it goes and
// prints the result. The line stays shaped meanwhile, and nobody else changes it. An
// interrupted test prints what was finished.
func TestTestThere(t *testing.T) {
	await.NotShort(t)
	server := serveHere(t)
	f := fake.NewLinux()
	s := newStage(t, f.Machine, f, f.Text)
	config := filepath.Join(t.TempDir(), "unbloat.toml")
	const line = "[[wan]]\ninterface = \"wan\"\nlan = \"lan\"\nplatform = \"linux\"\ndown = \"50 Mbit/s\"\nup = \"10 Mbit/s\"\n"
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(line)
	cmd, log := s.daemon(t, config)
	await.Until(t, 40*time.Second, "the line to be shaped", func() bool { return s.kept(t.Context()).State == supervise.InPlace })
	shaped := s.Text()
	run := func(wan string) (is daemon.RunStatus) {
		c, err := daemon.Dial(t.Context(), daemon.Socket(s.state))
		if err != nil {
			return is
		}
		defer c.Close()
		_ = c.Call(t.Context(), daemon.MethodRun, "", wan, nil, &is)
		return is
	}
	env := []string{"PATH=" + s.path, "UNBLOAT_STATE_DIR=" + s.state}
	args := []string{"test", "--server", server, "--idle", "1", "--json", "--plain", "--no-store", "--flows", "1"}
	code, out, errs := ran(t, append(env, asProgram+"=1"), append([]string{os.Args[0]}, append(args, "--seconds", "1", "--label", "there", "--interval", "25ms")...)...)
	var got verdict.Test
	if err := json.Unmarshal([]byte(out), &got); err != nil || got.Label != "there" || len(got.Phases()) != 4 || code != cli.Done && code != cli.Invalid {
		t.Fatalf("exit %d, %v: %s%s", code, err, out, errs)
	}
	if !strings.Contains(errs, "idle ") || !strings.Contains(errs, " s   rtt ") {
		t.Errorf("it shows nothing:\n%s", errs)
	}
	if got.Idle.Latency.Sent > 60 { // in one second, at 25 ms and not at the usual
		t.Errorf("%d probes were sent", got.Idle.Latency.Sent)
	}
	if is := run(""); is.Method != daemon.MethodTest || is.State != daemon.RunDone || is.WAN != "wan" || is.ExitCode != code {
		t.Errorf("the daemon knows of %+v\n%s", is, log)
	}

	busy := ""
	out, errs, code = interrupted(t, env, func(_, errs string) bool {
		if busy == "" && strings.Contains(errs, "download") {
			busy, _ = s.run(t, "apply", "--down", "40mbit", "--up", "8mbit", "--wan", "wan", "--lan", "lan", "--for", "linux", "--yes")
		}
		return busy != ""
	}, append(args, "--seconds", "60")...)
	if !strings.Contains(busy, "`unbloat test` is working on it") || s.Text() != shaped {
		t.Errorf("meanwhile apply says %s, and the router has\n%s", busy, s.Text())
	}
	got = verdict.Test{}
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != cli.Failed || got.Idle == nil || got.Download != nil || !strings.Contains(errs, "interrupted; what was measured before is above") {
		t.Errorf("interrupted: exit %d, %v: %s%s", code, err, out, errs)
	}
	if is := run(""); is.Run != "2" || is.State != daemon.RunEnded {
		t.Errorf("the daemon knows of %+v", is)
	}
	s.run(t, "apply", "--down", "40mbit", "--up", "8mbit", "--wan", "wan", "--lan", "lan", "--for", "linux", "--yes")
	if s.Text() == shaped {
		t.Errorf("after the test nobody else may change the line")
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// TestTuningEndsWithDaemon: a tuning is a process of the daemon's. However it ends, nothing
// of it stays: killed itself, the daemon says what was being done, and goes on; when the
// daemon is killed, as it begins or when it has changed the router, it ends with it, its
// watchdog undoes what it has changed, and the next daemon begins.
func TestTuningEndsWithDaemon(t *testing.T) {
	await.NotShort(t)
	f := fake.NewLinux()
	s := newStage(t, f.Machine, f, f.Text)
	config := filepath.Join(t.TempDir(), "unbloat.toml")
	text := "server = \"" + serveHere(t) + "\"\n[[wan]]\ninterface = \"wan\"\nlan = \"lan\"\nplatform = \"linux\"\ndown = \"50 Mbit/s\"\nup = \"10 Mbit/s\"\n"
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	call := func(method string, params, result any) {
		t.Helper()
		c, err := daemon.Dial(t.Context(), daemon.Socket(s.state))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.Call(t.Context(), method, "", "", params, result); err != nil {
			t.Fatal(err)
		}
	}
	shaped := ""
	for _, kill := range []string{"the tuning", "the daemon as it begins", "the daemon"} {
		d, log := s.daemon(t, config)
		await.Until(t, 40*time.Second, "the line to be shaped", func() bool { return s.kept(t.Context()).State == supervise.InPlace })
		if shaped == "" {
			shaped = s.Text()
		}
		call(daemon.MethodTune, daemon.TuneParams{Unattended: true}, nil)
		if kill != "the daemon as it begins" {
			await.Until(t, 40*time.Second, "the tuning to change the router", func() bool { return s.Text() != shaped })
		}
		if kill == "the tuning" {
			for _, pid := range childrenOf(t, d.Process.Pid) {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			var is daemon.RunStatus
			call(daemon.MethodRun, daemon.RunParams{Wait: 5, After: 1 << 30}, &is)
			if is.State != daemon.RunFailed || is.Error == nil || is.Error.Code != daemon.CodeInternal || !strings.Contains(is.Error.Text, "tune on wan, by `unbloat tune`: it ended with signal: killed") {
				t.Errorf("it is %s: %v\n%s", is.State, is.Error, log)
			}
			await.Until(t, 40*time.Second, "the line to be as it was", func() bool { return s.kept(t.Context()).State == supervise.InPlace && s.Text() == shaped })
		}
		_ = d.Process.Kill()
		_ = d.Wait()
		await.Until(t, 10*time.Second, "the tuning to end, which has the daemon's lock", func() bool {
			l, err := apply.TryLock(filepath.Join(s.state, "unbloatd.lock"))
			if err == nil {
				l.Unlock()
			}
			return err == nil
		})
		s.unwatched(t)
		if got := s.Text(); got != shaped {
			t.Errorf("%s was killed, and the router has\n%s\nbefore\n%s", kill, got, shaped)
		}
	}
}

// childrenOf are the processes that a process has started, which have its lock.
func childrenOf(t *testing.T, pid int) (out []int) {
	t.Helper()
	text, err := exec.Command("ps", "-A", "-o", "pid=,ppid=,args=").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var child, parent int
		if n, _ := fmt.Sscan(line, &child, &parent); n == 2 && parent == pid && strings.Contains(line, "--turn-is-held=wan") {
			out = append(out, child)
		}
	}
	if len(out) == 0 {
		t.Fatalf("process %d has no child that works for it:\n%s", pid, text)
	}
	return out
}
