package protocol_test

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"unbloat/internal/protocol"

	"unbloat/internal/measure"
	"unbloat/internal/serve"
	"unbloat/internal/verdict"
)

// loaded runs the four phases and checks that each has load and probes.
func loaded(t *testing.T, c measure.Tester) *verdict.Test {
	t.Helper()
	got, err := measure.Run(t.Context(), c, measure.Config{Idle: time.Second, Load: time.Second, Flows: 2})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Phases()) != 4 {
		t.Fatalf("%d phases", len(got.Phases()))
	}
	for _, p := range got.Phases() {
		if p.Latency.Received == 0 {
			t.Errorf("%s: no probe of %d was answered", p.Name, p.Latency.Sent)
		}
		if down := p.FlowsDown > 0; down != (p.GoodputDownBps > 0) {
			t.Errorf("%s: %d flows down, %v bit/s", p.Name, p.FlowsDown, p.GoodputDownBps)
		}
		if up := p.FlowsUp > 0; up != (p.GoodputUpBps > 0) {
			t.Errorf("%s: %d flows up, %v bit/s", p.Name, p.FlowsUp, p.GoodputUpBps)
		}
	}
	return got
}

// iperf3Ping returns a kind of probe that needs no privileges.
func iperf3Ping(t *testing.T) string {
	s := serving(t, serve.Options{Irtt: "127.0.0.1:0"})
	return "irtt://" + s.Irtt().String()
}

// Our client against Debian's iperf3 server.
func TestIperf3ServerOfDebian(t *testing.T) {
	address := freePort(t, "tcp")
	running(t, program(t, "iperf3"), "-s", "-B", "127.0.0.1", "-p", portOf(t, address))
	loaded(t, dialed(t, "iperf3://"+address, protocol.Options{Ping: iperf3Ping(t)}))
}

func portOf(t *testing.T, address string) string {
	t.Helper()
	to, err := protocol.Resolve(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	return strconv.Itoa(int(to.Port()))
}

// Our client with our own server, with TCP handshakes as probes.
func TestIperf3Ours(t *testing.T) {
	s := serving(t, serve.Options{Iperf3: "127.0.0.1:0"})
	loaded(t, dialed(t, "iperf3://"+s.Iperf3().String(), protocol.Options{Ping: "tcp://" + s.Addr().String()}))
}

// Debian's iperf3 client with our server: upload, download, both, and several
// flows.
func TestIperf3ClientOfDebian(t *testing.T) {
	iperf3 := program(t, "iperf3")
	s := serving(t, serve.Options{Iperf3: "127.0.0.1:0"})
	port := strconv.Itoa(int(s.Iperf3().Port()))
	for name, more := range map[string][]string{
		"up": nil, "down": {"-R"}, "both": {"--bidir"}, "many": {"-P", "4"}, "many down": {"-P", "4", "-R"}, "bytes": {"-n", "10M"}, "later": {"-O", "1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// Six clients at full speed on two processors would only test the
			// scheduler.
			argv := append([]string{"-c", "127.0.0.1", "-p", port, "-J", "-t", "1", "-b", "300M"}, more...)
			if name == "bytes" {
				argv = append([]string{"-c", "127.0.0.1", "-p", port, "-J"}, more...)
			}
			out, err := exec.CommandContext(t.Context(), iperf3, argv...).Output()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if i := bytes.IndexByte(out, '{'); i > 0 { // it prints a warning first if it is busy
				t.Logf("%s", out[:i])
				out = out[i:]
			}
			var r struct {
				Error string `json:"error"`
				End   struct {
					Received struct{ Bytes int64 }              `json:"sum_received"`
					Sent     struct{ Bytes, Retransmits int64 } `json:"sum_sent"`
				} `json:"end"`
			}
			if err := json.Unmarshal(out, &r); err != nil {
				t.Logf("%.300s", out)
				t.Fatal(err)
			}
			if r.Error != "" || r.End.Received.Bytes <= 0 || name != "later" && r.End.Sent.Bytes < r.End.Received.Bytes*9/10 {
				t.Errorf("%+v", r)
			}
			if n := r.End.Sent.Retransmits; n < 0 || n > 1e6 { // iperf3 prints -1 or 2³²-1 if it does not know
				t.Errorf("%d segments were sent again", n)
			}
		})
	}
	if out, err := exec.CommandContext(t.Context(), iperf3, "-c", "127.0.0.1", "-p", port, "-u", "-t", "1").CombinedOutput(); err == nil {
		t.Errorf("UDP is not served, and yet: %s", out)
	}
}

// A busy iperf3 server, no server, and another kind of server: the errors say
// which.
func TestIperf3Errors(t *testing.T) {
	s := serving(t, serve.Options{Limits: serve.Limits{Handshake: time.Second}})
	c := dialed(t, "iperf3://"+s.Addr().String(), protocol.Options{Ping: "tcp://" + s.Addr().String()})
	if _, err := c.Phase(t.Context(), measure.PhaseSpec{Name: "x", Duration: time.Second, FlowsUp: 1}); err == nil {
		t.Error("no error of a server that is none")
	}
}
