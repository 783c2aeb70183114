package protocol_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/protocol"
	"unbloat/internal/measure/verdict"
	"unbloat/internal/serve"
	"unbloat/testkit/await"
)

// loaded runs the four phases and checks that each has load and probes.
func loaded(t *testing.T, c phases.Tester) *verdict.Test {
	t.Helper()
	got, err := phases.Run(t.Context(), c, phases.Config{Idle: time.Second, Load: time.Second, Flows: 2})
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

// narrow returns the address of a line to a server that carries about 100 Mbit/s
// for each connection and direction: at the loopback's rate a test would only
// take both processors.
func narrow(t *testing.T, server string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			if far, err := net.Dial("tcp", server); err == nil {
				go carry(near.(*net.TCPConn), far.(*net.TCPConn))
				go carry(far.(*net.TCPConn), near.(*net.TCPConn))
			} else {
				_ = near.Close()
			}
		}
	}()
	return l.Addr().String()
}

// carry is one direction of a connection over a narrow line.
func carry(to, from *net.TCPConn) {
	const atOnce = 64 << 10
	_, _ = to.SetWriteBuffer(atOnce), from.SetReadBuffer(atOnce)
	beat := time.NewTicker(5 * time.Millisecond)
	defer beat.Stop()
	for range beat.C {
		switch _, err := io.CopyN(to, from, atOnce); {
		case errors.Is(err, io.EOF):
			_ = to.CloseWrite() // the other direction may have closed it
			return
		case err != nil:
			_, _ = to.Close(), from.Close()
			return
		}
	}
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
	loaded(t, dialed(t, "iperf3://"+narrow(t, address), protocol.Options{Ping: iperf3Ping(t)}))
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
	await.NotShort(t)
	s := serving(t, serve.Options{Iperf3: "127.0.0.1:0"})
	loaded(t, dialed(t, "iperf3://"+narrow(t, s.Iperf3().String()), protocol.Options{Ping: "tcp://" + s.Addr().String()}))
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
	if _, err := c.Phase(t.Context(), phases.PhaseSpec{Name: "x", Duration: time.Second, FlowsUp: 1}); err == nil {
		t.Error("no error of a server that is none")
	}
}
