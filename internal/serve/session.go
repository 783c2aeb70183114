package serve

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"unbloat/internal/measure/netio"
	"unbloat/internal/measure/probe"
	"unbloat/unit"
)

// A session is a client's control connection with its streams and groups of
// flows.
type session struct {
	server *Server
	token  string
	from   netip.Addr
	leave  func() // the accounts
	began  unit.Instant

	mu      sync.Mutex
	closed  bool
	groups  map[uint32]*group
	streams map[uint32]*stream
	serial  uint32 // of streams
	flows   int    // data connections attached and not ended
	loads   int
	bytes   int64
}

// hello runs a session on a control connection, from its first line to its end.
func (s *Server) hello(c *client, l *lines, req probe.Request) {
	defer s.end(c)
	if !slices.Contains(req.Versions, probe.Version) {
		s.refusals.add(protocolNative, "version")
		err := fmt.Errorf("client speaks versions %v of the protocol, this server version %d: update the older of the two", req.Versions, probe.Version)
		s.log.Debug("refused", "from", c.RemoteAddr(), "reason", err)
		l.refuse(err)
		return
	}
	err := s.challenge(l)
	var ses *session
	if err == nil {
		ses, err = s.open(clientAddr(c.TCPConn))
	}
	if err != nil {
		s.log.Debug("refused", "from", c.RemoteAddr(), "reason", err)
		l.refuse(err)
		return
	}
	reply := probe.Reply{Version: probe.Version, Token: ses.token, Now: s.clock.Now()}
	if err = l.write(reply); err == nil {
		err = ses.run(l)
	}
	ses.end()
	switch {
	case errors.Is(err, probe.ErrRequest):
		s.refusals.add(protocolNative, "malformed")
	case errors.Is(err, os.ErrDeadlineExceeded):
		s.refusals.add(protocolNative, "idle")
	}
	ses.mu.Lock()
	defer ses.mu.Unlock()
	s.log.Info("session", "from", c.RemoteAddr(), "agent", req.Agent, "loads", ses.loads, "bytes", ses.bytes,
		"lasted", s.clock.Now().Sub(ses.began).Round(time.Millisecond), "end", endReason(err))
}

// The key challenge failed.
var (
	errNoKey    = errors.New("this server has a shared key: give it with --key")
	errWrongKey = errors.New("the shared key (--key) is wrong")
)

// challenge lets the client prove that it knows the shared key, if there is
// one.
func (s *Server) challenge(l *lines) error {
	if s.key == "" {
		return nil
	}
	challenge := newToken()
	if err := l.write(probe.Reply{Version: probe.Version, Challenge: challenge}); err != nil {
		return err
	}
	req, err := l.read(time.Now().Add(s.limits.Handshake))
	if err != nil {
		s.refusals.add(protocolNative, refusalReason(err))
		return err
	}
	if req.Op != probe.OpHello || !probe.Authentic(s.key, challenge, req.Auth) {
		s.refusals.add(protocolNative, "key")
		if req.Auth == "" {
			return errNoKey
		}
		return errWrongKey
	}
	return nil
}

// endReason returns the reason for the end of a session, for the log.
func endReason(err error) string {
	switch {
	case err == nil, errors.Is(err, io.EOF):
		return "client is done"
	case errors.Is(err, net.ErrClosed):
		return "server stops"
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "idle for too long, or its time is up"
	}
	return plain(err)
}

// open makes a session, within the limits.
func (s *Server) open(from netip.Addr) (*session, error) {
	leave, err := s.admit(from, protocolNative)
	if err != nil {
		return nil, err
	}
	ses := &session{
		server: s, token: newToken(), from: from, leave: leave, began: s.clock.Now(),
		groups: map[uint32]*group{}, streams: map[uint32]*stream{},
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions[ses.token] = ses
	return ses, nil
}

// end ends everything that belongs to a session.
func (ses *session) end() {
	s := ses.server
	s.mu.Lock()
	delete(s.sessions, ses.token)
	s.mu.Unlock()
	ses.mu.Lock()
	ses.closed = true
	groups, streams := ses.groups, ses.streams
	ses.groups, ses.streams = nil, nil
	ses.mu.Unlock()
	for _, g := range groups {
		g.stop()
	}
	for _, st := range streams {
		s.closeStream(st)
	}
	ses.leave()
}

// run answers requests until the connection ends.
func (ses *session) run(l *lines) error {
	limits := ses.server.limits
	end := time.Now().Add(limits.Session)
	for {
		deadline := time.Now().Add(limits.Idle)
		if end.Before(deadline) {
			deadline = end
		}
		req, err := l.read(deadline)
		if errors.Is(err, os.ErrDeadlineExceeded) && time.Now().Before(end) && ses.active() && l.in.Buffered() == 0 {
			continue
		}
		if err != nil {
			if errors.Is(err, probe.ErrRequest) {
				l.refuse(err)
			}
			return err
		}
		reply, err := ses.do(req)
		if err != nil {
			reply = probe.Reply{Error: err.Error()}
		}
		if err := l.write(reply); err != nil {
			return err
		}
	}
}

// spend charges bytes. It returns false if the session's budget is used up.
func (ses *session) spend(n unit.Size) bool {
	if !ses.server.spend(ses.from, n) {
		return false
	}
	ses.mu.Lock()
	defer ses.mu.Unlock()
	ses.bytes += int64(n)
	limit := ses.server.limits.Bytes
	return limit == 0 || ses.bytes <= int64(limit)
}

// active reports whether probes of the session have arrived recently, or a load of it
// has run recently. Neither needs requests.
func (ses *session) active() bool {
	ses.mu.Lock()
	defer ses.mu.Unlock()
	now := ses.server.clock.Now()
	for _, st := range ses.streams {
		if now.Sub(st.lastSeen()) < ses.server.limits.Idle {
			return true
		}
	}
	for _, g := range ses.groups {
		if ends := g.lastRun(); ends > 0 && now.Sub(ends) < ses.server.limits.Idle {
			return true
		}
	}
	return false
}

// do carries out one request.
func (ses *session) do(req probe.Request) (probe.Reply, error) {
	switch req.Op {
	case probe.OpStart:
		return ses.start(req)
	case probe.OpStop:
		return ses.stop(req)
	case probe.OpUDP, probe.OpTrains:
		return ses.openStream(req)
	case probe.OpReport, probe.OpEnd:
		return ses.report(req)
	}
	return probe.Reply{}, fmt.Errorf("%q does not belong on a control connection", req.Op)
}

// attach adds a data connection to a group that has not started.
func (ses *session) attach(c *client, req probe.Request) error {
	ses.mu.Lock()
	defer ses.mu.Unlock()
	if ses.closed {
		return errors.New("the session has ended")
	}
	if ses.flows >= ses.server.limits.Flows {
		return fmt.Errorf("the session has %d data connections, which is the limit", ses.flows)
	}
	g := ses.groups[req.Group]
	if g == nil {
		if req.Dir != probe.DirUp && req.Dir != probe.DirDown {
			return fmt.Errorf("a data connection needs a direction, %q or %q", probe.DirUp, probe.DirDown)
		}
		g = &group{clock: ses.server.clock, dir: req.Dir}
		ses.groups[req.Group] = g
	}
	if err := g.add(c, req.Dir); err != nil {
		return err
	}
	ses.flows++
	return nil
}

// maxBins limits the length of a reported series.
const maxBins = 8192

// start starts the load of a group.
func (ses *session) start(req probe.Request) (probe.Reply, error) {
	ses.mu.Lock()
	defer ses.mu.Unlock()
	g := ses.groups[req.Group]
	if g == nil {
		return probe.Reply{}, fmt.Errorf("group %d has no data connections", req.Group)
	}
	limits := ses.server.limits
	budget := netio.Budget{Time: min(req.Limit, limits.Load)}
	if budget.Time <= 0 {
		budget.Time = limits.Load
	}
	if limits.Bytes > 0 {
		budget.Bytes = limits.Bytes - unit.Size(ses.bytes)
		if budget.Bytes <= 0 {
			return probe.Reply{}, fmt.Errorf("the session has moved %v, which is the limit", unit.Size(ses.bytes))
		}
	}
	budget.Allowed = bookings(ses.spend)
	bin := req.Bin
	if bin == 0 {
		bin = 100 * time.Millisecond
	}
	if err := g.start(req.Flows, max(bin, probe.MinBin, budget.Time/maxBins), budget, ses.server.payload); err != nil {
		return probe.Reply{}, err
	}
	ses.loads++
	return probe.Reply{Now: ses.server.clock.Now()}, nil
}

// stop ends a group and returns its report.
func (ses *session) stop(req probe.Request) (probe.Reply, error) {
	ses.mu.Lock()
	g := ses.groups[req.Group]
	delete(ses.groups, req.Group)
	ses.mu.Unlock()
	if g == nil {
		return probe.Reply{}, fmt.Errorf("there is no group %d", req.Group)
	}
	report := g.stop()
	ses.mu.Lock()
	ses.flows -= len(g.clients)
	ses.mu.Unlock()
	return probe.Reply{Now: ses.server.clock.Now(), Load: report}, nil
}

// A group is the flows of one direction that start and stop together.
type group struct {
	clock *netio.Clock
	dir   string

	mu       sync.Mutex
	clients  []*client // each a flow; stop closes them
	sender   *netio.Sender
	receiver *netio.Receiver
	cpu      *netio.CPUMeter
	bin      time.Duration
	began    unit.Instant
	ends     unit.Instant      // by the load's limit of time
	report   *probe.LoadReport // once stopped
	booked   func(moved int64) bool
}

func (g *group) add(c *client, dir string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.dir != dir {
		return errors.New("a group has one direction only")
	}
	if g.began != 0 || g.report != nil {
		return errors.New("the group has started already")
	}
	g.clients = append(g.clients, c)
	return nil
}

func (g *group) start(flows int, bin time.Duration, budget netio.Budget, payload []byte) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.began != 0 || g.report != nil {
		return errors.New("the group has started already")
	}
	if flows != len(g.clients) {
		return fmt.Errorf("the group has %d data connections, not %d", len(g.clients), flows)
	}
	g.booked = budget.Allowed
	g.bin, g.began, g.cpu = bin, g.clock.Now(), netio.NewCPUMeter()
	g.ends = g.began.Add(budget.Time)
	conns := connsOf(g.clients)
	if g.dir == probe.DirDown {
		g.sender = netio.NewSender(g.clock, payload, budget, conns)
		return nil
	}
	budget.Time += replyPatience // the client ends it; this is for one that does not
	g.receiver = netio.NewReceiver(g.clock, bin, budget, conns)
	return nil
}

// lastRun returns when the load runs last, by its limit of time; 0: it has not started.
func (g *group) lastRun() unit.Instant {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.ends
}

// stop ends the flows, waits for their goroutines, and returns the report. It
// may be called more than once.
func (g *group) stop() *probe.LoadReport {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.report != nil {
		return g.report
	}
	g.report = &probe.LoadReport{Start: g.began, Bin: g.bin}
	defer func() {
		for _, c := range g.clients {
			c.Close()
		}
	}()
	if g.began == 0 {
		return g.report
	}
	g.report.CPU, _ = g.cpu.Busiest() // 0 if the system does not provide it
	var errs []netio.FlowError
	moved := int64(0)
	if g.sender != nil {
		g.report.Sender, errs = g.sender.Stop()
		moved = g.sender.Moved()
	} else {
		var bins []netio.Bins
		bins, errs = g.receiver.Stop()
		for _, b := range bins {
			g.report.Start = b.Start // the same for all
			g.report.Flows = append(g.report.Flows, b.Bytes)
			moved += b.Total
		}
	}
	g.booked(moved)
	for _, e := range errs[:min(len(errs), 8)] {
		g.report.Errors = append(g.report.Errors, e.Error())
	}
	return g.report
}
