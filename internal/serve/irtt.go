package serve

import (
	"crypto/rand"
	"encoding/binary"
	"math"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"unbloat/internal/measure/netio"
	"unbloat/internal/measure/protocol/irtt"
	"unbloat/unit"
)

// irttServer answers the probes of irtt's clients. A connection's token is
// bound to the address and port that opened it. irtt's answer to a request to
// open is 8 bytes longer than the request. To prevent amplification, the ledger
// answers only when the requests from that address add up to the answer's
// length, which is at the client's second try.
type irttServer struct {
	server *Server
	udp    *netio.PacketServer
	key    []byte
	ledger *ledger
	born   unit.Instant

	mu    sync.Mutex
	conns map[uint64]*irttConn
	queue []uint64 // tokens of pending connections, oldest first
	swept unit.Instant
}

// irttConn is one connection. It is pending until its first probe arrives:
// until then it does not count as a session, because the address may be forged.
type irttConn struct {
	from   netip.AddrPort
	leave  func() // the accounts; nil while it is pending
	params irtt.Params
	opened unit.Instant
	used   unit.Instant
	probes *rate.Limiter
	count  uint32
	window uint64
	last   uint32
	bytes  int64
}

// Limits of an irtt connection.
const (
	irttInterval = 5 * time.Millisecond // mean interval between probes
	irttBurst    = 20                   // probes that may arrive at once out of a queue
	irttExpiry   = time.Minute          // of an unused connection
	irttPending  = 1 << 12              // connections without a probe; above it the oldest are removed
)

func listenIrtt(s *Server, address, key string) (*irttServer, error) {
	udp, err := s.sockets.packets(s.clock, address)
	if err != nil {
		return nil, err
	}
	now := s.clock.Now()
	return &irttServer{
		server: s, udp: udp, key: []byte(key), ledger: newLedger(), born: now, swept: now, conns: map[uint64]*irttConn{},
	}, nil
}

// datagram answers one datagram, or returns nil.
func (i *irttServer) datagram(from *netio.Peer, at unit.Instant, b []byte) []byte {
	flags, rest, err := irtt.Open(b, i.key)
	if err != nil || flags.Has(irtt.FlagReply) {
		i.server.refusals.add(protocolIrtt, "malformed")
		return nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.sweep(at)
	if flags.Has(irtt.FlagOpen) {
		return i.open(from.Addr, at, flags, rest, len(b))
	}
	token, seq, err := irtt.Token(rest)
	if err != nil {
		i.server.refusals.add(protocolIrtt, "malformed")
		return nil
	}
	c := i.conns[token]
	if c == nil || c.from != from.Addr {
		i.server.refusals.add(protocolIrtt, "unknown token")
		return nil
	}
	if flags.Has(irtt.FlagClose) {
		i.drop(token, c, "client is done")
		return nil
	}
	return i.echo(from, c, token, seq, at, b)
}

// open creates a connection, if the request is valid and its bytes cover the
// answer.
func (i *irttServer) open(from netip.AddrPort, at unit.Instant, flags irtt.Flags, rest []byte, size int) []byte {
	s := i.server
	p, err := irtt.ParseParams(rest)
	if err != nil || p.Version != irtt.Version {
		s.refusals.add(protocolIrtt, "malformed")
		return nil
	}
	p.Duration = min(p.Duration, s.limits.Session)
	p.Length = min(p.Length, irtt.MaxSize)
	p.Fill = "" // answers have no fill
	if p.DSCP < 0 || p.DSCP > math.MaxUint8 || !netio.CanMark {
		p.DSCP = 0
	}
	if flags.Has(irtt.FlagClose) { // the client only asks for the parameters
		out := irtt.OpenReply(0, p, irtt.FlagClose, i.key)
		if !i.ledger.trade(from.Addr(), size, len(out)) {
			return nil
		}
		return out
	}
	var t [8]byte
	_, _ = rand.Read(t[:]) // never fails: Go ends the program instead
	token := binary.LittleEndian.Uint64(t[:]) | 1
	out := irtt.OpenReply(token, p, 0, i.key)
	if !i.ledger.trade(from.Addr(), size, len(out)) {
		return nil
	}
	if i.queue = append(i.queue, token); len(i.queue) > irttPending {
		i.forget(i.queue[0], "pushed out by later ones")
		i.queue = i.queue[1:]
	}
	i.conns[token] = &irttConn{from: from, params: p, opened: at, used: at, probes: rate.NewLimiter(rate.Every(irttInterval), irttBurst)}
	return out
}

// forget removes a connection if it is still pending.
func (i *irttServer) forget(token uint64, why string) {
	c := i.conns[token]
	if c == nil || c.leave != nil {
		return
	}
	delete(i.conns, token)
	i.server.log.Debug("refused", "protocol", protocolIrtt, "from", c.from, "reason", "no probe came: "+why)
	i.server.refusals.add(protocolIrtt, "no probe")
}

// enliven makes a session of a pending connection, within the limits.
func (i *irttServer) enliven(c *irttConn) bool {
	if c.leave != nil {
		return true
	}
	leave, err := i.server.admit(c.from.Addr().Unmap(), protocolIrtt)
	if err != nil {
		i.server.log.Debug("refused", "protocol", protocolIrtt, "from", c.from, "reason", err)
		return false
	}
	c.leave = leave
	return true
}

// echo answers a probe.
func (i *irttServer) echo(from *netio.Peer, c *irttConn, token uint64, seq uint32, at unit.Instant, b []byte) []byte {
	s := i.server
	c.used = at
	if !c.probes.AllowN(time.Unix(0, int64(at)), 1) {
		s.refusals.add(protocolIrtt, "too often")
		return nil
	}
	if len(b) < int(c.params.EchoSize(i.key)) {
		s.refusals.add(protocolIrtt, "short request")
		return nil
	}
	c.bytes += int64(2 * len(b))
	c.receive(seq)
	e := irtt.Echo{Token: token, Seq: seq, Count: c.count, Window: c.window}
	switch {
	case !i.enliven(c):
		e.Flags = irtt.FlagClose
		delete(i.conns, token)
	case at.Sub(c.opened) > c.params.Duration+2*time.Second || !s.spend(c.from.Addr().Unmap(), unit.Size(2*len(b))):
		e.Flags = irtt.FlagClose
		i.drop(token, c, "its time or budget is used up")
	}
	out := b[:c.params.EchoSize(i.key)]
	now := s.clock.Now()
	e.Receive = irtt.Stamp{Wall: at, Mono: at.Sub(i.born)}
	e.Send = irtt.Stamp{Wall: now, Mono: now.Sub(i.born)}
	irtt.PutReply(out, e, c.params, i.key)
	from.Mark(uint8(c.params.DSCP) &^ 3) // not its ECN
	return out
}

// receive records the sequence number of a request.
func (c *irttConn) receive(seq uint32) {
	c.count++
	ahead := int32(seq - c.last)
	switch {
	case c.count == 1 || ahead >= 64:
		c.window, c.last = 1, seq
	case ahead >= 0:
		c.window, c.last = c.window<<uint(ahead)|1, seq
	case ahead > -64:
		c.window |= 1 << uint(-ahead)
	}
}

// drop removes a connection.
func (i *irttServer) drop(token uint64, c *irttConn, why string) {
	if c.leave == nil {
		i.forget(token, why)
		return
	}
	delete(i.conns, token)
	c.leave()
	i.server.log.Info("session", "protocol", protocolIrtt, "from", c.from, "bytes", c.bytes,
		"lasted", c.used.Sub(c.opened).Round(time.Millisecond), "end", why)
}

// sweep removes unused connections, at intervals.
func (i *irttServer) sweep(now unit.Instant) {
	if now.Sub(i.swept) < irttExpiry/4 {
		return
	}
	i.swept = now
	for token, c := range i.conns {
		if now.Sub(c.used) > irttExpiry {
			i.drop(token, c, "idle for too long")
		}
	}
}

func (i *irttServer) serve() error { return i.udp.Serve(i.datagram) }

func (i *irttServer) close() { i.udp.Close() }

func (i *irttServer) addr() netip.AddrPort { return i.udp.Addr() }

func (i *irttServer) name() string { return protocolIrtt }
