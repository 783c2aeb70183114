package plan

import (
	"time"

	"unbloat/reason"
	"unbloat/unit"
)

// tins of CAKE's `precedence` by class. Each has priority over those below it up to
// its share, which is 7/8 of the share below. So voice gets up to two fifths of
// the line, and bulk gets at least as much beside normal traffic only.
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

// AckTin returns the tin of pure ACKs. They belong to the interactive class, but
// have a tin of their own above it where there is one, so that a hundred new
// connections that start to send do not delay the ACKs of others.
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

// firstOf returns the rate up to which a tin has priority.
func firstOf(r unit.Rate, t Tin) unit.Rate {
	for range t - 1 {
		r = r * 7 / 8
	}
	return r
}

// shares divides one direction among the classes.
func (m *maker) shares(d Direction, s *Shaper) []Share {
	var out []Share
	asked := map[Class]bool{}
	for _, c := range AllClasses() {
		sh := Share{Class: c, Tin: tinOf(c)}
		sh.First = firstOf(s.Rate, sh.Tin)
		if s.AQM != CAKE {
			// HTB serves the guarantees first, and the rest by priority.
			sh.Guarantee = s.Rate * share(c) / 100
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
				if sh.Limit > 0 { // our own limit must not cut what the user asks for
					sh.Limit = max(sh.Limit, sh.Guarantee)
				}
			}
			switch {
			case w.Limit.IsZero():
			case m.lang.Weights && d == DirectionDown && m.plan.Up != nil && w.Direction == "": // the upload has said it
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

// mostSure is the sum of the default guarantees in per cent: what share adds up
// to.
const mostSure = 95

// fit reduces the guarantees until their sum fits the line: first the defaults,
// then those that the user asked for. If the sum were more than the line, HTB
// would send faster than the line, and other shapers would give each class less
// than the plan says.
func (m *maker) fit(d Direction, shares []Share, r unit.Rate, asked map[Class]bool) {
	var sum [2]unit.Rate // of the defaults, and of those asked for
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

// patientClasses gives the queues of a download's classes a longer target than a
// single fq_codel could have. Dropped packets have already crossed the line, and
// HTB does not count them. A hundred connections with two packets each cannot slow
// down: they lose so many packets that more arrives than the line carries, and
// calls wait in the provider's queue. Calm flows have queues of their own here, so
// a longer queue does not delay them. It returns false if the target without
// classes (alone) is long enough.
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

// patientTins sets CAKE's interval for a download of many connections. The smallest
// window of a connection is two full packets. If each has less than one packet
// per round trip on the line, it cannot slow down, and a CoDel with a shorter
// queue than all those windows only drops packets that have already crossed the
// line. (In an upload, dropped packets have not.) With more than that, the senders
// do slow down, but never all at once, and the long interval that a single
// download needs (alone) would only keep their bursts in front of the line. It
// returns false if the interval without classes fits.
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

// pictures returns an interval for CAKE that lets a video call's pictures pass whole;
// 0 if the usual one does. The home sends a picture at once. Beside uploads it then
// leaves at the pace of its class, and what waits for longer than the target, a
// twentieth of the interval, counts against the call, one picture after the other,
// until each loses packets. A key frame, which is six of them, waits for longer than
// the usual interval on a slow line, and lost some each time; two calls may begin theirs at once. What arrives comes at
// the line's pace, and does not wait. Where the rates vary the usual interval stays:
// the sooner senders give way, the less waits when they fall.
func (m *maker) pictures(d Direction, s *Shaper) time.Duration {
	if flow, _ := steady(s.Rate); d != DirectionUp || !m.divides(d) || flow == 0 || m.line.Varies {
		return 0
	}
	interval := min(firstOf(s.Rate, tinOf(Interactive)).Time(picture)*pictureTargets, mostPictures).Truncate(10 * time.Millisecond)
	if interval <= usualInterval {
		return 0
	}
	return interval
}

// later records a reason that is given with the direction's classes.
func (m *maker) later(d Direction, name string, value, why reason.Reason) {
	m.patient[d] = append(m.patient[d], Reason{Field: field(d, name), Value: value, Why: why})
}

// share is the default guarantee of a class, in per cent of the line.
func share(c Class) unit.Rate {
	return map[Class]unit.Rate{Voice: 30, Interactive: 30, Normal: 25, Bulk: 10}[c]
}
