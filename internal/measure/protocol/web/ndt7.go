// This part is M-Lab's ndt7 (ndt7 protocol specification, version 0.9):
// paths, message sizes and the JSON of measurements on its WebSocket, and a
// client.

package web

import (
	"time"

	"unbloat/internal/measure/protocol"
	"unbloat/unit"
)

// Protocol is what M-Lab's ndt7 servers speak.
func NDT7() protocol.Protocol {
	return protocol.Protocol{Dial: dial, Schemes: []protocol.Scheme{
		{Name: "ndt7+wss", Port: 443, URL: "https"},
		{Name: "ndt7+ws", Port: 80, URL: "http"}, {Name: "ndt7+http", Port: 80, URL: "http"},
	}}
}

// Values that the specification gives.
const (
	DownloadPath = "/ndt/v7/download"
	UploadPath   = "/ndt/v7/upload"
	Subprotocol  = "net.measurementlab.ndt.v7"

	MinMessage unit.Size = 1 << 13 // first binary messages
	MaxMessage unit.Size = 1 << 20 // largest that a sender scales to
	MaxAccept  unit.Size = 1 << 24 // must be accepted

	Duration    = 10 * time.Second // of a test
	MaxDuration = 15 * time.Second // after which it is cut off
	MeasureMin  = 250 * time.Millisecond
)

// scale limits a message to this fraction of what was sent.
const ndt7Scale = 16

// NextMessage returns the size of the next binary message, when sent bytes were
// sent and the last message had the given size. It doubles if the last was at
// most a sixteenth of what was sent.
func NextMessage(size, sent unit.Size) unit.Size {
	if size < MaxMessage && size <= sent/ndt7Scale {
		return size * 2
	}
	return size
}

// A Measurement is one text message. Fields of other versions are ignored.
type Measurement struct {
	AppInfo        *AppInfo        `json:"AppInfo,omitempty"`
	ConnectionInfo *ConnectionInfo `json:"ConnectionInfo,omitempty"`
	Origin         string          `json:"Origin,omitempty"` // "client" or "server"
	Test           string          `json:"Test,omitempty"`   // "download" or "upload"
	TCPInfo        *TCPInfo        `json:"TCPInfo,omitempty"`
}

// AppInfo is what an application has sent or received.
type AppInfo struct {
	ElapsedTime int64 // µs since the test began
	NumBytes    int64
}

// ConnectionInfo names the two ends.
type ConnectionInfo struct{ Client, Server, UUID string }

// TCPInfo is a part of Linux's tcp_info. Times are in µs.
type TCPInfo struct {
	ElapsedTime                                        int64
	RTT, RTTVar, MinRTT                                int64
	BytesAcked, BytesReceived, BytesSent, BytesRetrans int64
	BusyTime, RWndLimited, SndBufLimited               int64
}
