package serve

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"unbloat/guard"
	"unbloat/internal/measure/netio"
	"unbloat/internal/measure/protocol/netperf"
	"unbloat/unit"
)

// A PortRange is the ports from First to Last. The zero value lets the system
// choose.
type PortRange struct{ First, Last uint16 }

// String returns the range as ParsePortRange reads it; "" for the zero value.
func (r PortRange) String() string {
	if r.First == 0 {
		return ""
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

// ParsePortRange reads a range such as 12866-13121, or one port; "" is the zero value.
func ParsePortRange(s string) (PortRange, error) {
	if s == "" {
		return PortRange{}, nil
	}
	a, b, two := strings.Cut(s, "-")
	first, err := strconv.ParseUint(a, 10, 16)
	last := first
	if err == nil && two {
		last, err = strconv.ParseUint(b, 10, 16)
	}
	if err != nil || first == 0 || last < first {
		return PortRange{}, fmt.Errorf("%q is not a range of ports; write it like 12866-13121", s)
	}
	return PortRange{uint16(first), uint16(last)}, nil
}

// netperfServer serves netperf's clients. Each has a control connection, on
// which it requests a test and gets a port for its data. On that port only the
// address that requested the test is accepted.
type netperfServer struct {
	*tcpSide
	host  string // for data ports
	ports PortRange
	next  int // where in the range the search for a free port begins; under tcpSide's lock
}

func listenNetperf(s *Server, address, key string, ports PortRange) (*netperfServer, error) {
	side, err := listenTCPSide(s, protocolNetperf, address, key)
	if err != nil {
		return nil, err
	}
	return &netperfServer{tcpSide: side, host: hostOf(address), ports: ports}, nil
}

func (p *netperfServer) serve() error {
	return p.accept(func(c *client, _ uint64) { p.control(c) })
}

// control serves one control connection: tests, one after the other. The first
// request makes it a session.
func (p *netperfServer) control(k *client) {
	s, c, from := p.server, k.TCPConn, clientAddr(k.TCPConn)
	defer p.end(k)
	request, err := p.request(c, s.limits.Handshake)
	var leave func()
	if err == nil {
		if leave, err = s.admit(from, protocolNetperf); err != nil {
			p.answer(c, netperf.ErrnoBusy)
			p.refuse(c.RemoteAddr(), err)
			return
		}
	}
	if err != nil {
		p.refuse(c.RemoteAddr(), err)
		s.refusals.add(protocolNetperf, netperfReason(err))
		return
	}
	began, moved, tests := s.clock.Now(), int64(0), 0
	for err == nil {
		t := &netperfTest{netperfServer: p, control: c, from: from, request: request}
		err = t.run()
		moved += t.moved
		tests++
		if err == nil {
			request, err = p.request(c, s.limits.Idle)
		}
	}
	leave()
	end := "client is done"
	if !errors.Is(err, io.EOF) {
		end = plain(err)
		s.refusals.add(protocolNetperf, netperfReason(err))
	}
	s.log.Info("session", "protocol", protocolNetperf, "from", c.RemoteAddr(), "tests", tests, "bytes", moved,
		"lasted", s.clock.Now().Sub(began).Round(time.Millisecond), "end", end)
}

// request reads the next request for a test. An unsupported one is answered
// with an error number that the client prints.
func (p *netperfServer) request(c *net.TCPConn, patience time.Duration) (netperf.Request, error) {
	_ = c.SetReadDeadline(time.Now().Add(patience))
	b := make([]byte, netperf.MessageSize)
	if _, err := io.ReadFull(c, b); err != nil {
		return netperf.Request{}, err
	}
	r, err := netperf.ParseRequest(b)
	switch {
	case errors.Is(err, netperf.ErrUnsupported):
		p.answer(c, netperf.ErrnoUnsupported)
	case err != nil:
		p.answer(c, netperf.ErrnoInvalid)
	}
	return r, err
}

// answer tells the client why there is no test. Errors in sending are ignored.
func (p *netperfServer) answer(c *net.TCPConn, why netperf.Errno) {
	_ = c.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = c.Write(netperf.Setup{Errno: why}.Message())
}

// netperfReason returns the metrics' name of the error that ended a connection.
func netperfReason(err error) string {
	switch {
	case errors.Is(err, netperf.ErrMalformed):
		return "malformed"
	case errors.Is(err, netperf.ErrUnsupported):
		return "not supported"
	case errors.Is(err, errBudget):
		return "budget during a session"
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "too slow"
	case isCutOff(err):
		return "truncated"
	}
	return "other"
}

// bind opens a data port of the range.
func (p *netperfServer) bind(listen func(address string) error) error {
	at := func(port int) error { return listen(net.JoinHostPort(p.host, strconv.Itoa(port))) }
	if p.ports.First == 0 {
		return at(0)
	}
	n := int(p.ports.Last) - int(p.ports.First) + 1
	p.mu.Lock()
	from := p.next
	p.next = (p.next + 1) % n
	p.mu.Unlock()
	var err error
	for i := range n {
		if err = at(int(p.ports.First) + (from+i)%n); err == nil {
			return nil
		}
	}
	return fmt.Errorf("no port from %d to %d is free for data: %w", p.ports.First, p.ports.Last, err)
}

// A netperfTest is one test.
type netperfTest struct {
	*netperfServer
	control *net.TCPConn
	from    netip.Addr
	request netperf.Request
	moved   int64         // bytes of data, both directions together
	gone    chan struct{} // closed when the client has left, or sent something unexpected
}

// run runs the test, from its first reply to its results.
func (t *netperfTest) run() error {
	stop := t.watch()
	results, err := t.data()
	if left := stop(); err == nil || errors.Is(err, errLeft) {
		err = errors.Join(left) // why the client left, if it did
	}
	if err != nil {
		return err
	}
	_ = t.control.SetWriteDeadline(time.Now().Add(replyPatience))
	_, err = t.control.Write(results.Message())
	return err
}

// errLeft ends a test whose client left before the results.
var errLeft = errors.New("the client left during the test")

// watch notices if the client leaves during the test. The returned function
// ends the watch, and returns what it has seen.
func (t *netperfTest) watch() (stop func() error) {
	t.gone = make(chan struct{})
	_ = t.control.SetReadDeadline(time.Time{})
	var saw error
	go func() { // stop waits for it
		defer close(t.gone)
		_, saw = t.control.Read(make([]byte, 1))
		if saw == nil {
			saw = fmt.Errorf("%w: the client speaks during a test", netperf.ErrMalformed)
		}
	}()
	return func() error {
		_ = t.control.SetReadDeadline(time.Unix(1, 0))
		<-t.gone
		switch {
		case errors.Is(saw, os.ErrDeadlineExceeded):
			return nil
		case errors.Is(saw, io.EOF):
			return io.ErrUnexpectedEOF
		}
		return saw
	}
}

// time returns how long the test may last: as requested, within the limit.
func (t *netperfTest) time() time.Duration {
	if t.request.Duration > 0 {
		return min(t.request.Duration, t.server.limits.Load)
	}
	return t.server.limits.Load
}

// data runs the test's data.
func (t *netperfTest) data() (netperf.Results, error) {
	if t.request.Test == netperf.UDPRR {
		return t.datagrams()
	}
	k, err := t.connection()
	if err != nil {
		return netperf.Results{}, err
	}
	defer t.end(k)
	c := k.TCPConn
	began := t.server.clock.Now()
	var r netperf.Results
	switch t.request.Test {
	case netperf.TCPStream:
		r, err = t.receive(c)
	case netperf.TCPMaerts:
		r, err = t.send(c)
	default:
		r, err = t.exchange(c)
	}
	r.Elapsed = t.server.clock.Now().Sub(began)
	return r, err
}

// setup answers the request with the data port.
func (t *netperfTest) setup(port uint16) error {
	r := t.request
	orOurs := func(n int) int {
		if n == 0 {
			return netperfCall
		}
		return n
	}
	s := netperf.Setup{
		Port: int(port), TOS: r.TOS, NoDelay: r.NoDelay,
		SendBuffer: r.SendBuffer, ReceiveBuffer: r.ReceiveBuffer, SendSize: r.ResponseSize, ReceiveSize: r.RequestSize,
	}
	switch r.Test {
	case netperf.TCPStream:
		s.SendSize, s.ReceiveSize = -1, orOurs(r.ReceiveSize)
	case netperf.TCPMaerts:
		s.SendSize, s.ReceiveSize = orOurs(r.SendSize), -1
	}
	_ = t.control.SetWriteDeadline(time.Now().Add(replyPatience))
	_, err := t.control.Write(s.Message())
	return err
}

// connection tells the client where to connect, and waits for it there.
func (t *netperfTest) connection() (*client, error) {
	var l *net.TCPListener
	err := t.bind(func(address string) error {
		a, err := net.ResolveTCPAddr("tcp", address)
		if err == nil {
			l, err = net.ListenTCP("tcp", a)
		}
		return err
	})
	if err != nil {
		t.answer(t.control, netperf.ErrnoBusy)
		return nil, err
	}
	t.hold(l)
	defer t.end(l)
	if err := t.setup(l.Addr().(*net.TCPAddr).AddrPort().Port()); err != nil {
		return nil, err
	}
	accepted := make(chan struct{})
	defer func() { <-accepted }()
	over := make(chan struct{})
	defer close(over)
	go func() {
		defer close(accepted)
		select {
		case <-t.gone:
			l.Close()
		case <-over:
		}
	}()
	_ = l.SetDeadline(time.Now().Add(t.server.limits.Handshake))
	for {
		c, err := l.AcceptTCP()
		if err != nil {
			return nil, fmt.Errorf("wait for the test's connection: %w", t.left(err))
		}
		if guard.Charged(clientAddr(c)) != guard.Charged(t.from) {
			t.refuse(c.RemoteAddr(), errStranger)
			t.server.refusals.add(protocolNetperf, "stranger")
			c.Close()
			continue
		}
		k, err := t.server.client(c, protocolNetperf)
		if err != nil {
			return nil, err
		}
		t.tune(c)
		t.hold(k)
		return k, nil
	}
}

// errStranger refuses a data connection from another address.
var errStranger = errors.New("another address asked for the test of this port")

// left returns errLeft if the client has left, since that caused err; otherwise
// err.
func (t *netperfTest) left(err error) error {
	select {
	case <-t.gone:
		return errLeft
	default:
		return err
	}
}

// Limits of the socket buffers that a client may request, in bytes.
const (
	netperfLeastBuffer = 4 << 10
	netperfMostBuffer  = 4 << 20
)

// tune sets the options that the client requested, as far as this system
// supports them.
func (t *netperfTest) tune(c *net.TCPConn) {
	r := t.request
	_ = netio.SetTCP(c, netio.TCPOptions{DSCP: max(r.TOS, 0) >> 2})
	if r.Congestion != "" {
		_ = netio.SetTCP(c, netio.TCPOptions{CC: r.Congestion}) // the results name the one in use
	}
	if r.SendBuffer > 0 {
		_ = c.SetWriteBuffer(min(max(r.SendBuffer, netperfLeastBuffer), netperfMostBuffer))
	}
	if r.ReceiveBuffer > 0 {
		_ = c.SetReadBuffer(min(max(r.ReceiveBuffer, netperfLeastBuffer), netperfMostBuffer))
	}
}

// tcpResults returns the results of a connection without the counters.
func (t *netperfTest) tcpResults(c *net.TCPConn) netperf.Results {
	r := netperf.Results{
		Congestion: netio.Congestion(c), Retransmits: -1, SendBuffer: t.request.SendBuffer, ReceiveBuffer: t.request.ReceiveBuffer,
	}
	if look := netio.LookAt(t.server.clock, []*net.TCPConn{c}); look.Known {
		r.Retransmits = int(look.Retransmits)
	}
	return r
}

// spend charges bytes. It returns false if the address's budget is used up.
func (t *netperfTest) spend(n unit.Size) bool { return t.server.spend(t.from, n) }

// netperfLook is how often an upload is checked for its end.
const netperfLook = 10 * time.Millisecond

// receive receives what the client sends until the end of the stream.
func (t *netperfTest) receive(c *net.TCPConn) (netperf.Results, error) {
	s := t.server
	allowed := bookings(t.spend)
	// The client ends the test. The time limit is for one that does not, or
	// whose line is slow.
	budget := netio.Budget{Time: t.time() + replyPatience, Bytes: s.limits.Bytes, Allowed: allowed}
	receiver := netio.NewReceiver(s.clock, time.Second, budget, []*net.TCPConn{c})
	look := time.NewTicker(netperfLook)
	defer look.Stop()
	gone := false
	for !gone && !receiver.Ended() {
		select {
		case <-t.gone:
			gone = true
		case <-look.C:
		}
	}
	r := t.tcpResults(c)
	_ = c.CloseWrite() // the client waits for an orderly end in both directions; a reset would be an error to it
	_, errs := receiver.Stop()
	t.moved = receiver.Total()
	within := allowed(t.moved)
	r.Received, r.ReceiveCalls = t.moved, (t.moved+netperfCall-1)/netperfCall
	if gone {
		return r, errLeft
	}
	for _, e := range errs {
		switch {
		case errors.Is(e.Err, io.EOF):
		case errors.Is(e.Err, netio.ErrBudget) || !within:
			return r, errBudget
		default:
			return r, e.Err
		}
	}
	return r, nil
}

// netperfCall is the approximate number of bytes per system call, for the
// number of calls that clients may print.
const netperfCall = 128 << 10

// send sends for the time of the test, or the requested amount.
func (t *netperfTest) send(c *net.TCPConn) (netperf.Results, error) {
	s := t.server
	closed := make(chan struct{}) // closed when the client has stopped, or left
	go func() {                   // ends when c is closed
		defer close(closed)
		_, _ = io.Copy(io.Discard, c)
	}()
	if t.request.Amount > 0 {
		return t.sendAmount(c, closed)
	}
	allowed := bookings(t.spend)
	sender := netio.NewSender(s.clock, s.payload, netio.Budget{Bytes: s.limits.Bytes, Allowed: allowed}, []*net.TCPConn{c})
	end := time.NewTimer(t.time())
	defer end.Stop()
	var err error
	select {
	case <-end.C:
	case <-closed:
	case <-t.gone:
		err = errLeft
	}
	if err == nil && sender.Ended() {
		err = errBudget
	}
	sender.Pause()
	r := t.tcpResults(c)
	if err == nil {
		// The client must see an orderly end of the connection; otherwise it
		// reports an error.
		_ = c.CloseWrite()
		err = t.await(closed)
	}
	sender.Stop()
	<-closed
	r.Sent = sender.Written()[0]
	t.moved = sender.Moved()
	if !allowed(t.moved) && err == nil {
		err = errBudget
	}
	r.SendCalls = (r.Sent + netperfCall - 1) / netperfCall
	return r, err
}

// await waits a short time until the client has closed its side.
func (t *netperfTest) await(closed <-chan struct{}) error {
	patience := time.NewTimer(netio.Overrun)
	defer patience.Stop()
	select {
	case <-closed:
	case <-patience.C:
	case <-t.gone:
		return errLeft
	}
	return nil
}

// sendAmount sends the requested number of bytes.
func (t *netperfTest) sendAmount(c *net.TCPConn, closed <-chan struct{}) (r netperf.Results, err error) {
	defer func() {
		c.Close()
		<-closed
	}()
	stop := t.untilGone(c)
	defer stop()
	payload := t.server.payload
	_ = c.SetWriteDeadline(time.Now().Add(t.time()))
	book := t.book()
	for r.Sent < t.request.Amount && err == nil {
		var n int
		n, err = c.Write(payload[:min(int64(len(payload)), t.request.Amount-r.Sent)])
		r.Sent += int64(n)
		r.SendCalls++
		if err == nil {
			err = book(n)
		}
	}
	err = errors.Join(err, book(0))
	sent, calls := r.Sent, r.SendCalls
	r = t.tcpResults(c)
	r.Sent, r.SendCalls = sent, calls
	if err == nil {
		_ = c.CloseWrite()
		err = t.await(closed)
	}
	return r, t.leftOr(err)
}

// leftOr returns left if err is not nil.
func (t *netperfTest) leftOr(err error) error {
	if err == nil {
		return nil
	}
	return t.left(err)
}

// book returns a function that counts bytes and charges them in large pieces;
// called with 0, it charges the rest. It fails when the budget of the address
// or of the session is used up.
func (t *netperfTest) book() func(n int) error {
	unbooked := unit.Size(0)
	return func(n int) error {
		t.moved += int64(n)
		unbooked += unit.Size(n)
		if n > 0 && unbooked < bookEvery {
			return nil
		}
		within := t.spend(unbooked)
		unbooked = 0
		if most := t.server.limits.Bytes; !within || most > 0 && t.moved > int64(most) {
			return errBudget
		}
		return nil
	}
}

// untilGone closes c if the client leaves, until the returned function is called.
func (t *netperfTest) untilGone(c io.Closer) (stop func()) {
	over, done := make(chan struct{}), make(chan struct{})
	go func() { // stop waits for it
		defer close(done)
		select {
		case <-t.gone:
			c.Close()
		case <-over:
		}
	}()
	return func() {
		close(over)
		<-done
	}
}

// exchangeBuffer is the largest read or write of an exchange.
const exchangeBuffer = 64 << 10

// exchange answers requests with responses until the client closes.
func (t *netperfTest) exchange(c *net.TCPConn) (r netperf.Results, err error) {
	stop := t.untilGone(c)
	defer stop()
	_ = c.SetDeadline(time.Now().Add(t.time() + replyPatience))
	request := make([]byte, min(t.request.RequestSize, exchangeBuffer))
	payload := t.server.payload
	book := t.book()
	for err == nil {
		for left := t.request.RequestSize; left > 0 && err == nil; {
			var n int
			n, err = c.Read(request[:min(left, len(request))])
			left -= n
			r.Received += int64(n)
			r.ReceiveCalls++
		}
		for left := t.request.ResponseSize; left > 0 && err == nil; {
			var n int
			n, err = c.Write(payload[:min(left, len(payload))])
			left -= n
			r.Sent += int64(n)
			r.SendCalls++
		}
		if err == nil {
			r.Transactions++
			err = book(t.request.RequestSize + t.request.ResponseSize)
		}
	}
	counted := r
	r = t.tcpResults(c)
	r.Received, r.ReceiveCalls, r.Sent, r.SendCalls, r.Transactions = counted.Received, counted.ReceiveCalls, counted.Sent, counted.SendCalls, counted.Transactions
	if errors.Is(err, io.EOF) || errors.Is(err, os.ErrDeadlineExceeded) {
		err = nil // the client has closed, or the time is up
	}
	if left := book(0); err == nil {
		err = left
	}
	return r, t.leftOr(err)
}

// datagramOverhead is charged for each datagram in addition to its payload: the
// headers of IPv6 and UDP. Many small datagrams use as much of a line as a few
// large ones.
const datagramOverhead = 48

// datagrams answers requests that are datagrams with responses, until the
// client sends an empty one, or its time is up.
func (t *netperfTest) datagrams() (netperf.Results, error) {
	var udp *netio.PacketServer
	err := t.bind(func(address string) (err error) {
		udp, err = netio.ListenPackets(t.server.clock, address)
		return err
	})
	if err != nil {
		t.answer(t.control, netperf.ErrnoBusy)
		return netperf.Results{}, err
	}
	t.hold(udp)
	_ = udp.SetDSCP(max(t.request.TOS, 0) >> 2) // an error does not matter
	a := &netperfAnswers{test: t, book: t.book(), over: make(chan struct{})}
	served := make(chan struct{})
	go func() { // ends when udp is closed
		defer close(served)
		_ = udp.Serve(a.datagram)
	}()
	began := t.server.clock.Now()
	err = t.setup(udp.Addr().Port())
	if err == nil {
		// The client's datagrams that end the test may be lost.
		end := time.NewTimer(t.time() + netio.Overrun)
		select {
		case <-end.C:
		case <-a.over:
		case <-t.gone:
			err = errLeft
		}
		end.Stop()
	}
	t.end(udp)
	<-served
	if left := a.book(0); err == nil {
		err = errors.Join(a.err, left)
	}
	r := a.results
	r.Elapsed = t.server.clock.Now().Sub(began)
	return r, err
}

// netperfAnswers answers the datagrams of one test.
type netperfAnswers struct {
	test    *netperfTest
	book    func(n int) error
	peer    netip.AddrPort // after the client's first datagram
	results netperf.Results
	err     error
	ended   bool
	over    chan struct{} // closed at the end
}

// datagram answers one datagram, or returns nil.
func (a *netperfAnswers) datagram(from *netio.Peer, _ unit.Instant, b []byte) []byte {
	r := a.test.request
	if !a.peer.IsValid() && guard.Charged(from.Addr.Addr().Unmap()) == guard.Charged(a.test.from) && len(b) == r.RequestSize {
		a.peer = from.Addr
	}
	if a.ended || a.peer != from.Addr {
		if a.peer != from.Addr {
			a.test.server.refusals.add(protocolNetperf, "stranger")
		}
		return nil
	}
	if len(b) == 0 {
		a.end(nil)
		return nil
	}
	if len(b) != r.RequestSize {
		a.test.server.refusals.add(protocolNetperf, "malformed datagram")
		return nil
	}
	if err := a.book(len(b) + r.ResponseSize + 2*datagramOverhead); err != nil {
		a.end(err)
		return nil
	}
	a.results.Received += int64(len(b))
	a.results.Sent += int64(r.ResponseSize)
	a.results.ReceiveCalls++
	a.results.SendCalls++
	if a.results.Transactions++; a.results.Transactions == r.Amount {
		defer a.end(nil)
	}
	return b[:r.ResponseSize]
}

func (a *netperfAnswers) end(err error) {
	a.ended, a.err = true, err
	close(a.over)
}
