package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"unbloat/internal/measure/verdict"
	"unbloat/internal/serve"
	"unbloat/internal/show/cli"
	"unbloat/reason"
	"unbloat/testkit/await"
)

// runTestCommand runs `unbloat test` and returns its outputs and exit code.
func runTestCommand(t *testing.T, args ...string) (out, progress string, code int, err error) {
	t.Helper()
	return runTestCommandIn(t.Context(), args...)
}

// runTestCommandIn is runTestCommand with a given context.
func runTestCommandIn(ctx context.Context, args ...string) (out, progress string, code int, err error) {
	c := newTestCommand()
	var stdout, stderr bytes.Buffer
	c.SetOut(&stdout)
	c.SetErr(&stderr)
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetArgs(args)
	err = c.ExecuteContext(ctx)
	var e *cli.Error
	switch {
	case err == nil:
		code = cli.Done
	case errors.As(err, &e):
		code = e.Code
	default:
		code = cli.Failed
	}
	return stdout.String(), stderr.String(), code, err
}

// serveHere runs a test server until the test ends.
func serveHere(t *testing.T) string {
	t.Helper()
	s, err := serve.Listen(serve.Options{Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s.Addr().String()
}

// The loopback has no line to judge: the result is invalid (4), or good (0).
func TestTestCommand(t *testing.T) {
	await.NotShort(t)
	server := serveHere(t)
	file := filepath.Join(t.TempDir(), "x.json")
	out, progress, code, err := runTestCommand(t, "--server", "unbloat://"+server, "--json", "--seconds", "1", "--idle", "1s", "--label", "here", "-o", file)
	if code != cli.Done && code != cli.Invalid {
		t.Fatalf("exit code %d: %v", code, err)
	}
	var got verdict.Test
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v in %q", err, out)
	}
	if got.Valid != (code == cli.Done) || got.Label != "here" || got.Server != server || len(got.Phases()) != 4 {
		t.Errorf("valid %v with exit code %d, label %q, server %q, %d phases", got.Valid, code, got.Label, got.Server, len(got.Phases()))
	}
	if !strings.Contains(progress, "idle ") {
		t.Errorf("progress %q", progress)
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != out {
		t.Errorf("the file differs from the output: %v", err)
	}
}

func TestTestCommandRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		code int
		says string
	}{
		{"a scheme", []string{"--server", "gopher://host"}, cli.Usage, "gopher"},
		{"a profile", []string{"--server", "h", "--profile", "x"}, cli.Usage, "--profile"},
		{"no runs", []string{"--server", "h", "--runs", "0"}, cli.Usage, "--runs"},
		{"a ping", []string{"--server", "h", "--ping", "x://h"}, cli.Usage, "--ping"},
		{"an argument", []string{"host"}, cli.Usage, "no arguments"},
		{"no flows", []string{"--server", "h", "--flows", "0"}, cli.Usage, "--flows"},
		{"no time", []string{"--server", "h", "--seconds", "0.1"}, cli.Usage, "--seconds"},
		{"no idle time", []string{"--server", "h", "--idle", "0"}, cli.Usage, "--idle"},
		{"tiny probes", []string{"--server", "h", "--probe-bytes", "3"}, cli.Usage, "--probe-bytes"},
		{"wild probes", []string{"--server", "h", "--interval", "1us"}, cli.Usage, "--interval"},
		{"nobody there", []string{"--server", "127.0.0.1:1"}, cli.Precondition, "unbloat serve"},
	} {
		out, _, code, err := runTestCommand(t, c.args...)
		if code != c.code || out != "" || err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: exit code %d, output %q, error %v; want %d and %q", c.name, code, out, err, c.code, c.says)
		}
	}
}

func TestPrintTest(t *testing.T) {
	l := verdict.Latency{Sent: 100, Received: 99, LossUp: 0.01, RTTMs: verdict.Quantiles{P50: 20, P95: 1020, Max: 1030}, IncreaseMs: verdict.Quantiles{P95: 1000}}
	var b bytes.Buffer
	printTest(&b, reason.English(), &verdict.Test{
		Time: "now", Label: "before", Server: "s", Valid: true, Grade: "F", GradeUp: "F", Verdict: "Bad.",
		Idle: &verdict.Phase{}, Upload: &verdict.Phase{Latency: l, GoodputUpBps: 4.7e6},
	}, 0, true)
	for _, want := range []string{"before — now", "1020.0", "1000.0", "4.70 Mbit/s", "Grade F (download none, upload F). Bad."} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in:\n%s", want, b.String())
		}
	}
	b.Reset()
	printTest(&b, reason.English(), &verdict.Test{InvalidReasons: []string{"why"}, Verdict: "Not valid.", Idle: &verdict.Phase{}, Upload: &verdict.Phase{Latency: l}}, 0, true)
	if s := b.String(); strings.Contains(s, "Grade") || strings.Contains(s, " F\n") || !strings.Contains(s, "· why") {
		t.Errorf("an invalid result:\n%s", s)
	}
}

// The table does not hide loss if probes cannot tell the directions apart, and
// shows no figure if nothing was answered.
func TestPrintLosses(t *testing.T) {
	print := func(l verdict.Latency) string {
		var b bytes.Buffer
		printTest(&b, reason.English(), &verdict.Test{Idle: &verdict.Phase{}, Upload: &verdict.Phase{Latency: l}}, 0, true)
		lines := strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
		return lines[slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "upload") })]
	}
	for _, c := range []struct {
		l          verdict.Latency
		shows, not string
	}{
		{verdict.Latency{Sent: 100, Received: 93, Loss: 0.07, OneWayUnknown: true}, "7.0% in all", "0.0% "},
		{verdict.Latency{Sent: 100, Received: 93, Loss: 0.07, LossUp: 0.05, LossDown: 0.021}, "5.0%    2.1%", "in all"},
		{verdict.Latency{Sent: 100, Loss: 1, LossUp: 1}, "100.0%", " 0.0 "},
	} {
		if got := print(c.l); !strings.Contains(got, c.shows) || strings.Contains(got, c.not) {
			t.Errorf("%+v: %q", c.l, got)
		}
	}
}
