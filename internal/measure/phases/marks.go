package phases

import (
	"context"
	"fmt"
	"time"

	"unbloat/internal/measure/netio"
	"unbloat/internal/measure/probe"
	"unbloat/unit"
)

// A Marker is a Tester whose server says with which traffic class packets come.
type Marker interface {
	Marks(ctx context.Context, classes []uint8, each int, gap time.Duration) ([]MarkSeen, error)
}

// A MarkSeen is what became of packets of one traffic class (DSCP and ECN).
type MarkSeen struct {
	Class uint8
	Sent  int
	There map[uint8]int // by the class with which they came to the server
	Back  map[uint8]int // the answers, sent with that class too, by that with which they came here
	RTTs  []time.Duration
}

// marksWait is how long answers may take after the last packet.
const marksWait = 4 * time.Second

// Marks sends packets of each traffic class in turn, each of which the server answers with
// the same class. A server that knows nothing of it leaves There empty.
func (c *Client) Marks(ctx context.Context, classes []uint8, each int, gap time.Duration) ([]MarkSeen, error) {
	failed := func(err error) ([]MarkSeen, error) {
		return nil, fmt.Errorf("ask %s with which marks packets come: %w", c.peer, err)
	}
	reply, err := c.control.do(ctx, probe.Request{Op: probe.OpUDP, Dir: probe.DirEcho, Interval: gap, Size: probe.MinSize})
	if err != nil {
		return failed(err)
	}
	token, err := probe.ParseToken(reply.StreamToken)
	if err != nil {
		return failed(err)
	}
	sleep, err := netio.NewSleeper(c.clock)
	if err != nil {
		return failed(err)
	}
	defer sleep.Close()
	m := marking{clock: c.clock, sent: make([]unit.Instant, each*len(classes)), answered: make([]bool, each*len(classes))}
	for _, class := range classes {
		socket, err := netio.DialDatagram(c.clock, c.peer, 0)
		if err != nil {
			return failed(err)
		}
		defer socket.Close()
		if err := socket.Mark(class); err != nil {
			return failed(err)
		}
		m.sockets = append(m.sockets, socket)
		m.seen = append(m.seen, MarkSeen{Class: class, There: map[uint8]int{}, Back: map[uint8]int{}})
	}
	b := make([]byte, probe.MinSize)
	next := c.clock.Now()
	for i := range m.sent {
		k := i % len(classes)
		probe.PutHeader(b, probe.Header{Kind: probe.KindEcho, Seq: uint32(i), Token: token, Classed: true, Class: classes[k]})
		m.sent[i] = c.clock.Now()
		if err := m.sockets[k].Send(b); err != nil {
			return failed(err)
		}
		m.seen[k].Sent++
		next = next.Add(gap)
		sleep.Until(next)
		if err := m.read(); err != nil {
			return failed(err)
		}
		if ctx.Err() != nil {
			break
		}
	}
	for end := c.clock.Now().Add(marksWait); ctx.Err() == nil && m.left() && c.clock.Now().Before(end); {
		sleep.Until(c.clock.Now().Add(gap))
		if err := m.read(); err != nil {
			return failed(err)
		}
	}
	if _, err := c.control.do(ctx, probe.Request{Op: probe.OpEnd, Stream: reply.Stream}); err != nil && ctx.Err() == nil {
		return failed(err)
	}
	return m.seen, nil
}

// A marking is what Marks knows of its packets.
type marking struct {
	clock    *netio.Clock
	sockets  []*netio.Datagram
	seen     []MarkSeen
	sent     []unit.Instant
	answered []bool
}

// read takes in the answers that have come.
func (m *marking) read() error {
	for k, s := range m.sockets {
		seen := &m.seen[k]
		err := s.Drain(func(at unit.Instant, b []byte) {
			h, err := probe.ParseHeader(b)
			if err != nil || h.Kind != probe.KindReply || int(h.Seq) >= len(m.sent) || m.sent[h.Seq] == 0 || m.answered[h.Seq] {
				return
			}
			m.answered[h.Seq] = true
			seen.RTTs = append(seen.RTTs, max(at.Sub(m.sent[h.Seq]), 0))
			if h.Classed {
				seen.There[h.Class]++
			}
			if class, known := s.Class(); known && h.Classed {
				seen.Back[class]++
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// left reports whether an answer is missing.
func (m *marking) left() bool {
	for i := range m.sent {
		if m.sent[i] != 0 && !m.answered[i] {
			return true
		}
	}
	return false
}
