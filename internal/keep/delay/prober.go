package delay

import (
	"encoding/binary"
	"net/netip"
	"time"

	"unbloat/internal/measure/probe"
	"unbloat/unit"
)

// A Prober writes the probes that reflectors are asked with, and finds the probe
// that an answer belongs to. When to ask whom comes from outside.
//
// A target of kind Echo is first asked for ICMP timestamps (RFC 792), which tell
// both ways apart, and for echoes in turn. Where only echoes are answered, as over
// IPv6 and behind many firewalls, nothing else is asked for during the next minutes;
// then timestamps are again, since on a line that was out it may only have looked so.
//
// A Prober is for one goroutine; an answer allocates nothing.
type Prober struct {
	targets []target
	id      uint16
	nonce   uint32
	seq     uint16
	wait    [outstanding]pending
	waiting int // of wait, those that are not free
	sent    uint64
	bytes   uint64
	buf     [probe.MinSize]byte
}

// A Probe is a datagram to send.
type Probe struct {
	To     netip.Addr
	Hops   int    // the most that it may pass; 0: as many as usual
	Native bool   // a UDP payload for the unbloat serve, else an ICMP message
	Data   []byte // valid until the next Ask
}

type target struct {
	Target
	token    uint64 // of a Native stream; 0: none is open
	stamps   stampState
	tries    int          // requests for stamps that were not answered, though later echoes were
	refused  unit.Instant // when that was found out
	turn     bool         // the next question is an echo, while it is not known whether stamps are answered
	lost     int          // probes in a row without an answer
	up, down Envelope
	upAt     time.Duration // last apparent time, to see a day's end
	downAt   time.Duration
	began    bool
}

type stampState uint8

const (
	stampsUnknown stampState = iota
	stampsAnswered
	stampsRefused
)

// A pending probe waits for its answer.
type pending struct {
	sent   unit.Instant // zero: free
	target int
	seq    uint16
	kind   Kind
	late   bool // counted as lost, though it may still come
}

const (
	// answerTime is how long an answer may take: a queue of a slow line has been seen to
	// last for 20 s, and longer than a minute no controller looks back.
	answerTime = time.Minute
	// lateTime is after how long it counts as lost, when it is asked whether stamps are blocked.
	lateTime = 10 * time.Second
	// outstanding is how many may wait: with a queue there is one each 60 ms. A power of two.
	outstanding = 1024
	// stampTries is how many requests for stamps go unanswered, while echoes that were
	// sent after them are answered, before echoes take their place; stampsAgain is for
	// how long.
	stampTries  = 2
	stampsAgain = 5 * time.Minute
	// stampsLost is how many answers in a row have to be missing before stamps,
	// which were answered, are taken to be blocked now.
	stampsLost = 8
	day        = 24 * time.Hour
)

// ICMP types.
const (
	icmpEchoReply     = 0
	icmpEcho          = 8
	icmpTimeExceeded  = 11
	icmpStamp         = 13
	icmpStampReply    = 14
	icmp6TimeExceeded = 3
	icmp6Echo         = 128
	icmp6EchoReply    = 129
)

const (
	icmpHeader = 8
	echoSize   = icmpHeader + 8  // with our mark and the number of the probe
	stampSize  = icmpHeader + 12 // with three times
)

// NewProber returns a prober. id distinguishes the messages of several Probers of
// one machine; nonce, which nobody should be able to guess, those of the network.
func NewProber(of []Target, id uint16, nonce uint32) *Prober {
	p := &Prober{id: id, nonce: nonce, targets: make([]target, len(of))}
	for i, t := range of {
		t.Addr = t.Addr.Unmap()
		p.targets[i] = target{Target: t}
		if !t.Addr.Is4() {
			p.targets[i].stamps = stampsRefused
		}
	}
	return p
}

// Targets returns how many targets there are.
func (p *Prober) Targets() int { return len(p.targets) }

// Target returns the i-th target.
func (p *Prober) Target(i int) Target { return p.targets[i].Target }

// Open tells the token of the stream that an unbloat serve gave for the i-th
// target, which is Native; 0: it has none now, and is not asked.
func (p *Prober) Open(i int, token uint64) {
	t := &p.targets[i]
	if t.token != token {
		t.token = token
		t.up.Reset()
		t.down.Reset()
	}
}

// Reset forgets what is under way and what one-way times were: after the WAN's
// address or route has changed, or the clock was set.
func (p *Prober) Reset() {
	p.wait, p.waiting = [outstanding]pending{}, 0
	for i := range p.targets {
		t := &p.targets[i]
		t.up.Reset()
		t.down.Reset()
		t.began, t.tries, t.lost = false, 0, 0
		if t.stamps == stampsRefused && t.Addr.Is4() {
			t.stamps = stampsUnknown
		}
	}
}

// Ask returns the probe with which to ask the i-th target. It must leave at once,
// and counts as sent at now. ok is false if there is nothing to ask it with.
func (p *Prober) Ask(now unit.Instant, i int) (out Probe, ok bool) {
	t := &p.targets[i]
	if t.Kind == Native && t.token == 0 {
		return Probe{}, false
	}
	p.seq++
	w := &p.wait[p.seq%outstanding]
	p.lose(w)
	*w = pending{sent: now, target: i, seq: p.seq, kind: t.Kind}
	p.waiting++
	out = Probe{To: t.Addr}
	six := !t.Addr.Is4()
	switch {
	case t.Kind == Native:
		out.Native = true
		out.Data = p.buf[:probe.MinSize]
		probe.PutHeader(out.Data, probe.Header{Kind: probe.KindEcho, Seq: uint32(p.seq), Token: t.token})
	case t.Kind == Echo && t.asksStamp(now):
		w.kind = Stamp
		out.Data = p.message(icmpStamp, stampSize)
		binary.BigEndian.PutUint32(out.Data[icmpHeader:], uint32(ofDay(now)/time.Millisecond))
		clear(out.Data[icmpHeader+4:])
		putChecksum(out.Data)
	default:
		kind := byte(icmpEcho)
		if six {
			kind = icmp6Echo
		}
		out.Data = p.message(kind, echoSize)
		binary.BigEndian.PutUint32(out.Data[icmpHeader:], p.nonce)
		binary.BigEndian.PutUint32(out.Data[icmpHeader+4:], uint32(p.seq))
		if !six { // over IPv6 the kernel computes it
			putChecksum(out.Data)
		}
		if t.Kind == FirstHop {
			out.Hops = 1
		}
	}
	p.sent++
	p.bytes += wireSize(out, six)
	return out, true
}

// asksStamp says whether the next question is for stamps.
func (t *target) asksStamp(now unit.Instant) bool {
	if t.stamps == stampsRefused && t.Addr.Is4() && now.Sub(t.refused) >= stampsAgain {
		t.stamps, t.tries = stampsUnknown, 0
	}
	if t.stamps == stampsUnknown {
		t.turn = !t.turn
		return t.turn
	}
	return t.stamps == stampsAnswered
}

// overtaken gives up the requests for stamps that are older than an echo which was
// answered now, and decides that stamps are refused when enough were. That a line loses
// or delays them alike says nothing.
func (p *Prober) overtaken(now unit.Instant, echo *pending) {
	t := &p.targets[echo.target]
	if t.stamps != stampsUnknown {
		return
	}
	for i := range p.wait {
		if w := &p.wait[i]; w.sent != 0 && w.kind == Stamp && w.target == echo.target && w.sent < echo.sent {
			t.tries++
			p.free(w)
		}
	}
	if t.tries >= stampTries {
		t.stamps, t.refused = stampsRefused, now
	}
}

// lose ends the wait for an answer.
func (p *Prober) lose(w *pending) {
	if w.sent == 0 {
		return
	}
	p.miss(w)
	p.free(w)
}

// miss counts an answer that is late.
func (p *Prober) miss(w *pending) {
	if w.late {
		return
	}
	t := &p.targets[w.target]
	w.late = true
	t.lost++
	if w.kind == Stamp && t.stamps == stampsAnswered && t.lost >= stampsLost {
		t.stamps, t.tries = stampsUnknown, 0
	}
}

// Expire gives up the probes whose answers are overdue. It is to be called now and then.
func (p *Prober) Expire(now unit.Instant) {
	if p.waiting == 0 {
		return
	}
	for i := range p.wait {
		switch w := &p.wait[i]; {
		case w.sent == 0:
		case now.Sub(w.sent) > answerTime:
			p.lose(w)
		case now.Sub(w.sent) > lateTime:
			p.miss(w)
		}
	}
}

// free ends the wait for an answer that has come, or comes no more.
func (p *Prober) free(w *pending) {
	*w = pending{}
	p.waiting--
}

// Waiting returns how many probes wait for their answer.
func (p *Prober) Waiting() int { return p.waiting }

// Sent returns how many probes have left, and how many bytes they and their
// answers occupied on Ethernet: an answer that was lost is not counted.
func (p *Prober) Sent() (probes, bytes uint64) { return p.sent, p.bytes }

// message begins an ICMP message.
func (p *Prober) message(kind byte, size int) []byte {
	b := p.buf[:size]
	clear(b[:icmpHeader])
	b[0] = kind
	binary.BigEndian.PutUint16(b[4:], p.id)
	binary.BigEndian.PutUint16(b[6:], p.seq)
	return b
}

// putChecksum writes the Internet checksum (RFC 1071) of an ICMP message.
func putChecksum(b []byte) {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(b[i])<<8 | uint32(b[i+1])
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	binary.BigEndian.PutUint16(b[2:], ^uint16(sum))
}

// ofDay returns the time since midnight, as ICMP timestamps count it.
func ofDay(at unit.Instant) time.Duration {
	d := time.Duration(at) % day
	if d < 0 {
		d += day
	}
	return d
}

// ICMP takes in an ICMP message that came from an address, without its IP header,
// and returns the sample that it gives. ok is false of what answers no probe.
func (p *Prober) ICMP(at unit.Instant, from netip.Addr, b []byte) (s Sample, ok bool) {
	from = from.Unmap()
	if len(b) < icmpHeader {
		return s, false
	}
	six := !from.Is4()
	size := len(b)
	quoted := false
	switch kind := b[0]; {
	case !six && kind == icmpEchoReply, !six && kind == icmpStampReply, six && kind == icmp6EchoReply:
	case !six && kind == icmpTimeExceeded, six && kind == icmp6TimeExceeded:
		if b = quote(b[icmpHeader:], six); b == nil {
			return s, false
		}
		quoted = true
	default:
		return s, false
	}
	if binary.BigEndian.Uint16(b[4:]) != p.id {
		return s, false
	}
	seq := binary.BigEndian.Uint16(b[6:])
	w := &p.wait[seq%outstanding]
	if w.sent == 0 || w.seq != seq || w.kind == Native || quoted != (w.kind == FirstHop) {
		return s, false
	}
	t := &p.targets[w.target]
	if six == t.Addr.Is4() || !quoted && from != t.Addr {
		return s, false
	}
	rtt := at.Sub(w.sent)
	s = Sample{At: at, Kind: w.kind, Index: w.target, Source: from, RTT: rtt}
	switch {
	case rtt <= 0 || rtt > answerTime:
		return Sample{}, false
	case w.kind == Stamp:
		if b[0] != icmpStampReply || len(b) < stampSize || binary.BigEndian.Uint32(b[icmpHeader:]) != uint32(ofDay(w.sent)/time.Millisecond) {
			return Sample{}, false
		}
		if !t.stamped(&s, w.sent, binary.BigEndian.Uint32(b[icmpHeader+4:]), binary.BigEndian.Uint32(b[icmpHeader+8:])) {
			t.stamps, t.refused = stampsRefused, at
			s.Kind = Echo
		}
	case !quoted && (b[0] != icmpEchoReply && b[0] != icmp6EchoReply || len(b) < echoSize ||
		binary.BigEndian.Uint32(b[icmpHeader:]) != p.nonce || binary.BigEndian.Uint32(b[icmpHeader+4:]) != uint32(seq)):
		return Sample{}, false
	}
	if w.kind == Echo {
		p.overtaken(at, w)
	}
	p.free(w)
	t.lost = 0
	p.bytes += frame(ipHeader(six) + size)
	return s, true
}

// quote returns the ICMP message that an error quotes, or nil.
func quote(b []byte, six bool) []byte {
	const header4, header6, icmp4, icmp6 = 20, 40, 1, 58
	n := header6
	if !six {
		if len(b) < header4 || b[0]>>4 != 4 || b[9] != icmp4 {
			return nil
		}
		n = int(b[0]&15) * 4
	} else if len(b) < header6 || b[0]>>4 != 6 || b[6] != icmp6 {
		return nil
	}
	if n < header4 || len(b) < n+icmpHeader {
		return nil
	}
	if kind := b[n]; kind != icmpEcho && !six || kind != icmp6Echo && six {
		return nil
	}
	return b[n:]
}

// stamped completes a sample with what an ICMP timestamp says; false if it says
// nothing that can be used.
func (t *target) stamped(s *Sample, sent unit.Instant, received, left uint32) bool {
	const millisecondsADay = uint32(day / time.Millisecond)
	if received >= millisecondsADay || left >= millisecondsADay { // RFC 792: not since midnight
		return false
	}
	up := time.Duration(received)*time.Millisecond - ofDay(sent)
	down := ofDay(s.At) - time.Duration(left)*time.Millisecond
	if t.began { // at midnight, the nearest of what it can mean
		up, down = t.upAt+wrap(up-t.upAt), t.downAt+wrap(down-t.downAt)
	}
	const most = time.Minute // a clock that was set
	if t.began && ((up-t.upAt).Abs() > most || (down-t.downAt).Abs() > most) {
		t.up.Reset()
		t.down.Reset()
	}
	t.upAt, t.downAt, t.began, t.stamps = up, down, true, stampsAnswered
	s.OneWay, s.Up, s.Down = true, t.up.Add(s.At, up), t.down.Add(s.At, down)
	return true
}

// wrap brings a difference of two times of day to within half a day.
func wrap(d time.Duration) time.Duration {
	d %= day
	switch {
	case d > day/2:
		d -= day
	case d < -day/2:
		d += day
	}
	return d
}

// Native takes in a datagram that came from the unbloat serve of the i-th target.
func (p *Prober) Native(at unit.Instant, i int, b []byte) (s Sample, ok bool) {
	h, err := probe.ParseHeader(b)
	t := &p.targets[i]
	if err != nil || h.Kind != probe.KindReply || t.token == 0 || h.Token != t.token || h.Seq > 0xffff {
		return s, false
	}
	w := &p.wait[uint16(h.Seq)%outstanding]
	if w.sent == 0 || w.seq != uint16(h.Seq) || w.target != i {
		return s, false
	}
	rtt := at.Sub(w.sent) - h.Residence
	if rtt <= 0 || rtt > answerTime {
		return s, false
	}
	s = Sample{At: at, Kind: Native, Index: i, Source: t.Addr, RTT: rtt, OneWay: true}
	s.Up = t.up.Add(at, h.ServerReceived.Sub(w.sent))
	s.Down = t.down.Add(at, at.Sub(h.ServerReceived.Add(h.Residence)))
	p.free(w)
	p.bytes += frame(ipHeader(!t.Addr.Is4()) + udpHeader + len(b))
	return s, true
}

const (
	udpHeader      = 8
	ethernetHeader = 14
	leastFrame     = 60 // frame check not counted
)

func ipHeader(six bool) int {
	if six {
		return 40
	}
	return 20
}

// frame is what an IP packet occupies on Ethernet, frame check not counted.
func frame(packet int) uint64 { return uint64(max(ethernetHeader+packet, leastFrame)) }

func wireSize(o Probe, six bool) uint64 {
	n := ipHeader(six) + len(o.Data)
	if o.Native {
		n += udpHeader
	}
	return frame(n)
}
