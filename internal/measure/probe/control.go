package probe

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"unbloat/unit"
)

// The control connection carries JSON objects, one a line: a Request from the
// client, then a Reply from the server, in turn. A data connection begins with
// one Request (OpData) and one Reply, and then carries nothing but load.

// Bounds of one line, newline included.
const (
	MaxRequest unit.Size = 4 * unit.KB
	MaxReply   unit.Size = 16 * unit.MB
)

// Operations of a Request.
const (
	OpHello  = "hello"  // opens a session: Versions
	OpData   = "data"   // first line of a data connection: Token, Group, Dir, CC, DSCP
	OpStart  = "start"  // starts a group's load: Group, Flows, Limit
	OpStop   = "stop"   // stops it and reports: Group
	OpUDP    = "udp"    // opens a stream of datagrams: Dir; for down also Interval, Size, Limit
	OpTrains = "trains" // opens a stream of trains of datagrams: Dir; for down also Trains
	OpReport = "report" // what was received of a stream: Stream
	OpEnd    = "end"    // closes a stream and reports: Stream
)

// Directions, as seen by the client.
const (
	DirUp   = "up"
	DirDown = "down"
	DirEcho = "echo" // streams only: both ways

)

// A Request is what a client asks.
type Request struct {
	Op       string        `json:"op"`
	Versions []int         `json:"versions,omitempty"`
	Agent    string        `json:"agent,omitempty"`
	Token    string        `json:"token,omitempty"`
	Auth     string        `json:"auth,omitempty"` // answer to a challenge, hexadecimal: see Authenticate
	Group    uint32        `json:"group,omitempty"`
	Dir      string        `json:"dir,omitempty"`
	CC       string        `json:"cc,omitempty"`   // congestion control, "" for the server's default
	DSCP     int           `json:"dscp,omitempty"` // 0–63
	Flows    int           `json:"flows,omitempty"`
	Limit    time.Duration `json:"limit_ns,omitempty"` // the server stops by itself after it
	Bin      time.Duration `json:"bin_ns,omitempty"`   // of the goodput series
	Stream   uint32        `json:"stream,omitempty"`
	Interval time.Duration `json:"interval_ns,omitempty"`
	Size     unit.Size     `json:"size,omitempty"`
	Trains   []TrainSpec   `json:"trains,omitempty"` // OpTrains: what the server is to send
}

// A Reply is what the server answers. Error is empty if it did as asked.
type Reply struct {
	Error       string       `json:"error,omitempty"`
	Version     int          `json:"version,omitempty"`
	Token       string       `json:"token,omitempty"`        // of the session, hexadecimal
	Challenge   string       `json:"challenge,omitempty"`    // OpHello: ask again, with Auth
	Stream      uint32       `json:"stream,omitempty"`       // OpUDP
	StreamToken string       `json:"stream_token,omitempty"` // OpUDP, hexadecimal
	Now         unit.Instant `json:"now,omitempty"`          // server's clock
	Load        *LoadReport  `json:"load,omitempty"`         // OpStop
	UDP         *UDPReport   `json:"udp,omitempty"`          // OpReport, OpEnd
	// OpReport, OpEnd of trains.
	Trains *TrainsReport `json:"trains,omitempty"`
}

// A LoadReport is what the server knows of one group of flows.
type LoadReport struct {
	Start  unit.Instant   `json:"start"` // of bin 0, server's clock
	Bin    time.Duration  `json:"bin_ns"`
	Flows  [][]int64      `json:"flows,omitempty"`  // upload: bytes received per flow and bin
	Sender []SenderSample `json:"sender,omitempty"` // download: how the server's sockets fared
	CPU    float64        `json:"cpu"`              // busiest share of the server, 0–1
	Errors []string       `json:"errors,omitempty"` // flows that broke
}

// A SenderSample sums the sending sockets of a group at one instant. Durations
// are totals over the flows since each began (tcp_info of Linux).
type SenderSample struct {
	At          unit.Instant  `json:"at"`
	Flows       int           `json:"flows"`
	Known       bool          `json:"known"`            // whether the system reports what follows
	Busy        time.Duration `json:"busy_ns"`          // had data in flight or waiting
	RwndLimited time.Duration `json:"rwnd_ns"`          // held back by the receiver's window
	BufLimited  time.Duration `json:"sndbuf_ns"`        // held back by the send buffer
	Retransmits int64         `json:"retransmits"`      // segments
	Acked       int64         `json:"acked"`            // bytes
	Sacked      int64         `json:"sacked,omitempty"` // bytes that arrived behind a hole, about
	Unsent      int64         `json:"unsent"`           // bytes waiting in the sockets
}

// A UDPReport is what the server knows of one stream of datagrams.
type UDPReport struct {
	Received uint32       `json:"received"`
	Bytes    unit.Size    `json:"bytes"`
	Sent     uint32       `json:"sent"` // a downward stream's
	First    unit.Instant `json:"first"`
	Last     unit.Instant `json:"last"`
}

// Bounds of what a Request may ask; the server's own limits may be lower.
const (
	MaxFlows    = 1024
	MaxLimit    = time.Hour
	MinBin      = 10 * time.Millisecond
	MaxBin      = 10 * time.Second
	maxName     = 64
	maxVersions = 16
)

// ErrRequest is what every error of ParseRequest wraps.
var ErrRequest = errors.New("malformed request")

// ParseRequest reads one line from a client and checks every field against its bounds.
func ParseRequest(line []byte) (Request, error) {
	var r Request
	if len(line) > int(MaxRequest) {
		return r, fmt.Errorf("%w: longer than %v", ErrRequest, MaxRequest)
	}
	if err := json.Unmarshal(line, &r); err != nil {
		return Request{}, fmt.Errorf("%w: %v", ErrRequest, err)
	}
	if err := r.check(); err != nil {
		return Request{}, fmt.Errorf("%w: %s: %v", ErrRequest, strconv.QuoteToASCII(clip(r.Op)), err)
	}
	return r, nil
}

func (r *Request) check() error {
	if !slices.Contains([]string{OpHello, OpData, OpStart, OpStop, OpUDP, OpTrains, OpReport, OpEnd}, r.Op) {
		return errors.New("no such operation")
	}
	if !slices.Contains([]string{"", DirUp, DirDown, DirEcho}, r.Dir) {
		return errors.New("no such direction")
	}
	if !plain(r.CC) || !plain(r.Token) || !plain(r.Auth) || !plain(r.Agent) {
		return fmt.Errorf("a name has more than %d or other than printable characters", maxName)
	}
	if len(r.Versions) > maxVersions {
		return errors.New("too many versions")
	}
	if len(r.Trains) > 0 || r.Op == OpTrains && r.Dir == DirDown {
		if err := CheckTrains(r.Trains); err != nil {
			return err
		}
	}
	for _, b := range []struct {
		name         string
		v, low, high int64
	}{
		{"dscp", int64(r.DSCP), 0, 63},
		{"flows", int64(r.Flows), 0, MaxFlows},
		{"limit_ns", int64(r.Limit), 0, int64(MaxLimit)},
		{"bin_ns", int64(r.Bin), 0, int64(MaxBin)},
		{"interval_ns", int64(r.Interval), 0, int64(time.Minute)},
		{"size", int64(r.Size), 0, int64(MaxSize)},
	} {
		if b.v < b.low || b.v > b.high {
			return fmt.Errorf("%s is %d, must be %d to %d", b.name, b.v, b.low, b.high)
		}
	}
	return nil
}

// plain reports whether s is short and printable ASCII, so that it can be
// logged and handed to the kernel.
func plain(s string) bool {
	if len(s) > maxName {
		return false
	}
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

func clip(s string) string { return s[:min(len(s), maxName)] }

// ParseReply reads one line from a server. A refusal (Reply.Error) is no error here.
func ParseReply(line []byte) (Reply, error) {
	var r Reply
	if len(line) > int(MaxReply) {
		return r, fmt.Errorf("malformed reply: longer than %v", MaxReply)
	}
	if err := json.Unmarshal(line, &r); err != nil {
		return Reply{}, fmt.Errorf("malformed reply: %w", err)
	}
	r.Error = strconv.QuoteToASCII(r.Error)
	r.Error = r.Error[1 : len(r.Error)-1] // it will be shown on a terminal
	if l := r.Load; l != nil {
		if len(l.Flows) > MaxFlows || l.Bin < 0 || l.Bin > MaxBin {
			return Reply{}, errors.New("malformed reply: load report out of bounds")
		}
		for _, f := range l.Flows {
			for _, n := range f {
				if n < 0 || n > 1<<50 {
					return Reply{}, errors.New("malformed reply: bytes received out of bounds")
				}
			}
		}
	}
	if t := r.Trains; t != nil && (len(t.Sent) > MaxTrains || len(t.Runs) > MaxTrains) {
		return Reply{}, errors.New("malformed reply: more trains than there can be")
	}
	return r, nil
}

// AppendLine appends the JSON of a Request or Reply and a newline.
func AppendLine[T Request | Reply](b []byte, v T) []byte {
	j, err := json.Marshal(v)
	if err != nil { // plain structs of numbers and strings always marshal
		panic("probe: marshal: " + err.Error())
	}
	return append(append(b, j...), '\n')
}

// ParseToken reads a hexadecimal stream token.
func ParseToken(s string) (uint64, error) { return strconv.ParseUint(s, 16, 64) }

// FormatToken prints a stream token as ParseToken reads it.
func FormatToken(t uint64) string { return strconv.FormatUint(t, 16) }
