package plan

import (
	"time"

	"unbloat/internal/reason"
	"unbloat/unit"
)

// tins of CAKE's `precedence` by class. Each goes before those below it up to
// its share: 7/8 of the one below. So voice has two fifths of the line, bulk at
// least as much if nobody but ordinary traffic is there.
func tinOf(c Class) Tin {
	switch c {
	case Voice:
		return 8
	case Interactive:
		return 6
	case Normal:
		return 5
	}
	return 1
}

// AckTin returns the tin of acknowledgements without data: they are of the
// interactive class, but where there is a tin between that and voice it is
// theirs, so that a hundred connections that begin to send do not hold up the
// acknowledgements of others.
func AckTin(shares []Share) Tin {
	var voice, lane Tin
	for _, s := range shares {
		switch s.Class {
		case Voice:
			voice = s.Tin
		case Interactive:
			lane = s.Tin
		}
	}
	if voice > lane+1 {
		return voice - 1
	}
	return lane
}

// firstOf returns up to which rate a tin goes first.
func firstOf(r unit.Rate, t Tin) unit.Rate {
	for range t - 1 {
		r = r * 7 / 8
	}
	return r
}

// shares divides one direction.
func (m *maker) shares(d Direction, s *Shaper) []Share {
	var out []Share
	asked := map[Class]bool{}
	for _, c := range AllClasses() {
		sh := Share{Class: c, Tin: tinOf(c)}
		sh.First = firstOf(s.Rate, sh.Tin)
		if s.AQM != CAKE {
			// HTB serves what each is guaranteed first, and the rest by priority.
			sh.Guarantee = s.Rate * htbShare(c) / 100
			if (c == Voice || c == Interactive) && !m.lang.Weights {
				sh.Limit = sh.First
			}
		}
		for _, w := range m.preferences.Classes.Shares {
			if w.Class != c || w.Direction != "" && w.Direction != d {
				continue
			}
			if !w.Guarantee.IsZero() {
				sh.Guarantee, asked[c] = min(w.Guarantee.of(s.Rate, 0), s.Rate), true
				if sh.Limit > 0 { // ours, which must not take from what is asked for
					sh.Limit = max(sh.Limit, sh.Guarantee)
				}
			}
			switch {
			case w.Limit.IsZero():
			case m.lang.Weights && d == DirectionDown && m.plan.Up != nil && w.Direction == "": // said for the upload
			case m.lang.Weights:
				m.warning(say(reason.LimitLeftOut, "class", c))
			default:
				sh.Limit = min(w.Limit.of(s.Rate, 0), s.Rate)
				if !w.Guarantee.IsZero() && sh.Guarantee > sh.Limit {
					m.warning(say(reason.GuaranteeCut, "direction", d, "class", c, "limit_bps", sh.Limit, "guarantee_bps", sh.Guarantee))
				}
			}
		}
		if sh.Limit > 0 {
			sh.Guarantee = min(sh.Guarantee, sh.Limit)
			sh.First = min(sh.First, sh.Limit)
		}
		out = append(out, sh)
	}
	m.fit(d, out, s.Rate, asked)
	for i := range out {
		if m.lang.Weights || s.AQM == FIFO {
			out[i].First = out[i].Guarantee
		}
	}
	m.plan.Reasons = append(m.plan.Reasons, m.patient[d]...)
	return out
}

// mostSure is what the classes are guaranteed together unless somebody asks for
// more, in per cent: what htbShare adds up to.
const mostSure = 95

// fit takes from the guarantees that nobody asked for what those that somebody
// did take too much, and then from these: behind HTB classes whose guarantees
// are more than the line send more than it holds, and elsewhere each has less
// than the plan says.
func (m *maker) fit(d Direction, shares []Share, r unit.Rate, asked map[Class]bool) {
	var sum [2]unit.Rate // of those that nobody asked for, and of the others
	of := func(sh Share) int {
		if asked[sh.Class] {
			return 1
		}
		return 0
	}
	for _, sh := range shares {
		sum[of(sh)] += sh.Guarantee
	}
	most := unit.Rate(mostSure)
	if m.aqm == SFQ {
		most = min(most, unit.Rate(m.lang.Engine.reserve(r)))
	}
	room := [2]unit.Rate{max(r*most/100-sum[1], 0), r}
	if sum[1] > r {
		m.warning(say(reason.GuaranteesShared, "direction", d, "sure_bps", sum[1], "rate_bps", r))
	}
	for i, sh := range shares {
		if k := of(sh); sum[k] > room[k] {
			shares[i].Guarantee = unit.Rate(float64(sh.Guarantee) * float64(room[k]) / float64(sum[k]))
		}
	}
}

// patientClasses lets the queues of a download's classes stand longer than
// fq_codel alone could afford. HTB does not charge what is dropped, which has
// crossed the line already: a hundred connections below their two packets lose
// so many that what arrives is more than the line carries, and a call waits in
// the provider's queue. Calm flows have queues of their own here, so they don't
// wait for those that stand. It returns false where the target without classes
// (alone) is as long.
func (m *maker) patientClasses(d Direction, s *Shaper, alone time.Duration) bool {
	if d != DirectionDown || !m.divides(d) || !m.lang.HTB || m.preferences.Target != 0 || m.preferences.Interval != 0 {
		return false
	}
	target := min(s.Rate.Time(s.WireSize(fullIP)*patientPackets), mostPatient).Truncate(time.Millisecond)
	if target <= alone {
		return false
	}
	s.Target, s.Interval = target, max(usualInterval, m.line.RTT.Truncate(time.Millisecond))
	m.later(d, "target", ms(s.Target), say(reason.TargetOfClasses, "packets", patientPackets, "most_ms", mostPatient))
	m.later(d, "interval", ms(s.Interval), say(reason.IntervalOfSender))
	return true
}

// patientTins suits a download's queue to many connections. One below a packet
// a round trip cannot slow down: its least window is two full packets, and a
// CoDel that wants a shorter queue than those of all drops what has crossed the
// line already. What an upload drops has not crossed it. With more than that
// each, senders do slow down, and never all at once: the patience that a single
// download needs (alone) would only keep their bursts in front of the line. It
// returns false where the interval without classes fits.
func (m *maker) patientTins(d Direction, s *Shaper, alone time.Duration) bool {
	if d != DirectionDown || !m.divides(d) || m.preferences.Interval != 0 {
		return false
	}
	n := m.preferences.FlowsDown
	full := s.Rate.Time(s.WireSize(fullIP))
	if each := full * time.Duration(n); each <= m.line.RTT {
		if n < manyDownloads || m.line.RTT > usualInterval || alone <= usualInterval {
			return false
		}
		m.later(d, "interval", word("default"), say(reason.IntervalBusy, "flows", n))
		return true
	}
	target := min(full*time.Duration(n*leastWindow), mostTins)
	interval := (target * cakeTargets).Truncate(time.Millisecond)
	if interval <= max(alone, usualInterval) {
		return false
	}
	s.Interval = interval
	m.later(d, "interval", ms(s.Interval), say(reason.IntervalOfMany, "target_ms", target, "flows", n, "most_ms", mostTins))
	return true
}

// later records a reason that is said with the direction's classes.
func (m *maker) later(d Direction, name string, value, why reason.Reason) {
	m.patient[d] = append(m.patient[d], Reason{Field: field(d, name), Value: value, Why: why})
}

// htbShare is what HTB guarantees each class, in per cent of the line.
func htbShare(c Class) unit.Rate {
	return map[Class]unit.Rate{Voice: 30, Interactive: 30, Normal: 25, Bulk: 10}[c]
}
