package irtt

import (
	"encoding/binary"
	"time"

	"unbloat/internal/measure/probe"
	"unbloat/unit"
)

// PutRequest fills b, which must have at least EchoSize bytes, with a probe.
func PutRequest(b []byte, token uint64, seq uint32, key []byte) {
	clear(b)
	rest := begin(b, 0, key)
	binary.LittleEndian.PutUint64(rest, token)
	binary.LittleEndian.PutUint32(rest[8:], seq)
	seal(b, key)
}

// PutReply fills b, which must have at least EchoSize bytes, with an answer.
func PutReply(b []byte, e Echo, p Params, key []byte) {
	clear(b)
	rest := begin(b, FlagReply|e.Flags&FlagClose, key)
	binary.LittleEndian.PutUint64(rest, e.Token)
	binary.LittleEndian.PutUint32(rest[8:], e.Seq)
	rest = rest[12:]
	if p.Stats&StatsCount != 0 {
		binary.LittleEndian.PutUint32(rest, e.Count)
		rest = rest[4:]
	}
	if p.Stats&StatsWindow != 0 {
		binary.LittleEndian.PutUint64(rest, e.Window)
		rest = rest[8:]
	}
	put := func(at int, s Stamp) {
		if p.StampAt&at == 0 {
			return
		}
		if p.Clock&ClockWall != 0 {
			binary.LittleEndian.PutUint64(rest, uint64(s.Wall))
			rest = rest[8:]
		}
		if p.Clock&ClockMono != 0 {
			binary.LittleEndian.PutUint64(rest, uint64(s.Mono))
			rest = rest[8:]
		}
	}
	put(AtReceive, e.Receive)
	put(AtMidpoint, Stamp{e.Receive.Wall + (e.Send.Wall-e.Receive.Wall)/2, e.Receive.Mono + (e.Send.Mono-e.Receive.Mono)/2})
	put(AtSend, e.Send)
	seal(b, key)
}

// ParseReply reads an answer of a connection with the given parameters.
func ParseReply(b []byte, p Params, key []byte) (Echo, error) {
	f, rest, err := Open(b, key)
	if err != nil {
		return Echo{}, err
	}
	if !f.Has(FlagReply) || f.Has(FlagOpen) {
		return Echo{}, ErrFlags
	}
	if len(b) < int(Params{Stats: p.Stats, StampAt: p.StampAt, Clock: p.Clock}.EchoSize(key)) {
		return Echo{}, ErrShort
	}
	e := Echo{Flags: f, Token: binary.LittleEndian.Uint64(rest), Seq: binary.LittleEndian.Uint32(rest[8:])}
	rest = rest[12:]
	if p.Stats&StatsCount != 0 {
		e.Count = binary.LittleEndian.Uint32(rest)
		rest = rest[4:]
	}
	if p.Stats&StatsWindow != 0 {
		e.Window = binary.LittleEndian.Uint64(rest)
		rest = rest[8:]
	}
	get := func(at int, s *Stamp) {
		if p.StampAt&at == 0 {
			return
		}
		if p.Clock&ClockWall != 0 {
			s.Wall = unit.Instant(binary.LittleEndian.Uint64(rest))
			rest = rest[8:]
		}
		if p.Clock&ClockMono != 0 {
			s.Mono = time.Duration(binary.LittleEndian.Uint64(rest))
			rest = rest[8:]
		}
	}
	get(AtReceive, &e.Receive)
	var mid Stamp
	get(AtMidpoint, &mid)
	get(AtSend, &e.Send)
	if p.StampAt&AtMidpoint != 0 {
		e.Receive, e.Send = mid, mid
	}
	return e, nil
}

// A Codec makes a connection's echoes the probes of a probe.Session.
type Codec struct {
	Connection uint64
	Params     Params // as granted
	Key        []byte
	Closed     bool // the server has ended the connection
}

// Request implements probe.Codec.
func (c *Codec) Request(b []byte, seq uint32) { PutRequest(b, c.Connection, seq, c.Key) }

// Answer implements probe.Codec.
func (c *Codec) Answer(b []byte) (probe.Answer, error) {
	e, err := ParseReply(b, c.Params, c.Key)
	if err != nil {
		return probe.Answer{}, err
	}
	if e.Token != c.Connection {
		return probe.Answer{}, ErrToken
	}
	c.Closed = c.Closed || e.Flags.Has(FlagClose)
	a := probe.Answer{Seq: e.Seq, Count: e.Count}
	if c.Params.Clock&ClockMono != 0 { // which is never set
		a.ServerReceived, a.ServerSent = unit.Instant(e.Receive.Mono), unit.Instant(e.Send.Mono)
	} else {
		a.ServerReceived, a.ServerSent = e.Receive.Wall, e.Send.Wall
	}
	return a, nil
}
