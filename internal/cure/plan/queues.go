package plan

import (
	"cmp"
	"time"

	"unbloat/reason"
	"unbloat/unit"
)

// ackFilterFrom is the share of the upload above which thinning ACKs pays off.
const ackFilterFrom = 0.20

// cake sets CAKE's keywords. CAKE derives target, quantum and limit by itself.
func (m *maker) cake(d Direction, s *Shaper) {
	s.ECN, s.Tins = true, "besteffort"
	if m.divides(d) {
		s.Tins = tinsForRules // the classes say why
	} else if m.preferences.Tins != "" {
		s.Tins = m.preferences.Tins
		m.because(field(d, "tins"), symbol(s.Tins), say(reason.AsAsked))
	} else if d == DirectionUp && m.lang.PacketRules && m.capabilities.NoRules {
		m.because(field(d, "tins"), symbol(s.Tins), say(reason.TinsNoRules))
	} else if d == DirectionUp && m.lang.PacketRules {
		m.firstUp(s)
	} else {
		m.because(field(d, "tins"), symbol(s.Tins), say(reason.TinsAlike))
	}
	if d == DirectionUp {
		s.Isolation, s.NAT = "dual-srchost", true
		m.because(field(d, "isolation"), symbol(s.Isolation), say(reason.IsolationOfHome))
	} else {
		s.Isolation, s.Ingress = "dual-dsthost", true
		s.NAT = m.side != SideLAN
		m.because(field(d, "isolation"), symbol(s.Isolation), say(reason.IsolationOfHome))
		m.because(field(d, "ingress"), word("yes"), say(reason.IngressCharged))
	}
	if s.NAT {
		m.because(field(d, "nat"), word("yes"), say(reason.NATLookup))
	}
	m.cakeInterval(d, s)
	if d == DirectionUp {
		m.cakeAckFilter(s)
	}
}

// patience returns an rtt for CAKE that keeps the line busy when a single CUBIC
// flow backs off to 0.7 of its window (RFC 9438): that takes a queue of
// 1/0.7 − 1 = 3/7 of the round trip, and CAKE's target is a twentieth of its rtt.
// It is at most 300 ms, since a long interval also reacts late to the first burst
// of a download.
func patience(rtt time.Duration) time.Duration {
	d := rtt * 20 * 3 / 7
	return min(d+time.Millisecond-1, 3*usualInterval).Truncate(time.Millisecond)
}

// cakeInterval sets CAKE's rtt where the default is known to be wrong.
func (m *maker) cakeInterval(d Direction, s *Shaper) {
	interval, why := m.preferences.Interval, say(reason.AsAsked)
	switch rtt := m.line.RTT; {
	case interval > 0:
	case d == DirectionDown && s.Ingress && patience(rtt) > usualInterval && rtt <= usualInterval:
		interval = patience(rtt)
		why = say(reason.IntervalOfLine, "target_ms", interval/20, "rtt_ms", rtt)
	case rtt > usualInterval:
		interval = (rtt + time.Millisecond - 1).Truncate(time.Millisecond)
		why = say(reason.IntervalOfRTT)
	default:
		why = say(reason.IntervalOfCake)
	}
	if i := m.pictures(d, s); i > interval && m.preferences.Interval == 0 {
		interval, why = i, say(reason.IntervalOfPictures)
	}
	if m.patientTins(d, s, interval) {
		return
	}
	s.Interval = interval
	value := word("default")
	if interval > 0 {
		value = ms(interval)
	}
	m.because(field(d, "interval"), value, why)
}

// cakeAckFilter decides whether CAKE thins redundant ACKs in the upload.
func (m *maker) cakeAckFilter(s *Shaper) {
	if w := m.preferences.AckFilter; w != nil {
		s.AckFilter = *w
		m.because("up.ack_filter", word(yes(s.AckFilter)), say(reason.AsAsked))
		return
	}
	down := cmp.Or(m.plan.DownBps, m.line.Down)
	if down == 0 {
		return
	}
	share := m.line.ackShare(down, s.Rate)
	s.AckFilter = share >= ackFilterFrom
	why := reason.AcksLeft
	if s.AckFilter {
		why = reason.AcksThinned
	}
	m.because("up.ack_filter", word(yes(s.AckFilter)), say(why, "share", share))
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
	article := m.preferences.Style == StyleArticle
	switch {
	case m.preferences.Quantum > 0:
		s.Quantum = m.preferences.Quantum
		m.becauseAlone(d, "quantum", inBytes(s.Quantum), say(reason.AsAsked))
	case article && !m.dummynet():
		// the article leaves it to the kernel: MTU + 14, or MTU + 64 in pf
	case article:
		s.Quantum = mostQuantum
		m.becauseAlone(d, "quantum", inBytes(s.Quantum), say(reason.QuantumFull))
	default:
		s.Quantum = flowQuantum(s.Rate)
		m.becauseAlone(d, "quantum", inBytes(s.Quantum), whyQuantum(s))
	}
	m.fqLimit(d, s)
	switch {
	case m.preferences.Flows > 0:
		s.Flows = m.preferences.Flows
		m.becauseAlone(d, "flows", count(s.Flows), say(reason.AsAsked))
	case !article || !m.lang.HTB:
		s.Flows = usualFlows
		m.becauseAlone(d, "flows", count(s.Flows), say(reason.FlowsUsual))
	}
}

// becauseAlone records the reason of a value that only a queue without classes
// uses: with WF2Q+ the queue of a class has CoDel only.
func (m *maker) becauseAlone(d Direction, name string, value, why reason.Reason) {
	if m.divides(d) && m.lang.Weights {
		why = say(reason.NumberUnused)
	}
	m.because(field(d, name), value, why)
}

func (m *maker) dummynet() bool { return m.lang.Sides[0] == SideIn }

func whyQuantum(s *Shaper) reason.Reason {
	if s.Quantum < mostQuantum {
		return say(reason.QuantumSmall, "packet_ms", s.Rate.Time(s.WireSize(fullIP)), "bytes", s.Quantum)
	}
	return say(reason.QuantumLarge)
}

// codel sets target and interval.
func (m *maker) codel(d Direction, s *Shaper) {
	packet := s.Rate.Time(s.WireSize(unit.Size(m.mtu())))
	if !m.lang.NoCoDel.IsZero() {
		if asked := m.preferences.Target; asked != 0 && asked != usualTarget {
			m.warning(say(reason.TargetUntold, "direction", d, "target_ms", asked).With(m.lang.NoCoDel))
		} else if packet > usualTarget {
			m.warning(say(reason.TargetTooShort, "direction", d, "packet_ms", packet, "rate_bps", s.Rate).With(m.lang.NoCoDel))
		}
		m.because(field(d, "target"), ms(usualTarget), m.lang.NoCoDel)
		return
	}
	article, why := m.preferences.Style == StyleArticle, reason.Reason{}
	target := m.preferences.Target
	switch {
	case target > 0:
		why = say(reason.TargetWished, "packet_ms", packet, "rate_bps", s.Rate)
	case article && packet > usualTarget:
		target = (packet + usualTarget - 1) / usualTarget * usualTarget
		why = say(reason.TargetOfArticle, "packet_ms", packet)
	case article && !m.dummynet():
	case article:
		target, why = usualTarget, say(reason.TheDefault)
	default:
		target = codelTarget(s.Rate, s.WireSize(unit.Size(m.mtu())))
		why = whyTarget(packet, target)
	}
	if m.patientClasses(d, s, target) {
		return
	}
	if s.Target = target; target > 0 {
		m.because(field(d, "target"), ms(target), why)
	}
	switch {
	case m.preferences.Interval > 0:
		s.Interval = m.preferences.Interval
		m.because(field(d, "interval"), ms(s.Interval), say(reason.AsAsked))
	case article && !m.dummynet():
	case article:
		s.Interval = max(usualInterval, s.Target)
		m.because(field(d, "interval"), ms(s.Interval), say(reason.TheDefault))
	default:
		s.Interval = max(codelInterval(s.Target), m.line.RTT.Truncate(time.Millisecond))
		m.because(field(d, "interval"), ms(s.Interval), say(reason.IntervalOfTarget))
	}
}

func whyTarget(packet, target time.Duration) reason.Reason {
	if target > usualTarget {
		return say(reason.TargetOfPacket, "packet_ms", packet)
	}
	return say(reason.TargetUsual, "packet_ms", packet)
}

// ecn decides whether fq_codel marks packets instead of dropping them.
func (m *maker) ecn(d Direction, s *Shaper) {
	switch {
	case !m.lang.NoECN.IsZero():
		if m.preferences.ECN != nil && *m.preferences.ECN {
			m.warning(say(reason.ECNUntold, "direction", d).With(m.lang.NoECN))
		}
		m.because(field(d, "ecn"), word("no"), m.lang.NoECN)
	case m.preferences.ECN != nil:
		s.ECN = *m.preferences.ECN
		m.because(field(d, "ecn"), word(yes(s.ECN)), say(reason.AsAsked))
	case d == DirectionUp && s.Rate < noECNBelow:
		m.because(field(d, "ecn"), word("no"), say(reason.ECNSlowUplink))
	default:
		s.ECN = true
		m.because(field(d, "ecn"), word("yes"), say(reason.ECNTold))
	}
}

// fqLimit sets the packet limit of fq_codel.
func (m *maker) fqLimit(d Direction, s *Shaper) {
	switch {
	case m.preferences.Limit > 0:
		s.Limit = m.preferences.Limit
		m.becauseAlone(d, "limit", count(s.Limit), say(reason.AsAsked))
	case m.preferences.Style == StyleArticle && m.lang.HTB:
	case m.preferences.Style == StyleArticle && m.dummynet():
		s.Limit = mostLimit
		m.becauseAlone(d, "limit", count(s.Limit), say(reason.TheDefault))
	case !m.lang.NoCoDel.IsZero():
		s.Limit = 1024
		m.becauseAlone(d, "limit", count(s.Limit), say(reason.LimitOfPf))
	default:
		s.Limit = min(packetLimit(s.Rate), m.lang.Limit)
		m.becauseAlone(d, "limit", count(s.Limit), say(reason.LimitOfMemory))
	}
}

// fifo sets the length of a FIFO from the latency that it may add.
func (m *maker) fifo(d Direction, s *Shaper) {
	if m.preferences.Limit > 0 {
		s.Limit = m.preferences.Limit
		holds := say(reason.FIFOHolds, "time_ms", s.Rate.Time(s.WireSize(fullIP)*unit.Size(s.Limit)))
		m.because(field(d, "limit"), count(s.Limit), say(reason.FIFOWished).With(m.fifoOfEach(d, holds)...))
		return
	}
	latency := cmp.Or(m.preferences.Latency, m.preferences.Goal, usualLatency)
	want := FIFOLimit(s.Rate, latency)
	s.Limit = min(want, m.lang.FIFOLimit)
	m.because(field(d, "limit"), count(s.Limit), say(reason.FIFODerived, "rate_bps", s.Rate, "segment", segment, "time_ms", latency).
		With(m.fifoOfEach(d, say(reason.FIFOShort))...))
	if s.Limit < want {
		m.warning(say(reason.FIFOTooLong, "direction", d, "packets", want, "platform", m.lang.Platform, "most", s.Limit))
	}
	adds := min(latency, s.Rate.Time(s.WireSize(fullIP)*unit.Size(s.Limit)))
	if goal := m.goal(); m.preferences.Latency == 0 && adds > goal {
		m.warning(say(reason.FIFOMissesGoal, "direction", d, "time_ms", adds, "goal_ms", goal))
	}
}

// fifoOfEach adds to the reason of a single queue that each class has its own.
func (m *maker) fifoOfEach(d Direction, one reason.Reason) []reason.Reason {
	if !m.divides(d) {
		return []reason.Reason{one}
	}
	return []reason.Reason{one, say(reason.FIFOOfEachClass)}
}

// warnOfSFQ adds a warning if the plan uses SFQ.
func (m *maker) warnOfSFQ() {
	for _, s := range []*Shaper{m.plan.Down, m.plan.Up} {
		if s != nil && s.AQM == SFQ {
			m.warning(say(reason.SFQNoAQM, "engine", m.lang.Engine.Name))
			return
		}
	}
}
