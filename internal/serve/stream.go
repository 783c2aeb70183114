package serve

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"unbloat/internal/measure/netio"
	"unbloat/internal/measure/probe"
	"unbloat/unit"
)

// A stream is one stream of datagrams of a session.
type stream struct {
	ses   *session
	id    uint32
	token uint64
	dir   string

	mu        sync.Mutex
	seen      unit.Instant
	reflector probe.Reflector
	unbooked  unit.Size // of datagrams, both directions
	spent     bool      // the budget is used up

	// for a downstream stream
	config  probe.Config
	limit   time.Duration
	source  *probe.Source
	sleeper *netio.Sleeper
	closed  bool
	done    chan struct{} // closed when its goroutine has ended; nil without one

	trains *trains // of a stream of trains; nil: it is another one
}

func (st *stream) lastSeen() unit.Instant {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.seen
}

// minStreamInterval limits the rate of a downstream stream to 118 Mbit/s.
const minStreamInterval = 100 * time.Microsecond

// openStream creates a stream and returns its token to the client.
func (ses *session) openStream(req probe.Request) (probe.Reply, error) {
	s := ses.server
	st := &stream{ses: ses, dir: req.Dir, seen: s.clock.Now()}
	switch {
	case req.Op == probe.OpTrains && (req.Dir == probe.DirDown || req.Dir == probe.DirUp):
		st.trains = &trains{specs: req.Trains, before: s.udp.Dropped()}
	case req.Op == probe.OpTrains:
		return probe.Reply{}, errors.New("trains need a direction, up or down")
	case req.Dir == probe.DirDown:
		st.config = probe.Config{Interval: max(req.Interval, minStreamInterval), Size: req.Size}
		st.limit = min(req.Limit, s.limits.Load)
		if req.Interval <= 0 || req.Limit <= 0 {
			return probe.Reply{}, errors.New("a downward stream needs an interval and a limit")
		}
	case req.Dir == probe.DirUp || req.Dir == probe.DirEcho:
	default:
		return probe.Reply{}, errors.New("a stream needs a direction")
	}
	ses.mu.Lock()
	defer ses.mu.Unlock()
	if ses.closed {
		return probe.Reply{}, errors.New("the session has ended")
	}
	if len(ses.streams) >= s.limits.Streams {
		return probe.Reply{}, fmt.Errorf("the session has %d streams, which is the limit", len(ses.streams))
	}
	ses.serial++
	st.id = ses.serial
	s.mu.Lock()
	defer s.mu.Unlock()
	for st.token == 0 || s.streams.find(st.token) != nil {
		var b [8]byte
		_, _ = rand.Read(b[:]) // never fails: Go ends the program instead
		st.token = binary.BigEndian.Uint64(b[:])
	}
	st.reflector = *probe.NewReflector(st.token)
	s.streams.put(st)
	ses.streams[st.id] = st
	return probe.Reply{Stream: st.id, StreamToken: probe.FormatToken(st.token), Now: s.clock.Now()}, nil
}

// report returns what was received of a stream, and closes it if asked to.
func (ses *session) report(req probe.Request) (probe.Reply, error) {
	ses.mu.Lock()
	st := ses.streams[req.Stream]
	if req.Op == probe.OpEnd {
		delete(ses.streams, req.Stream)
	}
	ses.mu.Unlock()
	if st == nil {
		return probe.Reply{}, fmt.Errorf("there is no stream %d", req.Stream)
	}
	if req.Op == probe.OpEnd {
		ses.server.closeStream(st)
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.trains != nil {
		return probe.Reply{Now: ses.server.clock.Now(), Trains: st.trains.report(ses.server.udp.Dropped())}, nil
	}
	r := &probe.UDPReport{}
	r.Received, r.Bytes = st.reflector.Received()
	r.First, r.Last = st.reflector.Span()
	if st.source != nil {
		r.Sent = uint32(st.source.Sent())
	}
	return probe.Reply{Now: ses.server.clock.Now(), UDP: r}, nil
}

// closeStream removes a stream and waits for its goroutine.
func (s *Server) closeStream(st *stream) {
	s.mu.Lock()
	s.streams.remove(st.token)
	s.mu.Unlock()
	st.mu.Lock()
	st.closed = true
	if st.trains != nil && st.trains.from.IsValid() {
		s.trainsFrom.Delete(st.trains.from)
	}
	if st.sleeper != nil {
		st.sleeper.Close()
	}
	done := st.done
	left := st.unbooked
	st.unbooked = 0
	st.mu.Unlock()
	st.ses.spend(left)
	if done != nil {
		<-done
	}
}

// bookEvery is the number of bytes of datagrams that are charged at once.
const bookEvery = 64 * unit.KB

// book charges bytes of datagrams. It returns false if the budget is used up.
// The caller holds st.mu.
func (st *stream) book(n int) bool {
	if st.unbooked += unit.Size(n); st.unbooked >= bookEvery && !st.spent {
		if !st.ses.spend(st.unbooked) {
			st.spent = true
			st.ses.server.refusals.add(protocolNative, "budget during a session")
		}
		st.unbooked = 0
	}
	return !st.spent
}

// datagram answers one datagram, or returns nil. No other function calls
// reflectors. The answer is written into the datagram's memory.
func (s *Server) datagram(from *netio.Peer, at unit.Instant, b []byte) []byte {
	h, err := probe.ParseHeader(b)
	if err != nil {
		if !s.ofTrain(from, at, len(b)) {
			s.refusals.add(protocolNative, "malformed datagram")
		}
		return nil
	}
	st := s.streams.find(h.Token)
	if st == nil {
		s.refusals.add(protocolNative, "unknown token")
		return nil
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.seen = at
	if h.Kind == probe.KindListen {
		if st.trains != nil {
			s.listenTrains(st, from)
		} else {
			s.listen(st, from)
		}
		return nil
	}
	if st.dir == probe.DirDown || st.trains != nil {
		return nil
	}
	if !st.book(len(b)) {
		return nil
	}
	n, err := st.reflector.ReflectHeader(h, at, s.udp.Leaves(), b, b)
	if err != nil || n == 0 || !st.book(n) {
		return nil
	}
	if h.Classed {
		s.sayClass(from, h.Class, b)
	}
	return b[:n]
}

// sayClass writes into an answer with which traffic class the question came, and has it sent
// with the one that is asked for. The first question's is not known: nobody had asked for it.
func (s *Server) sayClass(from *netio.Peer, answer uint8, b []byte) {
	if class, known := from.Class(); known {
		probe.PutClass(b, class)
	} else {
		s.udp.AskClasses()
	}
	from.Mark(answer)
}

// listen starts a downstream stream, once, and only to the address of the
// session's control connection, so that it cannot be sent to anybody else.
func (s *Server) listen(st *stream, from *netio.Peer) {
	if st.dir != probe.DirDown || st.closed || st.done != nil || from.Addr.Addr().Unmap() != st.ses.from {
		return
	}
	sleeper, err := netio.NewSleeper(s.clock)
	if err != nil {
		s.log.Warn("cannot send a stream", "to", from.Addr, "error", err)
		return
	}
	cfg := st.config
	cfg.Token = st.token
	cfg.Start = s.clock.Now()
	cfg.End = cfg.Start.Add(st.limit)
	st.source, st.sleeper, st.done = probe.NewSource(cfg), sleeper, make(chan struct{})
	to := *from
	go func() { // closeStream waits for it
		defer close(st.done)
		defer sleeper.Close()
		st.send(s, &to)
	}()
}

// send sends a downstream stream until its end.
func (st *stream) send(s *Server, to *netio.Peer) {
	for {
		st.mu.Lock()
		b, next := st.source.Poll(s.clock.Now())
		if b != nil && st.book(len(b)) {
			s.udp.Send(to, b)
		}
		if st.spent {
			next = 0
		}
		st.mu.Unlock()
		if next == 0 || !st.sleeper.Until(next) {
			return
		}
	}
}
