package phases_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"math"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"unbloat/internal/measure/netio"
	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/probe"
	"unbloat/internal/measure/verdict"
	"unbloat/internal/serve"
	"unbloat/testkit/await"
	"unbloat/unit"
)

// These tests check no times or rates, since the machine may be busy. The lab
// checks them, in virtual time.

// start runs a server until the test ends, and checks that no goroutine is left.
func start(t *testing.T) string { return startWith(t, serve.Limits{}) }

func startWith(t *testing.T, l serve.Limits) string {
	t.Helper()
	before := runtime.NumGoroutine()
	s, err := serve.Listen(serve.Options{Listen: "127.0.0.1:0", Limits: l})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
		if !await.True(10*time.Second, func() bool { return runtime.NumGoroutine() <= before }) {
			buf := make([]byte, 1<<16)
			t.Errorf("%d goroutines before, %d after:\n%s", before, runtime.NumGoroutine(), buf[:runtime.Stack(buf, true)])
		}
	})
	return s.Addr().String()
}

func dial(t *testing.T, server string) *phases.Client {
	t.Helper()
	c, err := phases.Dial(t.Context(), server, phases.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestRun(t *testing.T) {
	await.NotShort(t)
	c := dial(t, start(t))
	events := map[string]int{}
	got, err := phases.Run(t.Context(), c, phases.Config{
		Idle: time.Second, Load: time.Second, Flows: 2, Label: "here",
		Progress: func(e phases.Event) { events[e.Phase]++ },
	})
	if err != nil {
		t.Fatal(err)
	}
	if got.Schema != verdict.TestSchema || got.Label != "here" || got.Server != c.Server() || got.Time == "" {
		t.Errorf("%q %q %q %q", got.Schema, got.Label, got.Server, got.Time)
	}
	if len(got.Phases()) != 4 {
		t.Fatalf("%d phases", len(got.Phases()))
	}
	for _, p := range got.Phases() {
		l := p.Latency
		if l.Sent < l.Received || l.Received == 0 || l.RTTMs.Min <= 0 || len(p.Series.TS) < l.Sent {
			t.Errorf("%s: %d of %d answered, min %v ms, %d in the series", p.Name, l.Received, l.Sent, l.RTTMs.Min, len(p.Series.TS))
		}
		if down := p.FlowsDown > 0; down != (p.GoodputDownBps > 0) {
			t.Errorf("%s: %d flows down, %v bit/s", p.Name, p.FlowsDown, p.GoodputDownBps)
		}
		if up := p.FlowsUp > 0; up != (p.GoodputUpBps > 0) {
			t.Errorf("%s: %d flows up, %v bit/s", p.Name, p.FlowsUp, p.GoodputUpBps)
		}
		if events[p.Name] == 0 || events[p.Name] > 5*12 {
			t.Errorf("%s: %d events", p.Name, events[p.Name])
		}
	}
	// A loopback has no queue of its own: any increase is this machine's.
	if got.Valid && got.Grade != "A+" && got.Grade != "A" {
		t.Errorf("a bare loopback is valid and has grade %s: %s", got.Grade, got.Verdict)
	}
	if b, err := json.Marshal(got); err != nil || !strings.Contains(string(b), `"schema":"unbloat.test/1"`) {
		t.Errorf("JSON: %v", err)
	}
}

func TestFlowsAndProbesApart(t *testing.T) {
	c := dial(t, start(t))
	ctx := t.Context()
	up, err := c.StartFlows(ctx, phases.FlowSpec{Dir: phases.Up, Flows: 2})
	if err != nil {
		t.Fatal(err)
	}
	down, err := c.StartFlows(ctx, phases.FlowSpec{Dir: phases.Down, Flows: 3, Limit: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	voip, err := c.StartProbe(ctx, phases.ProbeSpec{Interval: 20 * time.Millisecond, Size: 172})
	if err != nil {
		t.Fatal(err)
	}
	oneWay, err := c.StartProbe(ctx, phases.ProbeSpec{Interval: time.Millisecond, Size: 1000, OneWay: true})
	if err != nil {
		t.Fatal(err)
	}
	stream, err := c.StartStream(ctx, phases.StreamSpec{Interval: time.Millisecond, Size: 500, Limit: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	await.Until(t, 20*time.Second, "the flows to move, those down to end, and a call to be answered", func() bool {
		samples, _ := voip.Samples(0, math.MaxInt64)
		return up.Moved() > 0 && down.Moved() > 0 && down.Ended() &&
			slices.ContainsFunc(samples, func(s probe.Sample) bool { return s.Fate == probe.Answered })
	})
	for f, flows := range map[*phases.Flows]int{up: 2, down: 3} {
		r, err := f.Stop(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Series) != flows || r.Goodput() <= 0 || len(r.Broken) != 0 {
			t.Errorf("%s: %d series, %v, broken %v", r.Dir, len(r.Series), r.Goodput(), r.Broken)
		}
	}
	v, err := voip.Stop(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if l := verdict.EvaluateLatency(v.Samples, verdict.Baseline{}); l.Sent == 0 || l.Received == 0 || v.ServerReceived < l.Received {
		t.Errorf("voip: %+v, server received %d", l, v.ServerReceived)
	}
	o, err := oneWay.Stop(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if o.ServerReceived == 0 || o.ServerReceived > len(o.Samples) || o.ServerBytes != unit.Size(1000*o.ServerReceived) {
		t.Errorf("one way: %d of %d, %v", o.ServerReceived, len(o.Samples), o.ServerBytes)
	}
	s, err := stream.Stop(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if s.Received == 0 || s.Received > s.Sent || s.Bytes != unit.Size(500*s.Received) || s.Goodput() <= 0 || s.Loss() > 1 {
		t.Errorf("stream: %+v", s)
	}
}

// TestCheckCC: a congestion control is tried at both ends without a load, and
// the session can be used afterwards.
func TestCheckCC(t *testing.T) {
	c := dial(t, start(t))
	if err := netio.CheckCC("no-such-control"); err == nil {
		t.Error("this system has every congestion control")
	} else if errors.Is(err, netio.ErrNotSupported) {
		t.Skipf("SKIPPED: %v", err)
	}
	if err := c.CheckCC(t.Context(), "no-such-control"); err == nil {
		t.Error("both ends have every congestion control")
	}
	if _, err := c.StartFlows(t.Context(), phases.FlowSpec{Dir: phases.Down, Flows: 1, CC: "no-such-control"}); !errors.Is(err, phases.ErrRefused) {
		t.Errorf("the server's: %v", err)
	}
	for _, cc := range []string{"", "reno"} {
		if err := c.CheckCC(t.Context(), cc); err != nil || netio.CheckCC(cc) != nil {
			t.Errorf("%q: %v", cc, err)
		}
	}
	f, err := c.StartFlows(t.Context(), phases.FlowSpec{Dir: phases.Down, Flows: 1, CC: "reno"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestDialErrors(t *testing.T) {
	ctx := t.Context()
	if _, err := phases.Dial(ctx, "http://example.net", phases.Options{}); !errors.As(err, new(*phases.AddressError)) {
		t.Errorf("a scheme: %v", err)
	}
	if _, err := phases.Dial(ctx, "127.0.0.1:1", phases.Options{}); !errors.Is(err, phases.ErrUnreachable) {
		t.Errorf("nobody listens: %v", err)
	}
	for name, answer := range map[string]string{
		"hangs up": "", "speaks otherwise": "SSH-2.0-x\r\n", "another version": `{"version":9,"token":"x"}` + "\n", "no token": `{"version":1}` + "\n",
	} {
		if _, err := phases.Dial(ctx, impostor(t, answer), phases.Options{Timeout: 5 * time.Second}); !errors.Is(err, phases.ErrUnreachable) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := phases.Dial(ctx, impostor(t, `{"error":"busy"}`+"\n"), phases.Options{}); !errors.Is(err, phases.ErrRefused) || !strings.Contains(err.Error(), "busy") {
		t.Errorf("refused: %v", err)
	}
	if _, err := phases.Dial(ctx, impostor(t, strings.Repeat("x", 20e6)), phases.Options{}); !errors.Is(err, phases.ErrUnreachable) {
		t.Errorf("endless line: %v", err)
	}
}

// impostor answers the first line of every connection with the same text.
func impostor(t *testing.T, answer string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan bool)
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = bufio.NewReader(c).ReadString('\n')
			_, _ = c.Write([]byte(answer))
			c.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().String()
}

// An interrupted phase ends at once and leaves nothing behind.
func TestCancel(t *testing.T) {
	c := dial(t, start(t))
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(300*time.Millisecond, func() { cancel(why) })
	_, err := c.Phase(ctx, phases.PhaseSpec{Name: "x", Duration: 30 * time.Minute, FlowsDown: 2, FlowsUp: 2})
	if !errors.Is(err, why) {
		t.Errorf("error %v", err)
	}
}

// A server that dies during a measurement is an error, not a result.
func TestServerDies(t *testing.T) {
	s, err := serve.Listen(serve.Options{Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	c := dial(t, s.Addr().String())
	time.AfterFunc(300*time.Millisecond, stop)
	if _, err := c.Phase(t.Context(), phases.PhaseSpec{Name: "x", Duration: time.Second, FlowsDown: 2, FlowsUp: 2}); err == nil {
		t.Error("no error")
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestProbeRate(t *testing.T) {
	if got := (phases.ProbeSpec{Interval: 20 * time.Millisecond, Size: 172}).Rate(); got != 85600 { // 214 bytes
		t.Errorf("VoIP occupies %v", got)
	}
	if got := (phases.ProbeSpec{}).Rate(); got != 59200 { // 74 bytes
		t.Errorf("default probes occupy %v", got)
	}
}
