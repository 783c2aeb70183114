package serve

import (
	"net/netip"

	"unbloat/internal/measure/netio"
	"unbloat/internal/measure/probe"
	"unbloat/unit"
)

// trains is what a stream of trains has besides. The stream's lock guards it.
type trains struct {
	specs  []probe.TrainSpec // to send; empty: they come from the client
	source *probe.TrainSource
	sink   probe.TrainSink
	from   netip.AddrPort // from where they come; not valid until the client has said so
	before int            // datagrams that the socket had dropped when it began
}

// report is what is known of them now.
func (t *trains) report(dropped int) *probe.TrainsReport {
	r := &probe.TrainsReport{Runs: t.sink.Runs(), Dropped: dropped - t.before}
	if t.source != nil {
		r.Sent = t.source.Sent()
	}
	return r
}

// listenTrains begins a stream of trains, once: only to, or from, the address of the
// session's control connection. The caller holds st.mu.
func (s *Server) listenTrains(st *stream, from *netio.Peer) {
	t := st.trains
	if st.closed || st.done != nil || t.from.IsValid() || from.Addr.Addr().Unmap() != st.ses.from {
		return
	}
	if st.dir == probe.DirUp {
		t.from = from.Addr
		s.trainsFrom.Store(t.from, st)
		return
	}
	sleeper, err := netio.NewSleeper(s.clock)
	if err != nil {
		s.log.Warn("cannot send trains", "to", from.Addr, "error", err)
		return
	}
	t.source = probe.NewTrainSource(s.clock.Now(), t.specs)
	st.sleeper, st.done = sleeper, make(chan struct{})
	to := *from
	go func() { // closeStream waits for it
		defer close(st.done)
		defer sleeper.Close()
		st.sendTrains(s, &to)
	}()
}

// sendTrains sends all that is due, until the end: at the latest when the longest trains
// that can be asked for would have ended twice.
func (st *stream) sendTrains(s *Server, to *netio.Peer) {
	end := s.clock.Now().Add(2 * probe.MaxTrainsTime)
	for {
		now := s.clock.Now()
		st.mu.Lock()
		b, next := st.trains.source.Poll(now)
		if b != nil && st.book(len(b)) {
			s.udp.Send(to, b)
		}
		over := next == 0 || st.spent || st.closed || end.Before(now)
		st.mu.Unlock()
		if over || b == nil && !st.sleeper.Until(next) {
			return
		}
	}
}

// ofTrain notes a datagram that has no header: it belongs to a train if trains come
// from its address.
func (s *Server) ofTrain(from *netio.Peer, at unit.Instant, size int) bool {
	found, ok := s.trainsFrom.Load(from.Addr)
	if !ok {
		return false
	}
	st := found.(*stream)
	st.mu.Lock()
	defer st.mu.Unlock()
	st.seen = at
	if st.book(size) {
		st.trains.sink.Receive(at, size)
	}
	return true
}
