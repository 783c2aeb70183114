package plan

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"unbloat/unit"
)

// ackFilterFrom is the share of the uplink from which ACKs are worth thinning.
const ackFilterFrom = 0.20

// cake sets CAKE's keywords. CAKE derives target, quantum and limit by itself.
func (m *maker) cake(d Direction, s *Shaper) {
	s.ECN, s.Tins = true, "besteffort"
	if m.divides(d) {
		s.Tins = tinsForRules // the classes say why
	} else if m.wishes.Tins != "" {
		s.Tins = m.wishes.Tins
		m.because(field(d, "tins"), s.Tins, "as wished")
	} else if d == DirectionUp && m.lang.PacketRules && m.facts.NoRules {
		m.because(field(d, "tins"), s.Tins, "%s", whyNoRules)
	} else if d == DirectionUp && m.lang.PacketRules {
		m.firstUp(s)
	} else {
		m.because(field(d, "tins"), s.Tins, "marks of unknown senders earn nothing: isolation keeps calls short of delay without them")
	}
	if d == DirectionUp {
		s.Isolation, s.NAT = "dual-srchost", true
		m.because(field(d, "isolation"), s.Isolation, "fair between the home's machines first, then between each one's flows")
	} else {
		s.Isolation, s.Ingress = "dual-dsthost", true
		s.NAT = m.side != SideLAN
		m.because(field(d, "isolation"), s.Isolation, "fair between the home's machines first, then between each one's flows")
		m.because(field(d, "ingress"), "yes", "a packet that is dropped here has crossed the line already, so it is charged")
	}
	if s.NAT {
		m.because(field(d, "nat"), "yes", "the WAN sees every machine of the home under one address; conntrack knows which is which")
	}
	m.cakeInterval(d, s)
	if d == DirectionUp {
		m.cakeAckFilter(s)
	}
}

// patience returns the rtt for CAKE whose target, a twentieth of it, is the
// queue that keeps one CUBIC flow's share of the line busy when it backs off to
// 0.7 of its window (RFC 9438): 1/0.7 − 1 = 3/7 of the round trip. At most
// 300 ms, since a patient CoDel is also slow to stop a download's first burst.
func patience(rtt time.Duration) time.Duration {
	d := rtt * 20 * 3 / 7
	return min(d+time.Millisecond-1, 3*usualInterval).Truncate(time.Millisecond)
}

// cakeInterval sets CAKE's rtt where its default is known not to fit.
func (m *maker) cakeInterval(d Direction, s *Shaper) {
	interval, why := m.wishes.Interval, "as wished"
	switch rtt := m.line.RTT; {
	case interval > 0:
	case d == DirectionDown && s.Ingress && patience(rtt) > usualInterval && rtt <= usualInterval:
		interval = patience(rtt)
		why = fmt.Sprintf("its target is a twentieth, %s: what keeps a single download of this line's %s busy after a drop, where the line has no queue of its own to do it", ms(interval/20), ms(rtt))
	case rtt > usualInterval:
		interval = (rtt + time.Millisecond - 1).Truncate(time.Millisecond)
		why = "the line's idle round trip; CAKE's default of 100 ms would drop before senders can react"
	default:
		why = "CAKE's 100 ms fits servers near and far; its target scales with the rate by itself"
	}
	if m.patientTins(d, s, interval) {
		return
	}
	s.Interval = interval
	value := "default"
	if interval > 0 {
		value = ms(interval)
	}
	m.because(field(d, "interval"), value, "%s", why)
}

// cakeAckFilter decides whether redundant ACKs are thinned on the way up.
func (m *maker) cakeAckFilter(s *Shaper) {
	if w := m.wishes.AckFilter; w != nil {
		s.AckFilter = *w
		m.because("up.ack_filter", yes(s.AckFilter), "as wished")
		return
	}
	down := m.plan.DownBps
	if down == 0 {
		down = m.line.Down
	}
	if down == 0 {
		return
	}
	share := ackShare(down, s.Rate)
	s.AckFilter = share >= ackFilterFrom
	why := "thinning them is not worth the changed pacing"
	if s.AckFilter {
		why = "redundant ones are thinned out"
	}
	m.because("up.ack_filter", yes(s.AckFilter), "ACKs (66 bytes for two packets of 1514) of a full download take %.1f %% of the upload: %s", share*100, why)
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// fqCodel sets fq_codel's numbers.
func (m *maker) fqCodel(d Direction, s *Shaper) {
	m.codel(d, s)
	m.ecn(d, s)
	seed := m.wishes.Style == StyleArticle
	switch {
	case m.wishes.Quantum > 0:
		s.Quantum = m.wishes.Quantum
		m.becauseAlone(d, "quantum", inBytes(s.Quantum), "as wished")
	case seed && !m.dummynet():
		// the article leaves it to the kernel: MTU + 14, or MTU + 64 in pf
	case seed:
		s.Quantum = mostQuantum
		m.becauseAlone(d, "quantum", inBytes(s.Quantum), "the default: one full packet a round")
	default:
		s.Quantum = flowQuantum(s.Rate)
		m.becauseAlone(d, "quantum", inBytes(s.Quantum), whyQuantum(s))
	}
	m.fqLimit(d, s)
	switch {
	case m.wishes.Flows > 0:
		s.Flows = m.wishes.Flows
		m.becauseAlone(d, "flows", strconv.Itoa(s.Flows), "as wished")
	case !seed || !m.lang.HTB:
		s.Flows = usualFlows
		m.becauseAlone(d, "flows", strconv.Itoa(s.Flows), "100 flows at once share a queue with another in 9 % of cases")
	}
}

// becauseAlone records why a queue has a value that a class's queue does not use
// where WF2Q+ serves the classes.
func (m *maker) becauseAlone(d Direction, name, value, why string) {
	if m.divides(d) && m.lang.Weights {
		why = "of fq_codel, should the classes be taken away; a class's queue has CoDel alone"
	}
	m.because(field(d, name), value, "%s", why)
}

func (m *maker) dummynet() bool { return m.lang.Sides[0] == SideIn }

func whyQuantum(s *Shaper) string {
	if s.Quantum < mostQuantum {
		return fmt.Sprintf("at this rate a full packet takes %s; a small packet then waits for %d bytes of every other flow, not for a full packet of each (CAKE's rule)",
			ms(s.Rate.Time(s.WireSize(fullIP))), s.Quantum)
	}
	return "one full packet a round: at this rate nobody waits long for it"
}

// codel sets target and interval.
func (m *maker) codel(d Direction, s *Shaper) {
	packet := s.Rate.Time(s.WireSize(unit.Size(m.mtu())))
	if m.lang.NoCoDel != "" {
		if wished := m.wishes.Target; wished != 0 && wished != usualTarget {
			m.warning("%s: the target of %s cannot be had: %s", d, ms(wished), m.lang.NoCoDel)
		} else if packet > usualTarget {
			m.warning("%s: a full packet takes %s at %s, longer than the target; CoDel will drop more than it should, and %s", d, ms(packet), s.Rate, m.lang.NoCoDel)
		}
		m.because(field(d, "target"), "5 ms", "%s", m.lang.NoCoDel)
		return
	}
	article, why := m.wishes.Style == StyleArticle, ""
	target := m.wishes.Target
	switch {
	case target > 0:
		why = fmt.Sprintf("as wished; a full packet takes %s at %s", ms(packet), s.Rate)
	case article && packet > usualTarget:
		target = (packet + usualTarget - 1) / usualTarget * usualTarget
		why = fmt.Sprintf("the article's: a full packet takes %s at this rate, so the default of 5 ms is too short", ms(packet))
	case article && !m.dummynet():
	case article:
		target, why = usualTarget, "the default"
	default:
		target = codelTarget(s.Rate, s.WireSize(unit.Size(m.mtu())))
		why = whyTarget(packet, target)
	}
	if m.patientClasses(d, s, target) {
		return
	}
	if s.Target = target; target > 0 {
		m.because(field(d, "target"), ms(target), "%s", why)
	}
	switch {
	case m.wishes.Interval > 0:
		s.Interval = m.wishes.Interval
		m.because(field(d, "interval"), ms(s.Interval), "as wished")
	case article && !m.dummynet():
	case article:
		s.Interval = max(usualInterval, s.Target)
		m.because(field(d, "interval"), ms(s.Interval), "the default")
	default:
		s.Interval = max(codelInterval(s.Target), m.line.RTT.Truncate(time.Millisecond))
		m.because(field(d, "interval"), ms(s.Interval), "95 ms + target: a sender's round trip, and the delay that is accepted")
	}
}

func whyTarget(packet, target time.Duration) string {
	if target > usualTarget {
		return fmt.Sprintf("1.5 times the %s that a full packet takes, so that one packet alone is not taken for a queue; the usual 5 ms is too short here", ms(packet))
	}
	return fmt.Sprintf("the usual; a full packet takes %s", ms(packet))
}

// ecn decides whether packets are marked instead of dropped.
func (m *maker) ecn(d Direction, s *Shaper) {
	switch {
	case m.lang.NoECN != "":
		if m.wishes.ECN != nil && *m.wishes.ECN {
			m.warning("%s: ECN cannot be had: %s", d, m.lang.NoECN)
		}
		m.because(field(d, "ecn"), "no", "%s", m.lang.NoECN)
	case m.wishes.ECN != nil:
		s.ECN = *m.wishes.ECN
		m.because(field(d, "ecn"), yes(s.ECN), "as wished")
	case d == DirectionUp && s.Rate < noECNBelow:
		m.because(field(d, "ecn"), "no", "the uplink is below 4 Mbit/s: a marked packet still takes its time on the line, a dropped one frees it")
	default:
		s.ECN = true
		m.because(field(d, "ecn"), "yes", "senders that can are told without losing a packet")
	}
}

// fqLimit sets how many packets fq_codel may hold at most.
func (m *maker) fqLimit(d Direction, s *Shaper) {
	switch {
	case m.wishes.Limit > 0:
		s.Limit = m.wishes.Limit
		m.becauseAlone(d, "limit", strconv.Itoa(s.Limit), "as wished")
	case m.wishes.Style == StyleArticle && m.lang.HTB:
	case m.wishes.Style == StyleArticle && m.dummynet():
		s.Limit = mostLimit
		m.becauseAlone(d, "limit", strconv.Itoa(s.Limit), "the default")
	case m.lang.NoCoDel != "":
		s.Limit = 1024
		m.becauseAlone(d, "limit", "1024", "pf's default of 50 is too few for flow queues; up to 7.8 it takes 1024 whatever is written")
	default:
		s.Limit = min(packetLimit(s.Rate), m.lang.Limit)
		m.becauseAlone(d, "limit", strconv.Itoa(s.Limit), "a second of full packets, at least 1001: it only bounds memory in a flood")
	}
}

// fifo sets the length of a FIFO from the wished latency.
func (m *maker) fifo(d Direction, s *Shaper) {
	if m.wishes.Limit > 0 {
		s.Limit = m.wishes.Limit
		m.because(field(d, "limit"), strconv.Itoa(s.Limit), "as wished: up to %s of queue%s", ms(s.Rate.Time(s.WireSize(fullIP)*unit.Size(s.Limit))), m.fifoOfEach(d))
		return
	}
	latency := cmp.Or(m.wishes.Latency, m.wishes.Goal, usualLatency)
	want := FIFOLimit(s.Rate, latency)
	s.Limit = min(want, m.lang.FIFOLimit)
	m.because(field(d, "limit"), strconv.Itoa(s.Limit), "%d bit/s / 8 / %d × %s, rounded up: a FIFO delays everybody alike, so it must be short (full packets; Linux counts it in bytes)%s", int64(s.Rate), segment, ms(latency), m.fifoOfEach(d))
	if s.Limit < want {
		m.warning("%s: %d packets are wished, but %s holds %d at most", d, want, m.lang.Platform, s.Limit)
	}
	adds := min(latency, s.Rate.Time(s.WireSize(fullIP)*unit.Size(s.Limit)))
	if goal := m.goal(); m.wishes.Latency == 0 && adds > goal {
		m.warning("%s: a full FIFO adds %s for everybody in it, more than the goal of %s; a shorter one (--latency) leaves the line idle at times", d, ms(adds), ms(goal))
	}
}

// fifoOfEach adds to what is said of one queue for everybody that each class
// has its own.
func (m *maker) fifoOfEach(d Direction) string {
	if !m.divides(d) {
		return ""
	}
	return "; each class has a queue of its own, as long as this at the most it may send (voice and interactive 16 packets at least, which are mostly small): only those of one class wait for each other, and longer while others take what they are sure of"
}

// warn says what the platform cannot do with this plan.
func (m *maker) warn() {
	for _, s := range []*Shaper{m.plan.Down, m.plan.Up} {
		if s != nil && s.AQM == SFQ {
			m.warning("%s queues in sfq, which has no AQM: one flow's own queue stays long, and many flows delay everybody; the default style gives it HTB + fq_codel", m.lang.Engine.Name)
			return
		}
	}
}
