package aqm

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"unbloat/unit"
)

// Bounds on what Read accepts, so that a hostile trace cannot exhaust memory
// or overflow a sum.
const (
	maxLine    = 4 << 10
	maxPackets = 1 << 22
	maxInstant = 1 << 52 // ns, 52 days
	maxSize    = 64 << 10
	maxLimit   = 1 << 24
)

// Params is the first line of a trace. What it leaves out keeps the
// implementation's default.
type ReplayParams struct {
	Implementation string `json:"implementation"` // see aqm.ParseDialect
	Rate           int64  `json:"rate_bps"`       // of the link that dequeues
	Flows          *int   `json:"flows"`          // a flow's bucket is its number modulo this
	Limit          *int   `json:"limit_packets"`
	Quantum        *int64 `json:"quantum_bytes"`
	Target         *int64 `json:"target_ns"`
	Interval       *int64 `json:"interval_ns"`
	ECN            *bool  `json:"ecn"`
}

// serialise returns how long the link is busy with a packet, rounded down.
func (p ReplayParams) serialise(size unit.Size) time.Duration {
	return time.Duration(int64(size) * 8e9 / p.Rate)
}

// Trace is a golden trace in memory.
type Trace struct {
	Params  ReplayParams
	Packets []TracePacket // in order of arrival
	lines   []int         // the line of each packet
}

// Read reads a trace, gzipped or plain. Its errors name the line.
func ReadTrace(r io.Reader) (*Trace, error) {
	br := bufio.NewReader(r)
	if magic, _ := br.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(br)
		if err != nil {
			return nil, fmt.Errorf("read gzip header: %w", err)
		}
		r = z
	} else {
		r = br
	}
	t := &Trace{}
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, maxLine), maxLine)
	line := 0
	for sc.Scan() {
		line++
		if err := t.add(line, sc.Bytes()); err != nil {
			if cut := sc.Err(); cut != nil && !errors.Is(cut, bufio.ErrTooLong) { // a part of a line, before the end that came too early
				err = cut
			}
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
	}
	if err := sc.Err(); errors.Is(err, bufio.ErrTooLong) {
		return nil, fmt.Errorf("line %d: longer than %d bytes, so this is no trace (one line a packet; see `unbloat sim replay --help`)", line+1, maxLine)
	} else if err != nil {
		return nil, fmt.Errorf("line %d: %w", line+1, err)
	}
	if line == 0 {
		return nil, errors.New("line 1: the trace is empty")
	}
	return t, nil
}

// add takes one line of text.
func (t *Trace) add(line int, text []byte) error {
	if line == 1 {
		return t.Params.parse(text)
	}
	fields := bytes.Fields(text)
	if len(fields) == 0 || fields[0][0] == '#' {
		return nil
	}
	if len(t.Packets) == maxPackets {
		return fmt.Errorf("more than %d packets", maxPackets)
	}
	p, err := parsePacket(fields)
	if err != nil {
		return err
	}
	if n := len(t.Packets); n > 0 {
		if last := t.Packets[n-1]; p.Seq <= last.Seq {
			return fmt.Errorf("packet %d after packet %d: seq must increase", p.Seq, last.Seq)
		} else if p.Enqueued < last.Enqueued {
			return fmt.Errorf("packet %d arrives before packet %d: lines must be in order of arrival", p.Seq, last.Seq)
		}
	}
	t.Packets = append(t.Packets, p)
	t.lines = append(t.lines, line)
	return nil
}

// parse reads the first line.
func (p *ReplayParams) parse(text []byte) error {
	object, ok := bytes.CutPrefix(text, []byte("#"))
	if !ok {
		return errors.New(`the first line must be "# " and a JSON object of parameters`)
	}
	if err := json.Unmarshal(object, p); err != nil {
		return fmt.Errorf("parameters: %w", err)
	}
	switch {
	case p.Implementation == "":
		return errors.New(`parameters: "implementation" is missing`)
	case p.Rate < 1 || p.Rate > 1e12:
		return fmt.Errorf("parameters: rate_bps %d is not within 1 to 1e12", p.Rate)
	case p.Limit != nil && (*p.Limit < 1 || *p.Limit > maxLimit):
		return fmt.Errorf("parameters: limit_packets %d is not within 1 to %d", *p.Limit, maxLimit)
	case p.Quantum != nil && (*p.Quantum < 64 || *p.Quantum > 1<<20):
		// Below the smallest packet a flow waits many rounds; no implementation goes there.
		return fmt.Errorf("parameters: quantum_bytes %d is not within 64 to %d", *p.Quantum, 1<<20)
	}
	return nil
}

// parsePacket reads the fields of a packet's line.
func parsePacket(fields [][]byte) (p TracePacket, err error) {
	if len(fields) != 6 && len(fields) != 7 {
		return p, fmt.Errorf("%d fields instead of seq enqueue_ns flow bytes fate time_ns [mark]", len(fields))
	}
	number := func(i int, name string, low, high uint64) uint64 {
		v, e := strconv.ParseUint(string(fields[i]), 10, 64)
		if err == nil && (e != nil || v < low || v > high) {
			err = fmt.Errorf("%s %q is not a number within %d to %d", name, fields[i], low, high)
		}
		return v
	}
	p.Seq = number(0, "seq", 0, 1<<63)
	p.Enqueued = unit.Instant(number(1, "enqueue_ns", 0, maxInstant))
	p.Flow = uint32(number(2, "flow", 0, 1<<32-1))
	p.Size = unit.Size(number(3, "bytes", 1, maxSize))
	switch string(fields[4]) {
	case "sent":
		p.Outcome.Fate = Sent
	case "drop":
		p.Outcome.Fate = Dropped
	case "left":
		p.Outcome.Fate = Left
	default:
		return p, fmt.Errorf("fate %q; known are sent, drop and left", fields[4])
	}
	if p.Outcome.Fate != Left {
		p.Outcome.At = unit.Instant(number(5, "time_ns", 0, maxInstant))
	}
	if len(fields) == 7 {
		if string(fields[6]) != "mark" {
			return p, fmt.Errorf("%q after the time; only mark may stand there", fields[6])
		}
		p.Outcome.Mark = true
	}
	return p, err
}
