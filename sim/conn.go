package sim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"unbloat/aqm"
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
	ECN       bool          // both ends understand ECN
	Pacing    bool          // segments are spread over the round trip (BBR always does)
	ExtraRTT  time.Duration // how much further away this server is than the nearest
	QuickAcks int           // first segments that the receiver acknowledges one by one
	Window    unit.Size     // what the receiver takes in advance; 0: 4 MiB
	DSCP      uint8
	Class     uint8         // leaf of a classful shaper
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
	stateReducing       // CWR: told by ECN to reduce its window
	stateRecovery       // fast retransmit
	stateLoss           // after a timeout
)

// How a connection lies in memory, in lines of 64 bytes: the receiver's, one of
// both, and the sender's. An acknowledgement without losses needs the sender's and
// the segments', a segment that arrives in order the receiver's, both the one between.
const (
	receiverLines = 2
	sharedLine    = 1
	senderLines   = 6 // from the shared one on
	alarmLine     = 2 // the retransmission timer's
	rangesLine    = 8
	segmentsLine  = 9
	segmentsALine = 4
	fewSegments   = 16 // have their place in the connection
	lossLines     = 2  // of what a sender needs after a loss
	connChunk     = 64
)

// Conn is a TCP connection: sender and receiver. What a segment or an
// acknowledgement needs stands together, because with thousands of connections
// most of the time would go into fetching it from memory (TestConnLayout).
type Conn struct {
	// Receiver.
	binEnd   unit.Instant // of the bin under way
	binBytes int64        // in it
	ackAlarm alarm        // for the acknowledgement that is owed
	bins     []int64      // of goodput, those before the one under way
	arrived  func(now unit.Instant, segments int64)

	// Both.
	index       uint32
	frame       int32 // of a full segment
	payload     int32 // of a segment
	direction   Direction
	stopped     bool
	started     bool
	ece         bool
	keys        keys
	expected    int32 // so many segments have arrived in order
	highest     int32 // one beyond the highest segment seen
	pending     int32 // in-order segments not acknowledged yet
	quick       int32 // segments that are acknowledged at once
	echo        unit.Instant
	copied      bool // the receiver owes word of a copy
	ecn         bool
	pacing      bool
	announceCWR bool
	mostOut     int32 // most segments in flight in this round

	// Sender. Segments are numbered from 0.
	una, nxt, limit int32
	window          int32 // receiver's, in segments
	cwnd, ssthresh  int32
	high            int32 // nxt when the state was entered
	sacked, lost    int32 // segments in flight's terms: see inFlight
	resent          int32
	toResend        int32
	scan            int32 // originals before it have been judged
	alarm           alarm // for retransmission, a probe, or reordering
	segments        []segment
	control         control
	model           *bbr    // the control, if it is BBR: it sets window and pace itself
	paceRate        float64 // payload bytes a second; 0: not paced
	mostOutEnd      int32
	fack            int32 // one beyond the highest segment delivered
	rtt             rttEstimate
	minRTT          minFilter
	delivered       int32
	appLimitedUntil int32
	state           state
	timerIs         timerKind
	limited         bool         // by the window when it last sent
	probing         bool         // a tail loss probe is out
	spurious        bool         // the timeout may have been (F-RTO, RFC 5682)
	sackSeen        bool         // seenSacks has something
	reordered       bool         // something has overtaken
	rackEnd         int32        // segment of rackSent
	rackSent        unit.Instant // the latest transmission that was delivered …
	rackRTT         time.Duration
	resentAt        unit.Instant // when the first was sent again since the state was entered
	done            func(now unit.Instant)
	sent            int64 // segments
	cubic           cubic // the control's state, here so that it is near

	paceAlarm alarm
	nextSend  unit.Instant
	*rare

	// Receiver, when something is missing or a bin is full.
	ranges  []span // out of order, the newest first; some if highest is beyond expected
	bin     time.Duration
	inPlace [4]span // for ranges, while they are few

	inConn [fewSegments]segment // for segments, while the window is small
}

// rare is what is needed of a connection when something is lost, and seldom
// otherwise.
type rare struct {
	undoCwnd        int32 // window and threshold before the timeout or recovery
	undoSsthresh    int32
	undoResends     int32 // since then, those of which no copy has been heard of
	hint            int32 // where to look for the next segment to resend
	probeEnd        int32 // nxt when the probe was sent
	reducePrior     int32 // proportional rate reduction (RFC 6937)
	reduceDelivered int32
	reduceOut       int32
	resends         []resend
	resendHead      int
	seenSacks       [mostRuns]span
	resendsInPlace  [2]resend        // for resends, while they are few
	waitingAcks     [keptAcks]uint32 // packets of acknowledgements given to a merging shaper

	counts   ConnStats // Sent and Delivered are elsewhere
	params   ConnParams
	spacious []segment // memory for segments that a larger window had
}

// conn returns the connection of an index.
func (n *Network) conn(i uint32) *Conn { return &n.conns[i/connChunk][i%connChunk] }

// newConn returns room for one more connection.
func (n *Network) newConn() *Conn {
	i := uint32(n.opened)
	if i%connChunk == 0 {
		chunk, rares := make([]Conn, connChunk), make([]rare, connChunk)
		for k := range chunk {
			chunk[k].rare = &rares[k]
		}
		n.conns = append(n.conns, chunk)
	}
	n.opened++
	c := n.conn(i)
	c.index, c.segments = i, c.inConn[:]
	return c
}

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
	c := n.newConn()
	c.params, c.direction, c.ecn, c.pacing, c.done = p, p.Direction, p.ECN, p.Pacing, p.Done
	c.frame, c.payload, c.arrived = int32(p.Payload+headers), int32(p.Payload), p.Arrived
	c.keys = keys{p.FlowKey, hostKey(p.Host), n.hash(), p.Class, p.DSCP, uint8(w)}
	if p.FlowKey == 0 {
		c.keys.flow = n.hash()
	}
	c.ackAlarm, c.alarm, c.paceAlarm = newAlarm(), newAlarm(), newAlarm()
	c.ranges, c.resends = c.inPlace[:0], c.resendsInPlace[:0]
	c.limit = int32(p.Segments)
	if p.Segments == 0 && !p.OnDemand {
		c.limit = 1<<31 - 1
	}
	c.window = int32(max(p.Window/p.Payload, 2))
	c.cwnd, c.ssthresh = 10, 1<<30
	c.quick = int32(p.QuickAcks)
	c.bin, c.binEnd = p.Bin, p.Start.Add(p.Bin)
	switch p.Control {
	case Cubic:
		c.control = &c.cubic
	case Reno:
		c.control = &reno{}
	case LEDBAT:
		c.control = &ledbat{}
	case BBR:
		c.model = &bbr{firstPhase: c.keys.flow % 7, flights: make([]flight, fewSegments)}
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

// Stop drops the connection at both ends. Its packets that are under way
// arrive, and nobody cares.
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
	s.Sent, s.Delivered = c.sent, int64(c.expected)
	return s
}

// Window returns the congestion window, in segments.
func (c *Conn) Window() int { return int(c.cwnd) }

// Acked returns how many bytes of payload have been acknowledged.
func (c *Conn) Acked() unit.Size { return unit.Size(c.una) * c.params.Payload }

// Sacked returns how many bytes of payload are known to have arrived behind a
// hole.
func (c *Conn) Sacked() unit.Size { return unit.Size(c.sacked) * c.params.Payload }

// Goodput returns the bytes of payload that have arrived, each once, in bins
// that follow each other from the returned instant on.
func (c *Conn) Goodput() (start unit.Instant, bin time.Duration, bytes []int64) {
	return c.params.Start, c.bin, append(c.bins[:len(c.bins):len(c.bins)], c.binBytes)
}

// inFlight returns how many segments are in the network, as far as the sender
// can tell (tcp_packets_in_flight).
func (c *Conn) inFlight() int32 { return c.nxt - c.una - c.sacked - c.lost + c.resent }

// transmit sends segment i, which is new or known to the ring already.
func (c *Conn) transmit(n *Network, i int32, again bool) {
	s := c.at(i)
	s.sent = n.now
	if c.model != nil {
		c.model.departs(c, n.now, i, again)
	}
	s.flags &^= segLimited
	if c.appLimitedUntil > 0 {
		s.flags |= segLimited
	}
	id, p := n.packets.take()
	p.kind, p.owner, p.seq, p.size, p.sent, p.wire = kindData, c.index, i, c.frame, n.now, c.keys.wires
	if c.ecn && !again {
		p.ecn = aqm.ECT
	}
	if c.announceCWR && !again {
		p.notes |= noteCWR
		c.announceCWR = false
	}
	c.sent++
	if again {
		c.counts.Retransmits++
	}
	if c.paceRate > 0 {
		gap := unit.Instant(float64(c.payload) / c.paceRate * 1e9)
		c.nextSend = max(c.nextSend, n.now-gap/2) + gap
	}
	n.send(c.direction, id)
}
