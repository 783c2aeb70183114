package path

import (
	"slices"
	"time"

	"unbloat/unit"
)

// A Tracer schedules probes and files what comes back. It reads no clock and is
// for one goroutine. A new Tracer is in the phase
// Uncounted; Begin starts another.
//
// Every hop is probed isochronously, whatever is outstanding, the hops one
// after the other over the interval. Hops beyond the last known one are probed
// too, until the destination answers.
type Tracer struct {
	cfg     Config
	phase   Phase
	hops    []hop // [0] is TTL 1
	highest int   // TTL that was answered; 0: none
	end     ending
	nextSeq uint16
	flights [SeqSpace]flight
	slowest time.Duration // round trip seen
	late    [nPhases][]time.Duration
	counts  Counts
}

// An ending is where the path is known to end; TTL 0: not yet.
type ending struct {
	ttl     int
	since   unit.Instant
	arrived bool
	why     string
}

// A flight is a probe that was sent.
type flight struct {
	used, done bool
	ttl        int
	phase      Phase
	sample     int // index in its hop's series
	sent       unit.Instant
	class      uint8
}

// Counts are what came back and is in no hop's figures.
type Counts struct {
	Foreign    int // not about a probe of ours
	Duplicates int // a second answer to the same probe
	TooLate    int // after Grace
	Skipped    int // probes that were due but not sent, because the machine was busy
}

// hop is what is known of one TTL.
type hop struct {
	due    unit.Instant
	active bool
	addrs  []seen
	series [nPhases]series
	quoted map[uint8]map[uint8]int
}

// New returns a tracer whose first probe is due at now.
func New(cfg Config, now unit.Instant) *Tracer {
	cfg = cfg.withDefaults()
	t := &Tracer{cfg: cfg, hops: make([]hop, cfg.MaxHops)}
	t.Begin(Uncounted, now)
	return t
}

// Begin starts a phase: probes sent from now on belong to it. It restarts the
// schedule, so that a phase of whole intervals has equally many probes to each hop.
func (t *Tracer) Begin(p Phase, now unit.Instant) {
	t.phase = p
	for i := range t.hops {
		t.hops[i].due = now.Add(t.cfg.Interval * time.Duration(i) / time.Duration(len(t.hops)))
	}
}

// skipTo moves the next probe to the first turn at or after now.
func (h *hop) skipTo(now unit.Instant, interval time.Duration) (skipped int) {
	if behind := now.Sub(h.due); behind > 0 {
		skipped = int((behind + interval - 1) / interval)
		h.due = h.due.Add(time.Duration(skipped) * interval)
	}
	return skipped
}

// limit returns the highest TTL that is probed.
func (t *Tracer) limit() int {
	if t.end.ttl > 0 {
		return t.end.ttl
	}
	return min(t.cfg.MaxHops, t.highest+MaxUnknown)
}

// Poll returns a probe that is due at now, if there is one, and when to poll
// again: now, if there may be more. The probe must leave at once and is counted
// as sent at now.
func (t *Tracer) Poll(now unit.Instant) (p Probe, due bool, next unit.Instant) {
	limit, first := t.limit(), -1
	for i := range t.hops {
		h := &t.hops[i]
		if i >= limit {
			h.active = false
			continue
		}
		if !h.active {
			h.active = true
			h.skipTo(now, t.cfg.Interval)
		}
		if first < 0 || h.due.Before(t.hops[first].due) {
			first = i
		}
	}
	h := &t.hops[first] // limit is at least 1
	if now.Before(h.due) {
		return Probe{}, false, h.due
	}
	if now.Sub(h.due) >= t.cfg.Interval {
		t.counts.Skipped += h.skipTo(now.Add(1-t.cfg.Interval), t.cfg.Interval)
	}
	p = Probe{Seq: t.nextSeq, TTL: first + 1}
	if n := len(t.cfg.Marks); n > 0 && t.phase == Marked {
		p.Class = t.cfg.Marks[len(h.series[Marked].samples)%n]
	}
	t.depart(p, now, now.Sub(h.due))
	h.due = h.due.Add(t.cfg.Interval)
	return p, true, now
}

// depart records a probe that is sent.
func (t *Tracer) depart(p Probe, now unit.Instant, late time.Duration) {
	t.nextSeq = (t.nextSeq + 1) % SeqSpace
	f := &t.flights[p.Seq]
	t.lose(f)
	*f = flight{used: true, ttl: p.TTL, phase: t.phase, sent: now, class: p.Class}
	f.sample = t.hops[p.TTL-1].series[t.phase].add()
	t.late[t.phase] = append(t.late[t.phase], late)
}

// lose closes a flight whose answer no longer counts.
func (t *Tracer) lose(f *flight) {
	if f.used && !f.done {
		f.done = true
		t.hops[f.ttl-1].series[f.phase].lose(f.sample)
	}
}

// Receive records an answer that arrived at the given instant.
func (t *Tracer) Receive(at unit.Instant, r Reply) {
	if int(r.Seq) >= len(t.flights) || !t.flights[r.Seq].used || !r.From.IsValid() {
		t.counts.Foreign++
		return
	}
	f := &t.flights[r.Seq]
	rtt := max(at.Sub(f.sent), 0)
	switch {
	case rtt > Grace:
		t.counts.TooLate++
		t.lose(f)
		return
	case f.done:
		t.counts.Duplicates++
		return
	}
	f.done = true
	h := &t.hops[f.ttl-1]
	h.saw(r.From)
	h.series[f.phase].answer(f.sample, rtt)
	if r.Quoted && f.phase == Marked {
		h.quote(f.class, r.Class)
	}
	t.slowest = max(t.slowest, rtt)
	t.highest = max(t.highest, f.ttl)
	t.learnEnd(f, at, r)
}

// learnEnd notes where the path ends. A router behind the end means that the
// path has grown: then the end is unknown again.
func (t *Tracer) learnEnd(f *flight, at unit.Instant, r Reply) {
	ends := r.Kind == Arrived || r.Kind == Refused
	switch {
	case ends && (t.end.ttl == 0 || f.ttl < t.end.ttl):
		t.end = ending{f.ttl, at, r.Kind == Arrived, r.Why}
	case ends && f.ttl == t.end.ttl:
		t.end.arrived, t.end.why = r.Kind == Arrived, r.Why
	case !ends && t.end.ttl > 0 && f.ttl >= t.end.ttl && t.end.since.Before(f.sent):
		t.end = ending{}
	}
}

// patience is how long to wait for answers: four times the slowest round trip so
// far, and a second.
func (t *Tracer) patience() time.Duration { return min(4*t.slowest+time.Second, Grace) }

// Settled reports whether no more answers are expected to the probes under way.
func (t *Tracer) Settled(now unit.Instant) bool {
	patience := t.patience()
	for i := range t.flights {
		f := &t.flights[i]
		if f.used && !f.done && f.ttl <= t.limit() && now.Sub(f.sent) < patience {
			return false
		}
	}
	return true
}

// Close counts the probes under way as lost. Those whose answers could still arrive,
// if it is not Settled, are not counted.
func (t *Tracer) Close(now unit.Instant) {
	patience := t.patience()
	for i := range t.flights {
		if f := &t.flights[i]; now.Sub(f.sent) >= patience {
			t.lose(f)
		}
	}
}

// Counts returns what the figures of hops do not contain.
func (t *Tracer) Counts() Counts { return t.counts }

// Lateness returns how late the probes of a phase left, in the order they did.
func (t *Tracer) Lateness(p Phase) []time.Duration { return slices.Clone(t.late[p]) }

// Reached reports whether the destination has answered.
func (t *Tracer) Reached() bool { return t.end.ttl > 0 && t.end.arrived }

// Hops returns what is known at now, from hop 1 to the destination or to the
// last hop that answered. Probes of Grace ago count as lost.
func (t *Tracer) Hops(now unit.Instant) []Hop {
	for i := range t.flights {
		if f := &t.flights[i]; f.used && !f.done && now.Sub(f.sent) > Grace {
			t.lose(f)
		}
	}
	n := t.highest
	if t.end.ttl > 0 {
		n = t.end.ttl
	}
	out := make([]Hop, n)
	for i := range out {
		h := &t.hops[i]
		out[i] = Hop{TTL: i + 1, Addrs: h.addresses(), Idle: h.series[Idle].stats(), Loaded: h.series[Loaded].stats(), Quoted: h.quoted}
	}
	if t.end.ttl > 0 {
		out[n-1].Destination, out[n-1].Refusal = t.end.arrived, t.end.why
	}
	return out
}
