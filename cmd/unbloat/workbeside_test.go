//go:build !omit_daemon

package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"unbloat/internal/await"
	"unbloat/internal/daemon"
	kept "unbloat/internal/daemon/config"
	"unbloat/internal/plan"
)

// TestWorkBeside: the daemon without what measures has the program beside it do it: its
// arguments, its result with the exit code, and its end when the run is stopped.
func TestWorkBeside(t *testing.T) {
	program := filepath.Join(t.TempDir(), "unbloat-measure")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(program, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	job := daemon.Job{WAN: kept.WAN{Interface: "eth0", LAN: "br-lan", AQM: plan.CAKE, Overhead: 18}, Server: "test.example.net"}
	test, tune := job, job
	test.Test, tune.Tune = &daemon.TestParams{Flows: 3, Seconds: 2.5, Idle: 1, Runs: 3, Profile: "many", IntervalMs: 12.5, ProbeBytes: 120, Insecure: true}, &daemon.TuneParams{Replace: true, GoalMs: 7.5, FlowsUp: 9}
	for _, c := range []struct {
		job  daemon.Job
		want string
	}{
		{test, "test --json --quiet --server test.example.net --flows 3 --seconds 2.5 --idle 1 --runs 3 --profile many --probe-bytes 120 --interval 12.5ms --insecure"},
		{tune, "tune --json --quiet --turn-is-held --state-dir /run/x --wan eth0 --lan br-lan --server test.example.net --aqm cake --overhead 18 --goal 7.5ms --flows-up 9 --replace"},
	} {
		if got := strings.Join(besideArgs("/run/x", c.job), " "); got != c.want {
			t.Errorf("%s\nnot\n%s", got, c.want)
		}
		command, _, err := newRootCommand().Find(besideArgs("/run/x", c.job))
		if err != nil || command.ParseFlags(slices.DeleteFunc(besideArgs("/run/x", c.job), func(s string) bool { return s == command.Name() })) != nil {
			t.Errorf("%s: the program does not take that: %v", c.want, err)
		}
	}
	write("echo '{\"grade\":\"A\"}'\n")
	if result, code, err := workBeside(t.Context(), program, "/run/x", test); err != nil || code != 0 || string(result.(json.RawMessage)) != `{"grade":"A"}` {
		t.Errorf("%v %d %v", result, code, err)
	}
	write("echo '{\"grade\":\"F\"}'\necho 'it tells too little' >&2\nexit 4\n")
	if result, code, err := workBeside(t.Context(), program, "/run/x", test); err == nil || err.Error() != "it tells too little" || code != 4 || result == nil {
		t.Errorf("%v %d %v", result, code, err)
	}
	write("echo oops\n")
	if _, code, err := workBeside(t.Context(), program, "/run/x", test); err == nil || code != exitFailed {
		t.Errorf("%d %v", code, err)
	}
	write("trap 'echo undone >&2; exit 1' INT\necho begun >" + program + ".begun\nwhile :; do sleep 0.1; done\n")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, _, err := workBeside(ctx, program, "/run/x", tune)
		ended <- err
	}()
	await.Until(t, time.Minute, "the program to begin", func() bool { _, err := os.Stat(program + ".begun"); return err == nil })
	cancel()
	if err := <-ended; err == nil || err.Error() != "undone" {
		t.Errorf("stopped: %v", err)
	}
}
