package sim

import (
	"time"

	"unbloat/unit"
)

// rateSample is what the newest of the delivered segments says of the rate
// (draft-cheng-iccrg-delivery-rate-estimation, tcp_rate.c).
type rateSample struct {
	valid   bool
	limited bool // the application was the limit
	prior   int32
	priorAt unit.Instant
	send    time.Duration // of its flight
}

// rate returns segments per second, 0 if nothing can be said.
func (r *rateSample) rate(c *Conn, now unit.Instant) float64 {
	if !r.valid {
		return 0
	}
	interval := max(r.send, now.Sub(r.priorAt))
	if interval <= 0 || interval < c.minRTT.value {
		return 0
	}
	return float64(c.delivered-r.prior) / interval.Seconds()
}

// Constants of tcp_bbr.c.
const (
	bbrHighGain   = 2.885
	bbrRounds     = 10 // of the bandwidth filter
	bbrWindowRTT  = 10 * time.Second
	bbrProbeRTT   = 200 * time.Millisecond
	bbrLeastCwnd  = 4
	bbrFullBW     = 1.25
	bbrFullRounds = 3
	bbrMargin     = 0.99
)

type bbrMode uint8

const (
	bbrStartup bbrMode = iota
	bbrDrain
	bbrProbeBW
	bbrProbingRTT
)

// bbr is BBR version 1 as in Linux, without its detection of policers and its
// allowance for aggregated acknowledgements, which no model here needs.
type bbr struct {
	firstSent      unit.Instant // of the flight under way
	deliveredAt    unit.Instant
	firstPhase     uint32 // after which of its cycle's phases a flow begins
	mode           bbrMode
	pacing, window float64 // gains
	bw             [3]bwSample
	round          int32
	nextRound      int32 // delivered at which the round ends
	roundStart     bool
	full           float64
	fullRounds     int
	isFull         bool
	minRTT         time.Duration
	minAt          unit.Instant
	doneAt         unit.Instant // of probing the round trip; 0: not begun
	roundDone      bool
	phase          int
	phaseAt        unit.Instant
	prior          int32 // window before recovery or probing
	conserving     bool
	before         state
}

type bwSample struct {
	round int32
	rate  float64
}

// gains of the phases of ProbeBW.
func bbrPhaseGain(phase int) float64 {
	switch phase {
	case 0:
		return 1.25
	case 1:
		return 0.75
	}
	return 1
}

// flight is what BBR needs of a delivered segment to compute the rate.
type flight struct {
	first       unit.Instant // start of the flight it belongs to
	deliveredAt unit.Instant // when delivered was counted
	delivered   int32
}

// departs notes what is delivered when a segment is sent.
func (b *bbr) departs(c *Conn, now unit.Instant, s *segment, again bool) {
	if c.nxt == c.una || c.inFlight() == 0 && !again {
		b.firstSent, b.deliveredAt = now, now
	}
	s.flight = flight{b.firstSent, b.deliveredAt, c.delivered}
}

// arrives makes a sample of a segment, if none delivered with it left later.
func (b *bbr) arrives(s *segment, a *ack) {
	if a.rate.valid && s.sent < b.firstSent {
		return
	}
	f := &s.flight
	a.rate = rateSample{true, s.flags&segLimited != 0, f.delivered, f.deliveredAt, s.sent.Sub(f.first)}
	b.firstSent = s.sent
}

func (b *bbr) start(c *Conn, now unit.Instant) {
	b.firstSent, b.deliveredAt = now, now
	b.pacing, b.window = bbrHighGain, bbrHighGain
	b.minRTT, b.minAt = c.minRTT.value, now
	b.setPace(c, float64(c.cwnd)/c.rtt.smoothed().Seconds())
}

func (b *bbr) sample(*Conn, *ack) {}
func (b *bbr) grow(*Conn, *ack)   {}

func (b *bbr) reduce(c *Conn, _ unit.Instant) int32 {
	b.save(c)
	return c.ssthresh
}

func (b *bbr) timeout(c *Conn, _ unit.Instant) {
	b.before = stateLoss
	b.full, b.fullRounds = 0, 0
	b.roundStart = true
}

func (b *bbr) recovered(*Conn) {}

func (b *bbr) save(c *Conn) {
	if b.before < stateRecovery && b.mode != bbrProbingRTT {
		b.prior = c.cwnd
	} else {
		b.prior = max(b.prior, c.cwnd)
	}
}

// best returns the greatest bandwidth of the last rounds, in segments a second.
func (b *bbr) best() float64 { return b.bw[0].rate }

// learn takes a bandwidth sample into the windowed maximum (lib/win_minmax.c).
func (b *bbr) learn(rate float64) {
	s := bwSample{b.round, rate}
	if rate >= b.bw[0].rate || s.round-b.bw[2].round > bbrRounds {
		b.bw = [3]bwSample{s, s, s}
		return
	}
	if rate >= b.bw[1].rate {
		b.bw[1], b.bw[2] = s, s
	} else if rate >= b.bw[2].rate {
		b.bw[2] = s
	}
	age := s.round - b.bw[0].round
	switch {
	case age > bbrRounds:
		b.bw[0], b.bw[1], b.bw[2] = b.bw[1], b.bw[2], s
		if s.round-b.bw[0].round > bbrRounds {
			b.bw[0], b.bw[1] = b.bw[1], b.bw[2]
		}
	case b.bw[1].round == b.bw[0].round && age > bbrRounds/4:
		b.bw[1], b.bw[2] = s, s
	case b.bw[2].round == b.bw[1].round && age > bbrRounds/2:
		b.bw[2] = s
	}
}

// bdp returns the segments that fill the path at a gain, with what Linux adds
// for its way to send.
func (b *bbr) bdp(c *Conn, gain float64) int32 {
	if b.minRTT == 0 {
		return 10
	}
	w := int32(b.best()*b.minRTT.Seconds()*gain + 0.999)
	goal := int32(1)
	if rate := c.paceRate; rate >= 1.2e6/8 {
		goal = max(int32(rate/1024/float64(c.params.Payload)), 2)
	}
	w = (w + 3*goal + 1) &^ 1
	if b.mode == bbrProbeBW && b.phase == 0 {
		w += 2
	}
	return w
}

func (b *bbr) setPace(c *Conn, bw float64) {
	rate := bw * b.pacing * bbrMargin * float64(c.params.Payload)
	if b.isFull || rate > c.paceRate {
		c.paceRate = rate
	}
}

// update is bbr_main.
func (b *bbr) update(c *Conn, a *ack) {
	b.roundStart = false
	if a.rate.valid {
		if a.rate.prior >= b.nextRound {
			b.nextRound = c.delivered
			b.round++
			b.roundStart = true
			b.conserving = false
		}
		if bw := a.rate.rate(c, a.now); bw > 0 && (!a.rate.limited || bw >= b.best()) {
			b.learn(bw)
		}
	}
	b.cycle(c, a)
	b.checkFull(c, a)
	b.probeRTT(c, a)
	switch b.mode {
	case bbrStartup:
		b.pacing, b.window = bbrHighGain, bbrHighGain
	case bbrDrain:
		b.pacing, b.window = 1/bbrHighGain, bbrHighGain
	case bbrProbeBW:
		b.pacing, b.window = bbrPhaseGain(b.phase), 2
	case bbrProbingRTT:
		b.pacing, b.window = 1, 1
	}
	if bw := b.best(); bw > 0 {
		b.setPace(c, bw)
	}
	b.setWindow(c, a)
	b.before = c.state
}

// cycle goes through the phases of ProbeBW.
func (b *bbr) cycle(c *Conn, a *ack) {
	if b.mode != bbrProbeBW {
		return
	}
	full := a.now.Sub(b.phaseAt) > b.minRTT
	gain := bbrPhaseGain(b.phase)
	switch {
	case gain > 1:
		full = full && (a.lost > 0 || a.prior >= b.bdp(c, gain))
	case gain < 1:
		full = full || a.prior <= b.bdp(c, 1)
	}
	if full {
		b.phase, b.phaseAt = (b.phase+1)%8, a.now
	}
}

// checkFull ends Startup when three rounds brought no more bandwidth, and Drain
// when the queue is gone.
func (b *bbr) checkFull(c *Conn, a *ack) {
	if !b.isFull && b.roundStart && !a.rate.limited {
		if bw := b.best(); bw >= b.full*bbrFullBW {
			b.full, b.fullRounds = bw, 0
		} else {
			b.fullRounds++
			b.isFull = b.fullRounds >= bbrFullRounds
		}
	}
	if b.mode == bbrStartup && b.isFull {
		b.mode = bbrDrain
	}
	if b.mode == bbrDrain && c.inFlight() <= b.bdp(c, 1) {
		b.enterProbeBW(a.now)
	}
}

func (b *bbr) enterProbeBW(now unit.Instant) {
	b.mode = bbrProbeBW
	// Any phase but the one that drains; which one is chance in Linux and the
	// flow's own number here, so that flows do not probe together.
	b.phase = int(b.firstPhase)
	if b.phase >= 1 {
		b.phase++
	}
	b.phaseAt = now
}

// probeRTT lets the queue run empty for a moment every ten seconds.
func (b *bbr) probeRTT(c *Conn, a *ack) {
	expired := a.now.Sub(b.minAt) > bbrWindowRTT
	if a.rtt > 0 && (a.rtt < b.minRTT || expired) {
		b.minRTT, b.minAt = a.rtt, a.now
	}
	if expired && b.mode != bbrProbingRTT {
		b.save(c)
		b.mode, b.doneAt = bbrProbingRTT, 0
	}
	if b.mode != bbrProbingRTT {
		return
	}
	switch {
	case b.doneAt == 0 && c.inFlight() <= bbrLeastCwnd:
		b.doneAt, b.roundDone, b.nextRound = a.now.Add(bbrProbeRTT), false, c.delivered
	case b.doneAt != 0:
		b.roundDone = b.roundDone || b.roundStart
		if b.roundDone && a.now > b.doneAt {
			b.minAt = a.now
			c.cwnd = max(c.cwnd, b.prior)
			if b.isFull {
				b.enterProbeBW(a.now)
			} else {
				b.mode = bbrStartup
			}
		}
	}
}

// setWindow is bbr_set_cwnd.
func (b *bbr) setWindow(c *Conn, a *ack) {
	if a.delivered > 0 && !b.recovering(c, a) {
		target := b.bdp(c, b.window)
		if b.isFull {
			c.cwnd = min(c.cwnd+a.delivered, target)
		} else if c.cwnd < target || c.delivered < 10 {
			c.cwnd += a.delivered
		}
		c.cwnd = max(c.cwnd, bbrLeastCwnd)
	}
	if b.mode == bbrProbingRTT {
		c.cwnd = min(c.cwnd, bbrLeastCwnd)
	}
}

// recovering keeps to packet conservation in the first round of a recovery, and
// says whether it decided the window.
func (b *bbr) recovering(c *Conn, a *ack) bool {
	if a.lost > 0 {
		c.cwnd = max(c.cwnd-a.lost, 1)
	}
	switch {
	case c.state == stateRecovery && b.before != stateRecovery:
		b.conserving = true
		b.nextRound = c.delivered
		c.cwnd = c.inFlight() + a.delivered
	case b.before >= stateRecovery && c.state < stateRecovery:
		c.cwnd = max(c.cwnd, b.prior)
		b.conserving = false
	}
	if b.conserving {
		c.cwnd = max(c.cwnd, c.inFlight()+a.delivered)
	}
	return b.conserving
}
