//go:build !omit_measure && !omit_daemon && !omit_lab && unix

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"unbloat/internal/await"
	"unbloat/internal/daemon"
	"unbloat/internal/daemon/keep"
	"unbloat/internal/platform/fake"
	"unbloat/internal/verdict"
)

// TestTestThere: where a daemon runs it does `unbloat test`, which shows how it goes and
// prints the result. The line stays shaped meanwhile, and nobody else changes it. An
// interrupted test prints what was finished.
func TestTestThere(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: -short leaves out what takes seconds; `make test` has it")
	}
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
	await.Until(t, 40*time.Second, "the line to be shaped", func() bool { return s.kept(t.Context()).State == keep.InPlace })
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
	if err := json.Unmarshal([]byte(out), &got); err != nil || got.Label != "there" || len(got.Phases()) != 4 || code != exitDone && code != exitInvalid {
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
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != exitFailed || got.Idle == nil || got.Download != nil || !strings.Contains(errs, "interrupted; what was measured before is above") {
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
