package serve

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sort"
	"time"

	"unbloat/internal/measure/netio"
	"unbloat/internal/measure/protocol/iperf3"
	"unbloat/unit"
)

// iperf3Server serves iperf3's clients over TCP. Unlike iperf3's own server it
// runs many tests at once, and distinguishes them by their cookies.
type iperf3Server struct {
	*tcpSide
	tests map[iperf3.Cookie]*iperf3Test // under tcpSide's lock
}

// iperf3Test is one test.
type iperf3Test struct {
	control *client
	from    netip.Addr
	params  iperf3.Params
	streams chan iperf3Stream // with their cookies read
	over    chan struct{}     // closed when no more streams are taken
}

// An iperf3Stream is a connection with its number in the order of acceptance.
// The client opens its streams one after the other, and the direction of each
// depends on the order. Their cookies may be read in another order.
type iperf3Stream struct {
	conn *client
	nth  uint64
}

func listenIperf3(s *Server, address, key string) (*iperf3Server, error) {
	side, err := listenTCPSide(s, protocolIperf3, address, key)
	if err != nil {
		return nil, err
	}
	return &iperf3Server{tcpSide: side, tests: map[iperf3.Cookie]*iperf3Test{}}, nil
}

func (p *iperf3Server) serve() error { return p.accept(p.greet) }

// greet reads a connection's cookie, which is that of a waiting test, or of a
// new one.
func (p *iperf3Server) greet(c *client, nth uint64) {
	s := p.server
	_ = c.SetDeadline(time.Now().Add(s.limits.Handshake))
	var b [iperf3.CookieSize]byte
	_, err := io.ReadFull(c, b[:])
	var cookie iperf3.Cookie
	if err == nil {
		cookie, err = iperf3.ParseCookie(b[:])
	}
	if err != nil {
		p.refuse(c.RemoteAddr(), err)
		s.refusals.add(protocolIperf3, iperf3Reason(err))
		p.end(c)
		return
	}
	p.mu.Lock()
	t := p.tests[cookie]
	fresh := t == nil
	if fresh {
		t = &iperf3Test{control: c, from: clientAddr(c.TCPConn), streams: make(chan iperf3Stream), over: make(chan struct{})}
		p.tests[cookie] = t
	}
	p.mu.Unlock()
	if fresh {
		p.control(cookie, t)
		return
	}
	select {
	case t.streams <- iperf3Stream{c, nth}:
		p.forget(c) // from here on the test closes it
	case <-t.over:
		p.end(c)
	}
}

// control runs a test to its end.
func (p *iperf3Server) control(cookie iperf3.Cookie, t *iperf3Test) {
	s := p.server
	defer p.end(t.control)
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.tests, cookie)
		close(t.over)
	}()
	leave, err := s.admit(t.from, protocolIperf3)
	if err != nil {
		s.log.Debug("refused", "protocol", protocolIperf3, "from", t.control.RemoteAddr(), "reason", err)
		t.say(iperf3.AccessDenied)
		return
	}
	began := s.clock.Now()
	moved, err := p.run(t)
	leave()
	end := "client is done"
	if err != nil {
		end = plain(err)
		s.refusals.add(protocolIperf3, iperf3Reason(err))
	}
	s.log.Info("session", "protocol", protocolIperf3, "from", t.control.RemoteAddr(), "bytes", moved,
		"lasted", s.clock.Now().Sub(began).Round(time.Millisecond), "end", end)
}

// iperf3Reason returns the metrics' name of the error that ended a test.
func iperf3Reason(err error) string {
	switch {
	case errors.Is(err, iperf3.ErrMalformed):
		return "malformed"
	case errors.Is(err, errUnsupported):
		return "not TCP"
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "too slow"
	case isCutOff(err):
		return "truncated"
	}
	return "other"
}

func (t *iperf3Test) say(states ...iperf3.State) error {
	b := make([]byte, len(states))
	for i, s := range states {
		b[i] = byte(s)
	}
	_, err := t.control.Write(b)
	return err
}

// errUnsupported is reported with iperf3's own error number.
var errUnsupported = errors.New("only TCP is served to iperf3's clients")

var errEnds = errors.New("the server ends")

// refusal returns the server's error state, with iperf3's number for
// unsupported requests (IEUNIMP) and no errno.
func refusal() []byte { return []byte{0xfe, 0, 0, 0, 13, 0, 0, 0, 0} }

// setup reads the parameters and collects the streams.
func (p *iperf3Server) setup(t *iperf3Test) (streams []*client, err error) {
	if err := t.say(iperf3.ParamExchange); err != nil {
		return nil, err
	}
	b, err := iperf3.ReadFrame(t.control)
	if err != nil {
		return nil, err
	}
	if t.params, err = iperf3.ParseParams(b); err != nil {
		return nil, err
	}
	if t.params.UDP || t.params.SCTP {
		_, _ = t.control.Write(refusal()) // the reason is logged
		return nil, errUnsupported
	}
	if err := t.say(iperf3.CreateStreams); err != nil {
		return nil, err
	}
	if n, most := t.params.Up()+t.params.Down(), p.server.limits.Flows; n > most {
		return nil, fmt.Errorf("%w: %d streams, more than the limit of %d", iperf3.ErrMalformed, n, most)
	}
	streams, err = p.gather(t)
	for i, c := range streams {
		if i >= t.params.Up() && err == nil {
			err = netio.SetTCP(c.TCPConn, netio.TCPOptions{CC: t.params.Congestion, DSCP: t.params.TOS >> 2})
		}
		if t.params.Bandwidth > 0 {
			netio.Pace(c.TCPConn, unit.Rate(t.params.Bandwidth))
		}
	}
	return streams, err
}

// gather waits for a test's streams, and returns them in the order in which the
// client opened them.
func (p *iperf3Server) gather(t *iperf3Test) (clients []*client, err error) {
	var streams []iperf3Stream
	deadline, want := time.After(p.server.limits.Handshake), t.params.Up()+t.params.Down()
	for len(streams) < want && err == nil {
		select {
		case c := <-t.streams:
			streams = append(streams, c)
		case <-deadline:
			err = fmt.Errorf("%w: only %d of %d streams came", os.ErrDeadlineExceeded, len(streams), want)
		case <-p.server.ctx.Done():
			err = errEnds
		}
	}
	sort.Slice(streams, func(i, j int) bool { return streams[i].nth < streams[j].nth })
	for _, s := range streams {
		clients = append(clients, s.conn)
	}
	return clients, err
}

// run runs a test, and returns the bytes it moved.
func (p *iperf3Server) run(t *iperf3Test) (moved int64, err error) {
	s := p.server
	streams, err := p.setup(t)
	defer func() {
		for _, c := range streams {
			p.end(c)
		}
	}()
	if err != nil {
		return 0, err
	}
	conns := connsOf(streams)
	up, down := conns[:t.params.Up()], conns[t.params.Up():]
	budget := netio.Budget{Time: s.limits.Load, Bytes: s.limits.Bytes}
	began, meter := s.clock.Now(), netio.NewCPUMeter()
	if err := t.say(iperf3.TestStart, iperf3.TestRunning); err != nil {
		return 0, err
	}
	account := func(n unit.Size) bool { return s.spend(t.from, n) }
	budget.Allowed = bookings(account)
	receiver := netio.NewReceiver(s.clock, time.Second, budget, up)
	receivedAll := budget.Allowed
	budget.Allowed = bookings(account)
	sender := netio.NewSender(s.clock, s.payload, budget, down)
	defer func() {
		receiver.Stop()
		sender.Stop()
		receivedAll(receiver.Total())
		budget.Allowed(sender.Moved())
		moved = receiver.Total() + sender.Moved()
	}()
	moment := func() iperf3Moment {
		return iperf3Moment{s.clock.Now(), append(receiver.Totals(), sender.Written()...)}
	}
	first := make(chan iperf3Moment, 1)
	if t.params.Omit > 0 {
		defer time.AfterFunc(time.Duration(t.params.Omit)*time.Second, func() { first <- moment() }).Stop()
	} else {
		first <- iperf3Moment{began, make([]int64, len(streams))}
	}
	_ = t.control.SetDeadline(time.Now().Add(s.limits.Load + replyPatience))
	var state [1]byte
	if _, err := io.ReadFull(t.control, state[:]); err != nil {
		return 0, err
	}
	if iperf3.State(state[0]) != iperf3.TestEnd {
		return 0, fmt.Errorf("%w: the client says %q", iperf3.ErrMalformed, iperf3.State(state[0]))
	}
	sender.Pause()
	for _, c := range down {
		// The client reads whole blocks. If the last one is incomplete, it must
		// see the end of the stream, or it would never read the results that
		// follow.
		_ = c.CloseWrite()
	}
	cpu, _ := meter.Busiest() // 0 if the system does not provide it
	last := moment()
	select {
	case from := <-first:
		return 0, t.exchange(t.results(s.clock, from, last, down, cpu))
	default: // it ended within the seconds that the client omits
		return 0, t.exchange(t.results(s.clock, last, last, down, cpu))
	}
}

// An iperf3Moment has the bytes of a test's streams at one time.
type iperf3Moment struct {
	at    unit.Instant
	bytes []int64 // first the client's streams, then ours
}

// results returns this end's results between two times. Retransmissions are
// known only of streams on which this end sent.
func (t *iperf3Test) results(clock *netio.Clock, from, to iperf3Moment, down []*net.TCPConn, cpu float64) iperf3.Results {
	r := iperf3.Results{HasRetransmits: -1, CongestionUsed: t.params.Congestion, CPUTotal: 100 * cpu}
	for i := range to.bytes {
		stream := iperf3.StreamResult{
			ID: iperf3.StreamID(i), Bytes: to.bytes[i] - from.bytes[i], Retransmits: -1, EndTime: to.at.Sub(from.at).Seconds(),
		}
		if k := i - t.params.Up(); k >= 0 {
			if look := netio.LookAt(clock, down[k:k+1]); look.Known {
				r.HasRetransmits, stream.Retransmits = 1, float64(look.Retransmits)
			} else {
				r.HasRetransmits = 0
			}
		}
		r.Streams = append(r.Streams, stream)
	}
	return r
}

// exchange exchanges results, and waits for the client's last message.
func (t *iperf3Test) exchange(mine iperf3.Results) error {
	_ = t.control.SetDeadline(time.Now().Add(replyPatience))
	if err := t.say(iperf3.ExchangeResults); err != nil {
		return err
	}
	b, err := iperf3.ReadFrame(t.control)
	if err != nil {
		return err
	}
	if _, err := iperf3.ParseResults(b); err != nil {
		return err
	}
	frame, err := iperf3.Frame(mine)
	if err != nil {
		return err
	}
	if _, err := t.control.Write(frame); err != nil {
		return err
	}
	if err := t.say(iperf3.DisplayResults); err != nil {
		return err
	}
	var state [1]byte
	_, _ = io.ReadFull(t.control, state[:]) // the last message; without it the client is gone too
	return nil
}
