package sim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"unbloat/lab/aqm"
	"unbloat/unit"
)

// Control names a TCP congestion control.
type Control string

// The congestion controls that there are.
const (
	Cubic  Control = "cubic" // with HyStart, as in Linux
	Reno   Control = "reno"
	BBR    Control = "bbr"    // version 1, paced
	LEDBAT Control = "ledbat" // BitTorrent's low-priority control (RFC 6817)
)

// Controls returns the congestion controls' names.
func Controls() []Control { return []Control{Cubic, Reno, BBR, LEDBAT} }

// Sizes of a TCP segment over IPv4 on Ethernet with timestamps.
const (
	fullPayload = 1448
	headers     = 14 + 20 + 32
	ackFrame    = headers
	sackBlock   = 8
	sackOption  = 4 // kind, length, and padding
)

// ConnParams describe one TCP connection. Data flows in one direction; its
// acknowledgements flow in the other.
type ConnParams struct {
	Direction Direction     // of the data
	Host      int           // which machine of the home, from 1
	Control   Control       // "": Cubic
	Start     unit.Instant  // when it starts to send; it has been opened before
	Stop      unit.Instant  // when both ends drop it; 0: never
	Segments  int           // how many to send; 0: as many as the network takes
	Payload   unit.Size     // of a segment; 0: 1448
	Datagram  bool          // QUIC: a router sees datagrams, where TCP's are segments
	ECN       bool          // both ends understand ECN
	ExtraRTT  time.Duration // how much further away this server is than the nearest
	QuickAcks int           // first segments that the receiver acknowledges one by one
	Window    unit.Size     // the receive window; 0: 4 MiB
	FlowKey   uint32        // hash of the flow; 0: at random
	Bin       time.Duration // of the goodput series; 0: 100 ms
	// Done is called when all Segments have been acknowledged; may be nil.
	Done func(now unit.Instant)
	// Arrived is called at the receiver when segments have arrived in order,
	// with how many that are since the beginning; may be nil.
	Arrived func(now unit.Instant, segments int64)
	// OnDemand makes Segments 0 mean none until Send asks for some.
	OnDemand bool
}

// ConnStats counts what a connection did.
type ConnStats struct {
	Sent        int64 // segments, with those sent again
	Retransmits int64
	Timeouts    int64 // retransmission timeouts
	Delivered   int64 // segments that arrived in order
	Lost        int64 // segments that the network dropped
	Marked      int64 // congestion experienced, seen by the receiver
}

// state of a sender, as Linux names them; its Disorder is Open here.
type state uint8

const (
	stateOpen     state = iota
	stateReducing       // CWR: reduces its window because of ECN
	stateRecovery       // fast retransmit
	stateLoss           // after a timeout
)

// Conn is a TCP connection: sender and receiver.
type Conn struct {
	params  ConnParams
	index   uint32
	frame   int32 // of a full segment
	started bool
	stopped bool
	keys    keys
	counts  ConnStats // but Delivered

	// Receiver.
	expected  int32  // so many segments have arrived in order
	highest   int32  // one beyond the highest segment seen
	ranges    []span // out of order, the newest first; some if highest is beyond expected
	pending   int32  // in-order segments not acknowledged yet
	quick     int32  // segments that are acknowledged at once
	echo      unit.Instant
	stampBack unit.Instant // when the last acknowledgement that the sender saw was sent
	ece       bool
	copied    bool         // the next acknowledgement reports a copy
	ackAlarm  alarm        // for the acknowledgement that is owed
	bins      []int64      // of goodput, those before the one under way
	binEnd    unit.Instant // of the bin under way
	binBytes  int64        // in it

	// Sender. Segments are numbered from 0.
	una, nxt, limit int32
	segments        []segment // those that are out: a ring, its length a power of two
	window          int32     // receiver's, in segments
	cwnd, ssthresh  int32
	state           state
	high            int32 // nxt when the state was entered
	sacked, lost    int32 // segments in flight's terms: see inFlight
	resent          int32
	toResend        int32
	fack            int32 // one beyond the highest segment delivered
	delivered       int32
	appLimitedUntil int32
	mostOut         int32 // most segments in flight in this round
	mostOutEnd      int32
	limited         bool // by the window when it last sent
	announceCWR     bool
	rtt             rttEstimate
	minRTT          minFilter
	control         control
	model           *bbr    // the control, if it is BBR: it sets window and pace itself
	paceRate        float64 // payload bytes a second; 0: not paced
	nextSend        unit.Instant
	paceAlarm       alarm
	alarm           alarm // for retransmission, a probe, or reordering
	timerIs         timerKind

	// Sender, when something is lost.
	scan            int32 // originals before it have been judged
	probing         bool  // a tail loss probe is out
	probeEnd        int32 // nxt when the probe was sent
	spurious        bool  // the timeout may have been (F-RTO, RFC 5682)
	sackSeen        bool  // seenSacks has something
	seenSacks       [mostRuns]span
	reordered       bool         // something has overtaken
	rackEnd         int32        // segment of rackSent
	rackSent        unit.Instant // the latest transmission that was delivered …
	rackRTT         time.Duration
	resentAt        unit.Instant // when the first was sent again since the state was entered
	undoCwnd        int32        // window and threshold before the timeout or recovery
	undoSsthresh    int32
	undoResends     int32 // resent since then and not reported as a copy
	hint            int32 // where to look for the next segment to resend
	reducePrior     int32 // proportional rate reduction (RFC 6937)
	reduceDelivered int32
	reduceOut       int32
	resends         []resend
	resendHead      int
	waitingAcks     [keptAcks]uint32 // packets of acknowledgements given to a merging shaper
}

// fewSegments is how many a ring of segments has room for at first.
const fewSegments = 16

// AddConn adds a connection, opened already: both ends know the round trip of
// the idle line.
func (n *Network) AddConn(p ConnParams) (*Conn, error) {
	if p.Control == "" {
		p.Control = Cubic
	}
	if p.Payload == 0 {
		p.Payload = fullPayload
	}
	if p.Window == 0 {
		p.Window = 4 << 20
	}
	if p.Bin == 0 {
		p.Bin = 100 * time.Millisecond
	}
	switch {
	case p.Payload < 1 || p.Payload > 64<<10-headers:
		return nil, fmt.Errorf("sim: a segment of %d bytes is not possible", p.Payload)
	case p.Segments < 0 || p.Host < 0 || p.Bin < time.Microsecond:
		return nil, errors.New("sim: a connection's segments, host or bin is negative")
	case p.Start < n.now:
		return nil, errors.New("sim: a connection starts in the past")
	}
	w, err := n.wiresFor(p.ExtraRTT)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(Controls(), p.Control) {
		return nil, fmt.Errorf("sim: no congestion control %q; there are %v", p.Control, Controls())
	}
	c := &Conn{params: p, index: uint32(len(n.conns)), frame: int32(p.Payload + headers)}
	n.conns = append(n.conns, c)
	c.keys = keys{p.FlowKey, hostKey(p.Host), n.hash(), uint8(w)}
	if p.FlowKey == 0 {
		c.keys.flow = n.hash()
	}
	c.ackAlarm, c.alarm, c.paceAlarm = newAlarm(), newAlarm(), newAlarm()
	c.segments = make([]segment, fewSegments)
	c.limit = int32(p.Segments)
	if p.Segments == 0 && !p.OnDemand {
		c.limit = 1<<31 - 1
	}
	c.window = int32(max(p.Window/p.Payload, 2))
	c.cwnd, c.ssthresh = 10, 1<<30
	c.quick = int32(p.QuickAcks)
	c.binEnd = p.Start.Add(p.Bin)
	switch p.Control {
	case Cubic:
		c.control = &cubic{}
	case Reno:
		c.control = &reno{}
	case LEDBAT:
		c.control = &ledbat{}
	case BBR:
		c.model = &bbr{firstPhase: c.keys.flow % 7}
		c.control = c.model
	}
	idle := n.wires[Up][w].Delay + n.wires[Down][w].Delay
	c.rtt.take(max(idle, time.Microsecond), 0, 0)
	c.minRTT.take(n.now, max(idle, time.Microsecond))
	n.timers.push(p.Start, c.index, taskStart)
	if p.Stop > 0 {
		n.timers.push(p.Stop, c.index, taskStop)
	}
	return c, nil
}

// hostKey returns the key of a machine of the home.
func hostKey(host int) uint32 { return uint32(max(host, 1)) * 0x9E3779B1 }

// start lets the sender begin.
func (c *Conn) start(n *Network) {
	if c.stopped || c.started {
		return
	}
	c.started = true
	c.control.start(c, n.now)
	c.output(n)
}

// Stop drops the connection at both ends. Packets that are under way still
// arrive, and are ignored.
func (c *Conn) Stop() {
	c.stopped = true
	c.ackAlarm.want, c.alarm.want, c.paceAlarm.want = never, never, never
}

// Send adds segments to what a connection with a limit sends, now.
func (c *Conn) Send(n *Network, segments int) {
	if c.limit == c.nxt {
		c.limited = false
	}
	c.limit += int32(segments)
	if c.started && !c.stopped {
		c.output(n)
	}
}

// Stats returns the counters.
func (c *Conn) Stats() ConnStats {
	s := c.counts
	s.Delivered = int64(c.expected)
	return s
}

// Acked returns how many bytes of payload have been acknowledged.
func (c *Conn) Acked() unit.Size { return unit.Size(c.una) * c.params.Payload }

// Sacked returns how many bytes of payload are known to have arrived behind a
// hole.
func (c *Conn) Sacked() unit.Size { return unit.Size(c.sacked) * c.params.Payload }

// Goodput returns the bytes of payload that have arrived, each once, in bins
// that follow each other from the returned instant on.
func (c *Conn) Goodput() (start unit.Instant, bin time.Duration, bytes []int64) {
	return c.params.Start, c.params.Bin, append(c.bins[:len(c.bins):len(c.bins)], c.binBytes)
}

// inFlight returns how many segments are in the network, as far as the sender
// can tell (tcp_packets_in_flight).
func (c *Conn) inFlight() int32 { return c.nxt - c.una - c.sacked - c.lost + c.resent }

// transmit sends segment i, which is new or known to the ring already.
func (c *Conn) transmit(n *Network, i int32, again bool) {
	s := c.at(i)
	s.sent = n.now
	if c.model != nil {
		c.model.departs(c, n.now, s, again)
	}
	s.flags &^= segLimited
	if c.appLimitedUntil > 0 {
		s.flags |= segLimited
	}
	id, p := n.packets.take()
	p.kind, p.owner, p.seq, p.size, p.sent, p.echo = kindData, c.index, i, c.frame, n.now, c.stampBack
	if c.params.ECN && !again {
		p.ecn = aqm.ECT
	}
	if c.announceCWR && !again {
		p.notes |= noteCWR
		c.announceCWR = false
	}
	c.counts.Sent++
	if again {
		c.counts.Retransmits++
	}
	if c.paceRate > 0 {
		gap := unit.Instant(float64(c.params.Payload) / c.paceRate * 1e9)
		c.nextSend = max(c.nextSend, n.now-gap/2) + gap
	}
	n.send(c.params.Direction, id)
}
