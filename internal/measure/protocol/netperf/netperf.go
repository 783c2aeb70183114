// Package netperf is the control protocol of netperf 2.7, as its clients call
// for the tests TCP_STREAM, TCP_MAERTS, TCP_RR and UDP_RR: messages to read and
// to write, without I/O.
//
// Every message has MessageSize bytes: 164 words of 32 bits, big-endian; a name
// lies in them as text that ends with a zero byte. The client asks for a test
// (Request), the server says where it listens for that test's data (Setup), and
// after the test what it counted (Results). All that is known here of the words
// comes from netperf's documentation and from what its programs send.
package netperf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"
)

const (
	// DefaultPort is where netperf's clients look for a server, on TCP.
	DefaultPort = 12865
	// MessageSize is the length of every message, in bytes.
	MessageSize = 656
	// MaxExchange is the longest request or response of a test of transactions, in bytes.
	MaxExchange = 1 << 20
	// MaxDatagram is the longest request or response of UDP_RR, in bytes.
	MaxDatagram = 65507
)

// Kinds of messages.
const (
	kindOmni  = 97
	kindReply = 98
)

// Words of a request.
const (
	wordSendBuffer    = 2
	wordSendSize      = 3
	wordRequestSize   = 7
	wordReceiveBuffer = 8
	wordReceiveSize   = 9
	wordResponseSize  = 13
	wordFlags         = 14
	wordAmount        = 16
	wordServerPort    = 22
	wordSocket        = 24
	wordProtocol      = 25
	wordDirection     = 26
	wordClientPort    = 27
	wordTOS           = 39
	wordCongestion    = 40
)

// Words of the first reply, and of the second.
const (
	wordError = 1

	setupReceiveBuffer = 2
	setupReceiveSize   = 3
	setupSendBuffer    = 5
	setupSendSize      = 6
	setupFlags         = 8
	setupPort          = 13
	setupTOS           = 19

	resultReceived      = 2 // two words
	resultReceiveCalls  = 4
	resultReceiveBuffer = 5
	resultSent          = 6 // two words
	resultSendCalls     = 8
	resultSendBuffer    = 9
	resultTransactions  = 10 // two words
	resultElapsed       = 12
	resultRetransmits   = 28
	resultCongestion    = 69

	congestionSize = 16
)

// Flags of a request.
const (
	flagNoDelay     = 1
	flagConnections = 4 // a connection for each transaction
)

// Values of the words that say what the data travel on.
const (
	socketStream   = 1
	socketDatagram = 2
	protocolTCP    = 6
	protocolUDP    = 17
)

// Errors of requests that are not served.
var (
	ErrMalformed   = errors.New("malformed message of netperf")
	ErrUnsupported = errors.New("netperf's clients are served TCP_STREAM, TCP_MAERTS, TCP_RR and UDP_RR only")
)

// An Errno is what a server answers instead of a test. The client prints what
// its own system calls that number.
type Errno int32

// Numbers that a server answers; they are Linux's.
const (
	ErrnoBusy        Errno = 16 // EBUSY
	ErrnoInvalid     Errno = 22 // EINVAL
	ErrnoUnsupported Errno = 95 // EOPNOTSUPP
)

// A Test is what a client asks for.
type Test uint8

// The tests that are served.
const (
	TCPStream Test = iota + 1 // the client sends
	TCPMaerts                 // the server sends
	TCPRR                     // requests and responses on one connection
	UDPRR                     // requests and responses as datagrams
)

// String returns netperf's name of the test.
func (t Test) String() string {
	switch t {
	case TCPStream:
		return "TCP_STREAM"
	case TCPMaerts:
		return "TCP_MAERTS"
	case TCPRR:
		return "TCP_RR"
	case UDPRR:
		return "UDP_RR"
	}
	return fmt.Sprintf("test %d", uint8(t))
}

// words returns what a request for the test says of socket, protocol and direction.
// The direction is the server's: 2 it sends, 4 it receives, 6 both.
func (t Test) words() [3]int32 {
	switch t {
	case TCPStream:
		return [3]int32{socketStream, protocolTCP, 4}
	case TCPMaerts:
		return [3]int32{socketStream, protocolTCP, 2}
	case TCPRR:
		return [3]int32{socketStream, protocolTCP, 6}
	case UDPRR:
		return [3]int32{socketDatagram, protocolUDP, 6}
	}
	return [3]int32{}
}

// A Request asks for a test. Sizes are in bytes; 0 leaves them to the server.
type Request struct {
	Test          Test
	Duration      time.Duration // whole seconds; 0 if Amount counts
	Amount        int64         // bytes, or transactions, after which the test ends; 0 if Duration counts
	SendBuffer    int           // of the server's socket
	ReceiveBuffer int
	SendSize      int // of one call
	ReceiveSize   int
	RequestSize   int    // of a transaction
	ResponseSize  int    // of a transaction
	ServerPort    int    // wanted for the data; 0: any
	ClientPort    int    // of the client's socket, before any translation of addresses
	TOS           int    // type of service, 0–255; -1: none wanted
	Congestion    string // congestion control of the server's socket; "": the system's
	NoDelay       bool
}

// word returns a word of a message.
func word(b []byte, i int) int32 { return int32(binary.BigEndian.Uint32(b[4*i:])) }

func put(b []byte, i int, v int32) { binary.BigEndian.PutUint32(b[4*i:], uint32(v)) }

func wide(b []byte, i int) int64 { return int64(binary.BigEndian.Uint64(b[4*i:])) }

func putWide(b []byte, i int, v int64) { binary.BigEndian.PutUint64(b[4*i:], uint64(v)) }

// text returns the name that begins at a word.
func text(b []byte, i int) string {
	name, _, _ := bytes.Cut(b[4*i:4*i+congestionSize], []byte{0})
	return string(name)
}

// putText writes a name, cut off where it is too long.
func putText(b []byte, i int, s string) { copy(b[4*i:4*i+congestionSize-1], s) }

// ParseRequest reads a client's message. Errors wrap ErrMalformed, or
// ErrUnsupported where it asks for what is not served.
func ParseRequest(b []byte) (Request, error) {
	if len(b) != MessageSize {
		return Request{}, fmt.Errorf("%w: %d bytes, not %d", ErrMalformed, len(b), MessageSize)
	}
	if k := word(b, 0); k < 0 || k > 1<<16 {
		return Request{}, fmt.Errorf("%w: it begins with %#x", ErrMalformed, uint32(k))
	} else if k != kindOmni {
		return Request{}, fmt.Errorf("%w: the client asks for number %d", ErrUnsupported, k)
	}
	var r Request
	asked := [3]int32{word(b, wordSocket), word(b, wordProtocol), word(b, wordDirection)}
	for t := TCPStream; t <= UDPRR; t++ {
		if t.words() == asked {
			r.Test = t
		}
	}
	flags := word(b, wordFlags)
	if r.Test == 0 || flags&flagConnections != 0 {
		return Request{}, fmt.Errorf("%w: socket %d, protocol %d, direction %d, flags %#x", ErrUnsupported, asked[0], asked[1], asked[2], uint32(flags))
	}
	r.NoDelay = flags&flagNoDelay != 0
	switch n := int64(word(b, wordAmount)); {
	case n > 0:
		r.Duration = time.Duration(n) * time.Second
	case n < 0:
		r.Amount = -n
	default:
		return Request{}, fmt.Errorf("%w: a test without an end", ErrMalformed)
	}
	size := func(i int) int { return max(int(word(b, i)), 0) }
	r.SendBuffer, r.ReceiveBuffer = size(wordSendBuffer), size(wordReceiveBuffer)
	r.SendSize, r.ReceiveSize = size(wordSendSize), size(wordReceiveSize)
	if r.Test == TCPRR || r.Test == UDPRR {
		r.RequestSize, r.ResponseSize = size(wordRequestSize), size(wordResponseSize)
		if err := r.checkExchange(); err != nil {
			return Request{}, err
		}
	}
	r.ServerPort, r.ClientPort = size(wordServerPort), size(wordClientPort)
	if r.ServerPort > math.MaxUint16 || r.ClientPort > math.MaxUint16 {
		return Request{}, fmt.Errorf("%w: ports %d and %d", ErrMalformed, r.ServerPort, r.ClientPort)
	}
	if r.TOS = int(word(b, wordTOS)); r.TOS < -1 || r.TOS > math.MaxUint8 {
		return Request{}, fmt.Errorf("%w: type of service %d", ErrMalformed, r.TOS)
	}
	r.Congestion = text(b, wordCongestion)
	return r, nil
}

// checkExchange bounds the sizes of transactions. A datagram that is answered
// by a longer one is not served.
func (r Request) checkExchange() error {
	most := MaxExchange
	if r.Test == UDPRR {
		most = MaxDatagram
	}
	if r.RequestSize < 1 || r.ResponseSize < 1 || r.RequestSize > most || r.ResponseSize > most {
		return fmt.Errorf("%w: requests of %d and responses of %d bytes, of which each has 1 to %d", ErrMalformed, r.RequestSize, r.ResponseSize, most)
	}
	if r.Test == UDPRR && r.ResponseSize > r.RequestSize {
		return fmt.Errorf("%w, and no response of UDP_RR that is longer than its request: %d and %d bytes", ErrUnsupported, r.ResponseSize, r.RequestSize)
	}
	return nil
}

// Message returns the request as a client sends it.
func (r Request) Message() []byte {
	b := make([]byte, MessageSize)
	put(b, 0, kindOmni)
	orDefault := func(i, v int) {
		if v <= 0 {
			v = -1
		}
		put(b, i, int32(v))
	}
	orDefault(wordSendBuffer, r.SendBuffer)
	orDefault(wordReceiveBuffer, r.ReceiveBuffer)
	orDefault(wordSendSize, r.SendSize)
	orDefault(wordReceiveSize, r.ReceiveSize)
	orDefault(wordRequestSize, r.RequestSize)
	orDefault(wordResponseSize, r.ResponseSize)
	if r.NoDelay {
		put(b, wordFlags, flagNoDelay)
	}
	if r.Amount > 0 {
		put(b, wordAmount, -int32(min(r.Amount, math.MaxInt32)))
	} else {
		put(b, wordAmount, int32(r.Duration/time.Second))
	}
	for i, v := range r.Test.words() {
		put(b, wordSocket+i, v)
	}
	put(b, wordServerPort, int32(r.ServerPort))
	put(b, wordClientPort, int32(r.ClientPort))
	put(b, wordTOS, int32(r.TOS))
	putText(b, wordCongestion, r.Congestion)
	return b
}

// A Setup is the server's first reply: where it listens for the data, and with
// which settings. Sizes are in bytes.
type Setup struct {
	Errno         Errno // not 0: there is no test, and nothing else counts
	Port          int   // for the data
	SendBuffer    int
	ReceiveBuffer int
	SendSize      int
	ReceiveSize   int
	TOS           int // type of service of what the server sends; -1: none set
	NoDelay       bool
}

// Message returns the reply as a server sends it.
func (s Setup) Message() []byte {
	b := make([]byte, MessageSize)
	put(b, 0, kindReply)
	put(b, wordError, int32(s.Errno))
	put(b, setupPort, int32(s.Port))
	put(b, setupSendBuffer, int32(s.SendBuffer))
	put(b, setupReceiveBuffer, int32(s.ReceiveBuffer))
	put(b, setupSendSize, int32(s.SendSize))
	put(b, setupReceiveSize, int32(s.ReceiveSize))
	put(b, setupTOS, int32(s.TOS))
	if s.NoDelay {
		put(b, setupFlags, flagNoDelay)
	}
	return b
}

// ParseSetup reads a server's first reply. Errors wrap ErrMalformed.
func ParseSetup(b []byte) (Setup, error) {
	if err := checkReply(b); err != nil {
		return Setup{}, err
	}
	s := Setup{
		Errno: Errno(word(b, wordError)), Port: int(word(b, setupPort)), TOS: int(word(b, setupTOS)),
		SendBuffer: int(word(b, setupSendBuffer)), ReceiveBuffer: int(word(b, setupReceiveBuffer)),
		SendSize: int(word(b, setupSendSize)), ReceiveSize: int(word(b, setupReceiveSize)),
		NoDelay: word(b, setupFlags)&flagNoDelay != 0,
	}
	if s.Errno == 0 && (s.Port <= 0 || s.Port > math.MaxUint16) {
		return Setup{}, fmt.Errorf("%w: data to port %d", ErrMalformed, s.Port)
	}
	return s, nil
}

// checkReply checks that a message is a server's.
func checkReply(b []byte) error {
	if len(b) != MessageSize {
		return fmt.Errorf("%w: %d bytes, not %d", ErrMalformed, len(b), MessageSize)
	}
	// Of the second reply netperf's own server leaves the first word in its machine's order.
	if k := word(b, 0); k != kindReply && k != kindReply<<24 {
		return fmt.Errorf("%w: kind %d, not a reply", ErrMalformed, k)
	}
	return nil
}

// Results are the server's second reply: what it counted. Sizes are in bytes.
type Results struct {
	Errno         Errno
	Received      int64
	Sent          int64
	ReceiveCalls  int64
	SendCalls     int64
	Transactions  int64
	ReceiveBuffer int // at the end of the test
	SendBuffer    int
	Elapsed       time.Duration
	Retransmits   int    // segments that the server sent again; -1: not known
	Congestion    string // congestion control that the server's socket used
}

// Message returns the reply as a server sends it.
func (r Results) Message() []byte {
	b := make([]byte, MessageSize)
	put(b, 0, kindReply)
	put(b, wordError, int32(r.Errno))
	putWide(b, resultReceived, r.Received)
	putWide(b, resultSent, r.Sent)
	putWide(b, resultTransactions, r.Transactions)
	calls := func(n int64) int32 { return int32(min(n, math.MaxInt32)) }
	put(b, resultReceiveCalls, calls(r.ReceiveCalls))
	put(b, resultSendCalls, calls(r.SendCalls))
	put(b, resultReceiveBuffer, int32(r.ReceiveBuffer))
	put(b, resultSendBuffer, int32(r.SendBuffer))
	binary.BigEndian.PutUint32(b[4*resultElapsed:], math.Float32bits(float32(r.Elapsed.Seconds())))
	put(b, resultRetransmits, int32(r.Retransmits))
	putText(b, resultCongestion, r.Congestion)
	return b
}

// ParseResults reads a server's second reply. Errors wrap ErrMalformed.
func ParseResults(b []byte) (Results, error) {
	if err := checkReply(b); err != nil {
		return Results{}, err
	}
	elapsed := float64(math.Float32frombits(binary.BigEndian.Uint32(b[4*resultElapsed:])))
	if !(elapsed >= 0 && elapsed < 1e9) { // not a number fails too
		return Results{}, fmt.Errorf("%w: %v s", ErrMalformed, elapsed)
	}
	return Results{
		Errno: Errno(word(b, wordError)), Received: wide(b, resultReceived), Sent: wide(b, resultSent),
		Transactions: wide(b, resultTransactions), ReceiveCalls: int64(word(b, resultReceiveCalls)),
		SendCalls: int64(word(b, resultSendCalls)), ReceiveBuffer: int(word(b, resultReceiveBuffer)),
		SendBuffer: int(word(b, resultSendBuffer)), Elapsed: time.Duration(elapsed * float64(time.Second)),
		Retransmits: int(word(b, resultRetransmits)), Congestion: text(b, resultCongestion),
	}, nil
}
