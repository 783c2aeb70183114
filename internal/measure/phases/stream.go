package phases

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"unbloat/internal/measure/netio"
	"unbloat/internal/measure/probe"
	"unbloat/unit"
)

// A StreamSpec describes isochronous datagrams from the server to here, such
// as one half of a call. (The other direction is a ProbeSpec with OneWay.)
type StreamSpec struct {
	Interval time.Duration // at least 100 µs
	Size     unit.Size     // of the UDP payload; probe.MinSize to probe.MaxSize
	Limit    time.Duration // the server stops by itself after it; required
}

// A Stream is a running downward stream of datagrams.
type Stream struct {
	client *Client
	id     uint32
	socket *netio.Datagram
	sleep  *netio.Sleeper
	done   chan struct{}
	begun  unit.Instant

	mu   sync.Mutex
	sink *probe.Sink
	err  error
}

// A StreamReport is what became of a stream of datagrams.
type StreamReport struct {
	Sent, Received int
	Bytes          unit.Size // payload that arrived
	Span           time.Duration
}

// Goodput returns the payload's rate on arrival.
func (r StreamReport) Goodput() unit.Rate {
	if r.Span <= 0 {
		return 0
	}
	return unit.Rate(float64(r.Bytes) * 8 / r.Span.Seconds())
}

// Loss returns the share of datagrams that did not arrive, 0–1.
func (r StreamReport) Loss() float64 {
	if r.Sent <= 0 {
		return 0
	}
	return max(0, 1-float64(r.Received)/float64(r.Sent))
}

// StartStream starts a downward stream of datagrams.
func (c *Client) StartStream(ctx context.Context, spec StreamSpec) (*Stream, error) {
	if spec.Interval <= 0 || spec.Limit <= 0 {
		return nil, errors.New("start a stream: it needs an interval and a limit")
	}
	reply, err := c.control.do(ctx, probe.Request{
		Op: probe.OpUDP, Dir: probe.DirDown, Interval: spec.Interval, Size: spec.Size, Limit: spec.Limit,
	})
	if err != nil {
		return nil, fmt.Errorf("start a stream: %w", err)
	}
	token, err := probe.ParseToken(reply.StreamToken)
	if err != nil {
		return nil, fmt.Errorf("start a stream: the server's token: %w", err)
	}
	socket, err := netio.DialDatagram(c.clock, c.peer, 0)
	if err != nil {
		return nil, fmt.Errorf("start a stream: %w", err)
	}
	sleep, err := netio.NewSleeper(c.clock)
	if err != nil {
		socket.Close()
		return nil, fmt.Errorf("start a stream: %w", err)
	}
	s := &Stream{
		client: c, id: reply.Stream, socket: socket, sleep: sleep, done: make(chan struct{}),
		begun: c.clock.Now(), sink: probe.NewSink(token),
	}
	go s.drive()
	return s, nil
}

const (
	streamLook  = 20 * time.Millisecond  // how often what has arrived is taken in
	listenEvery = 200 * time.Millisecond // until the stream comes
)

// drive asks for the stream until it comes, and takes in what has come.
func (s *Stream) drive() {
	defer close(s.done)
	defer s.socket.Close()
	buf := make([]byte, probe.MinSize)
	n := s.sink.Listen(buf)
	ask := s.client.clock.Now()
	receive := func(at unit.Instant, b []byte) { _ = s.sink.Receive(at, b) } // strangers' datagrams change nothing
	for {
		now := s.client.clock.Now()
		s.mu.Lock()
		if got, _ := s.sink.Received(); got == 0 && !now.Before(ask) {
			s.err = s.socket.Send(buf[:n])
			ask = now.Add(listenEvery)
		}
		if err := s.socket.Drain(receive); err != nil {
			s.err = err
		}
		failed := s.err != nil
		s.mu.Unlock()
		if failed || !s.sleep.Until(now.Add(streamLook)) {
			return
		}
	}
}

// Stop ends the stream and reports what arrived. It must be called once.
func (s *Stream) Stop(ctx context.Context) (StreamReport, error) {
	reply, err := s.client.control.do(ctx, probe.Request{Op: probe.OpEnd, Stream: s.id})
	s.sleep.Close()
	<-s.done
	if err == nil && reply.UDP == nil {
		err = errors.New("the server's report is empty")
	}
	if err == nil {
		err = s.err
	}
	if err != nil {
		return StreamReport{}, fmt.Errorf("end a stream: %w", err)
	}
	r := StreamReport{Sent: int(reply.UDP.Sent), Span: s.client.clock.Now().Sub(s.begun)}
	r.Received, r.Bytes = s.sink.Received()
	return r, nil
}
