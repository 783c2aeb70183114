package netperf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// recorded returns a message of netperf 2.7.0. The file lists only the words
// that are not 0, each with its index.
func recorded(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".words"))
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, MessageSize)
	for line := range bytes.Lines(text) {
		var at int
		var hex uint32
		if _, err := fmt.Sscanf(string(line), "%d %x", &at, &hex); err != nil {
			t.Fatalf("%s: %q: %v", name, line, err)
		}
		binary.BigEndian.PutUint32(b[4*at:], hex)
	}
	return b
}

// Requests of netperf 2.7.0's client, and what they mean.
func TestRecordedRequests(t *testing.T) {
	for name, want := range map[string]Request{
		"stream":       {Test: TCPStream, Duration: 2 * time.Second, ClientPort: 46125, TOS: 0x28},
		"maerts":       {Test: TCPMaerts, Duration: 2 * time.Second, ClientPort: 38109, TOS: 0xb8},
		"stream-sizes": {Test: TCPStream, Duration: 2 * time.Second, ReceiveSize: 2000, ClientPort: 35353, TOS: 0x28, Congestion: "reno"},
		"udp-rr":       {Test: UDPRR, Duration: 2 * time.Second, RequestSize: 1, ResponseSize: 1, ClientPort: 49953, TOS: 0xb8},
		"tcp-rr":       {Test: TCPRR, Duration: 2 * time.Second, RequestSize: 100, ResponseSize: 300, ClientPort: 40429, TOS: -1},
		"buffers":      {Test: TCPStream, Duration: time.Second, SendBuffer: 34000, ReceiveBuffer: 35000, ClientPort: 46001, TOS: -1},
		"amount":       {Test: TCPStream, Amount: 1000000, ClientPort: 42385, TOS: -1},
		"port":         {Test: TCPStream, Duration: time.Second, ServerPort: 6666, ClientPort: 5555, TOS: -1},
	} {
		got, err := ParseRequest(recorded(t, name))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: %s", name, d)
		}
		again, err := ParseRequest(got.Message())
		if d := cmp.Diff(got, again); d != "" || err != nil {
			t.Errorf("%s, sent by us: %v %s", name, err, d)
		}
	}
}

// Requests for tests that are not supported.
func TestUnsupported(t *testing.T) {
	for _, name := range []string{"tcp-crr", "udp-stream", "udp-rr-longer"} {
		if _, err := ParseRequest(recorded(t, name)); !errors.Is(err, ErrUnsupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, b := range map[string][]byte{
		"empty":   nil,
		"short":   make([]byte, MessageSize-1),
		"HTTP":    append([]byte("GET / HTTP/1.1\r\n"), make([]byte, MessageSize-16)...),
		"endless": Request{Test: TCPStream, TOS: -1}.Message(),
		"TOS":     Request{Test: TCPStream, Duration: time.Second, TOS: 256}.Message(),
		"sizes":   Request{Test: TCPRR, Duration: time.Second, RequestSize: MaxExchange + 1, ResponseSize: 1}.Message(),
		"no size": Request{Test: UDPRR, Duration: time.Second, RequestSize: 1}.Message(),
		"port":    Request{Test: TCPStream, Duration: time.Second, ClientPort: 1 << 16}.Message(),
	} {
		if _, err := ParseRequest(b); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Replies of netperf 2.7.0's server, and what they mean.
func TestRecordedReplies(t *testing.T) {
	s, err := ParseSetup(recorded(t, "stream-setup"))
	want := Setup{Port: 45647, SendBuffer: 16384, ReceiveBuffer: 131072, SendSize: -1, ReceiveSize: 131072, TOS: 0x28}
	if d := cmp.Diff(want, s); d != "" || err != nil {
		t.Errorf("%v %s", err, d)
	}
	for name, want := range map[string]Results{
		"stream-results": {Received: 2751578112, ReceiveCalls: 29001, ReceiveBuffer: 6658822, SendBuffer: 4194304, Congestion: "bbr"},
		"maerts-results": {Sent: 6828425216, SendCalls: 416774, ReceiveBuffer: 131072, SendBuffer: 4194304, Retransmits: 4, Congestion: "reno"},
		"udp-rr-results": {Received: 197531, Sent: 197531, ReceiveCalls: 197531, SendCalls: 197531, Transactions: 197531, ReceiveBuffer: 212992, SendBuffer: 212992, Retransmits: -1},
	} {
		r, err := ParseResults(recorded(t, name))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if e := r.Elapsed; e < 2*time.Second || e > 2100*time.Millisecond {
			t.Errorf("%s: lasted %v", name, e)
		}
		r.Elapsed = 0
		if d := cmp.Diff(want, r); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

func TestReplies(t *testing.T) {
	s := Setup{Errno: ErrnoBusy, Port: 1, SendBuffer: 2, ReceiveBuffer: 3, SendSize: -1, ReceiveSize: 5, TOS: -1, NoDelay: true}
	if got, err := ParseSetup(s.Message()); err != nil || got != s {
		t.Errorf("%+v, %v", got, err)
	}
	r := Results{
		Errno: ErrnoInvalid, Received: 1 << 40, Sent: 1<<50 + 1, Transactions: 7, ReceiveCalls: 8, SendCalls: 9,
		ReceiveBuffer: 10, SendBuffer: 11, Elapsed: 1500 * time.Millisecond, Retransmits: -1, Congestion: "cubic",
	}
	if got, err := ParseResults(r.Message()); err != nil || got != r {
		t.Errorf("%+v, %v", got, err)
	}
	r.Congestion = "a name that is longer than there is room for"
	if got, err := ParseResults(r.Message()); err != nil || got.Congestion != r.Congestion[:congestionSize-1] {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := ParseSetup(Setup{}.Message()); !errors.Is(err, ErrMalformed) {
		t.Errorf("no port: %v", err)
	}
}

// FuzzRequest: accepted requests are within bounds, and are the same when they
// are sent again.
func FuzzRequest(f *testing.F) {
	for _, name := range []string{"stream", "maerts", "tcp-rr", "udp-rr", "amount", "tcp-crr"} {
		f.Add(recorded(f, name))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = ParseSetup(b)   // must not panic
		_, _ = ParseResults(b) // nor this
		r, err := ParseRequest(b)
		if err != nil {
			if !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrUnsupported) {
				t.Fatal(err)
			}
			return
		}
		if (r.Duration > 0) == (r.Amount > 0) || r.RequestSize > MaxExchange || r.ResponseSize > MaxExchange ||
			r.Test == UDPRR && r.ResponseSize > r.RequestSize {
			t.Fatalf("accepted: %+v", r)
		}
		again, err := ParseRequest(r.Message())
		if r.Congestion = cutName(r.Congestion); err != nil || again != r && r.Amount <= 1<<31-1 {
			t.Fatalf("%+v\n%+v, %v", r, again, err)
		}
	})
}

func cutName(s string) string { return s[:min(len(s), congestionSize-1)] }
