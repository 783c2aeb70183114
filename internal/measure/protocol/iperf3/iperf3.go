// Package iperf3 is iperf3's protocol: the wire format of its control connection,
// which is a cookie, states, and JSON with its length before it, and a client. A
// test goes
//
//	client                          server
//	cookie (37 bytes)            →
//	                             ←  9 parameters, please
//	parameters (JSON)            →
//	                             ←  10 open the streams
//	streams, each begins with the cookie
//	                             ←  1 start, 2 running
//	              … data …
//	4 end                        →
//	                             ←  13 results, please
//	results (JSON)               →
//	                             ←  results (JSON), 14 display
//	16 done                      →
package iperf3

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"unbloat/unit"
)

// Port is iperf3's TCP port.
const Port = 5201

// A State is one byte that starts the next step of a test.
type State int8

// The states.
const (
	TestStart       State = 1
	TestRunning     State = 2
	TestEnd         State = 4
	ParamExchange   State = 9
	CreateStreams   State = 10
	ServerTerminate State = 11
	ClientTerminate State = 12
	ExchangeResults State = 13
	DisplayResults  State = 14
	Done            State = 16
	AccessDenied    State = -1
	ServerError     State = -2
)

func (s State) String() string {
	name := map[State]string{
		TestStart: "start", TestRunning: "running", TestEnd: "end", ParamExchange: "parameters",
		CreateStreams: "streams", ServerTerminate: "the server stops", ClientTerminate: "the client stops",
		ExchangeResults: "results", DisplayResults: "display", Done: "done",
		AccessDenied: "the server is busy with another test", ServerError: "the server's error",
	}[s]
	if name == "" {
		return fmt.Sprintf("state %d", int8(s))
	}
	return name
}

// CookieSize is the length of a cookie on the wire, its final zero included.
const CookieSize = 37

// A Cookie marks the connections of one test.
type Cookie [CookieSize]byte

// MakeCookie makes a cookie of random bytes.
func MakeCookie(random [CookieSize - 1]byte) Cookie {
	const letters = "abcdefghijklmnopqrstuvwxyz234567"
	var c Cookie
	for i, b := range random {
		c[i] = letters[b%32]
	}
	return c
}

// ErrMalformed is wrapped by errors about input from the other end.
var ErrMalformed = errors.New("malformed")

// ParseCookie checks a cookie.
func ParseCookie(b []byte) (Cookie, error) {
	var c Cookie
	if len(b) != CookieSize || b[CookieSize-1] != 0 {
		return c, fmt.Errorf("%w: not a cookie of iperf3", ErrMalformed)
	}
	for _, x := range b[:CookieSize-1] {
		if x <= ' ' || x > '~' {
			return c, fmt.Errorf("%w: not a cookie of iperf3", ErrMalformed)
		}
	}
	copy(c[:], b)
	return c, nil
}

// Params are what the client wants.
type Params struct {
	TCP           bool   `json:"tcp,omitempty"`
	UDP           bool   `json:"udp,omitempty"`
	SCTP          bool   `json:"sctp,omitempty"`
	Omit          int    `json:"omit"`
	Time          int    `json:"time"` // seconds
	Num           int64  `json:"num"`
	BlockCount    int64  `json:"blockcount"`
	Parallel      int    `json:"parallel"`
	Reverse       bool   `json:"reverse,omitempty"`       // the server sends
	Bidirectional bool   `json:"bidirectional,omitempty"` // both do: first the client's streams, then the server's
	Len           int64  `json:"len,omitempty"`
	Bandwidth     int64  `json:"bandwidth,omitempty"` // bit/s of a stream; 0: all there is
	Congestion    string `json:"congestion,omitempty"`
	TOS           int    `json:"TOS,omitempty"` // the traffic class byte
	ClientVersion string `json:"client_version,omitempty"`
}

// MaxParallel bounds the streams of one direction, as iperf3 does.
const MaxParallel = 128

// ParseParams reads parameters and checks their bounds.
func ParseParams(b []byte) (Params, error) {
	var p Params
	if err := json.Unmarshal(b, &p); err != nil {
		return Params{}, fmt.Errorf("%w parameters: %v", ErrMalformed, err)
	}
	p.Parallel = max(p.Parallel, 1)
	for _, v := range []struct {
		name         string
		v, low, high int64
	}{
		{"parallel", int64(p.Parallel), 1, MaxParallel}, {"time", int64(p.Time), 0, 86400},
		{"omit", int64(p.Omit), 0, 60}, {"TOS", int64(p.TOS), 0, 255}, {"bandwidth", p.Bandwidth, 0, 1 << 50},
	} {
		if v.v < v.low || v.v > v.high {
			return Params{}, fmt.Errorf("%w parameters: %s is %d, must be %d to %d", ErrMalformed, v.name, v.v, v.low, v.high)
		}
	}
	if len(p.Congestion) > 16 {
		return Params{}, fmt.Errorf("%w parameters: congestion", ErrMalformed)
	}
	return p, nil
}

// Up returns how many streams the client sends on.
func (p Params) Up() int {
	if p.Reverse && !p.Bidirectional {
		return 0
	}
	return p.Parallel
}

// Down returns how many streams the server sends on.
func (p Params) Down() int {
	if p.Reverse || p.Bidirectional {
		return p.Parallel
	}
	return 0
}

// Results are one end's results of a test.
type Results struct {
	CPUTotal       float64        `json:"cpu_util_total"`
	CPUUser        float64        `json:"cpu_util_user"`
	CPUSystem      float64        `json:"cpu_util_system"`
	HasRetransmits float64        `json:"sender_has_retransmits"`
	CongestionUsed string         `json:"congestion_used,omitempty"`
	Streams        []StreamResult `json:"streams"`
}

// A StreamResult is one end's result of one stream.
type StreamResult struct {
	ID          int     `json:"id"`
	Bytes       int64   `json:"bytes"`
	Retransmits float64 `json:"retransmits"` // -1 (iperf3 also writes 2⁶⁴-1): not known
	Jitter      float64 `json:"jitter"`
	Errors      int64   `json:"errors"`
	Packets     int64   `json:"packets"`
	StartTime   float64 `json:"start_time"`
	EndTime     float64 `json:"end_time"`
}

// StreamID returns the number that iperf3 gives to the i-th stream: 1, 3, 4, …
func StreamID(i int) int {
	if i == 0 {
		return 1
	}
	return i + 2
}

// ParseResults reads results. Unknown fields are ignored.
func ParseResults(b []byte) (Results, error) {
	var r Results
	if err := json.Unmarshal(b, &r); err != nil {
		return Results{}, fmt.Errorf("%w results: %v", ErrMalformed, err)
	}
	if len(r.Streams) > 2*MaxParallel {
		return Results{}, fmt.Errorf("%w results: too many streams", ErrMalformed)
	}
	return r, nil
}

// Frame returns the JSON of v with its length before it.
func Frame(v any) ([]byte, error) {
	j, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(j))), j...), nil
}

// MaxFrame bounds the JSON of parameters and results.
const MaxFrame = 64 * unit.KB

// ReadFrame reads JSON with its length before it.
func ReadFrame(r io.Reader) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > uint32(MaxFrame) {
		return nil, fmt.Errorf("%w: JSON of %d bytes is announced, at most %v are read", ErrMalformed, n, MaxFrame)
	}
	b := make([]byte, n)
	_, err := io.ReadFull(r, b)
	return b, err
}
