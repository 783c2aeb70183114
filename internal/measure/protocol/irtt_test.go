package protocol_test

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/protocol"
	"unbloat/internal/measure/protocol/all"
	"unbloat/internal/measure/verdict"
	"unbloat/internal/serve"
	"unbloat/testkit/await"
)

// These tests check no times or rates, since the machine may be busy. The lab
// checks them, in virtual time.

// serving runs our servers until the test ends.
func serving(t *testing.T, o serve.Options) *serve.Server {
	t.Helper()
	o.Listen = "127.0.0.1:0"
	s, err := serve.Listen(o)
	if err != nil {
		t.Fatal(err)
	}
	serveUntilEnd(t, s)
	return s
}

// serveUntilEnd runs a server until the test ends.
func serveUntilEnd(t *testing.T, s *serve.Server) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
}

// program returns the path of another project's program, or skips the test.
func program(t *testing.T, name string) string {
	t.Helper()
	if testing.Short() {
		t.Skipf("SKIPPED: -short, and this runs %s", name)
	}
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("SKIPPED: %v (make setup-test installs it)", err)
	}
	return path
}

// freePort returns an unused address of the loopback.
func freePort(t *testing.T, network string) string {
	t.Helper()
	if network == "tcp" {
		return freeAddress(t)
	}
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return c.LocalAddr().String()
}

// freeAddress returns an unused TCP address of the loopback.
func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// running runs another project's server until the test ends.
func running(t *testing.T, argv ...string) {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
}

// dialed opens a session, and ends it with the test.
func dialed(t *testing.T, server string, o protocol.Options) phases.Tester {
	t.Helper()
	var c phases.Tester
	var err error
	if !await.True(10*time.Second, func() bool { c, err = all.Protocols().Dial(t.Context(), server, o); return err == nil }) {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// idle measures an idle phase and checks that probes were answered.
func idle(t *testing.T, c phases.Tester) *verdict.Phase {
	t.Helper()
	raw, err := c.Phase(t.Context(), phases.PhaseSpec{Name: verdict.PhaseIdle, Duration: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	p := c.Judge("", []phases.RawPhase{*raw}).Idle
	if l := p.Latency; l.Sent < 10 || l.Received < l.Sent/2 || l.RTTMs.Min <= 0 {
		t.Errorf("%d of %d probes answered, min %v ms", l.Received, l.Sent, l.RTTMs.Min)
	}
	return p
}

// Our client with Debian's irtt server.
func TestIrttServerOfDebian(t *testing.T) {
	for _, key := range []string{"", "secret"} {
		address := freePort(t, "udp")
		running(t, program(t, "irtt"), "server", "-b", address, "--hmac="+key)
		p := idle(t, dialed(t, "irtt://"+address, protocol.Options{Key: key}))
		if p.Latency.OneWayUnknown {
			t.Error("an irtt server tells the two ways apart")
		}
	}
}

// Debian's irtt client with our server.
func TestIrttClientOfDebian(t *testing.T) {
	irtt := program(t, "irtt")
	for _, key := range []string{"", "secret"} {
		s := serving(t, serve.Options{Irtt: "127.0.0.1:0", Key: key})
		file := filepath.Join(t.TempDir(), "irtt.json")
		out, err := exec.CommandContext(t.Context(), irtt, "client", "-i", "10ms", "-d", "500ms", "-l", "172", "--hmac="+key,
			"--timeouts=200ms,1s,5s", "-o", file, s.Irtt().String()).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var r struct {
			Stats struct {
				Sent    int                 `json:"packets_sent"`
				Got     int                 `json:"packets_received"`
				AtThere int                 `json:"server_packets_received"`
				RTT     struct{ Min int64 } `json:"rtt"`
				Send    struct{ N int }     `json:"send_delay"`
			} `json:"stats"`
		}
		if err := json.Unmarshal(b, &r); err != nil {
			t.Fatal(err)
		}
		if s := r.Stats; s.Sent < 5 || s.Got < s.Sent*9/10 || s.AtThere < s.Got || s.RTT.Min <= 0 || s.Send.N == 0 {
			t.Errorf("%+v", s)
		}
	}
	// A client without the key gets no answer.
	s := serving(t, serve.Options{Irtt: "127.0.0.1:0", Key: "secret"})
	if out, err := exec.CommandContext(t.Context(), irtt, "client", "-d", "100ms", "--timeouts=200ms,200ms", s.Irtt().String()).CombinedOutput(); err == nil {
		t.Errorf("answered without the key: %s", out)
	}
}

// An irtt server supports no load: the test is a single idle phase, and says
// why.
func TestIrttRun(t *testing.T) {
	s := serving(t, serve.Options{Irtt: "127.0.0.1:0"})
	c := dialed(t, "irtt://"+s.Irtt().String(), protocol.Options{})
	got, err := phases.Run(t.Context(), c, phases.Config{Idle: time.Second, Load: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Phases()) != 1 || len(got.Notes) == 0 || !strings.Contains(got.Notes[len(got.Notes)-1], "no load") {
		t.Errorf("%d phases, notes %q", len(got.Phases()), got.Notes)
	}
}
