package daemon

import (
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"unbloat/internal/keep/config"
	"unbloat/internal/keep/delay"
	"unbloat/internal/keep/incident"
	"unbloat/internal/keep/steer"
	"unbloat/internal/keep/supervise"
	"unbloat/internal/measure/netio"
	"unbloat/internal/measure/path"
	"unbloat/unit"
)

// Of a vigil.
const (
	vigilFar   = 3               // far ends that are asked
	vigilWait  = 3               // seconds until a question without an answer is lost
	vigilAgain = 5 * time.Second // after which what failed is opened again
	vigilJump  = 2 * time.Second // by which the clock may be set meanwhile
)

// A vigil watches one line: it takes in what is asked and answered where the line's delay is
// measured, asks itself where that is not enough, and tells the judge what became of the
// questions of a few seconds ago. It belongs to one goroutine.
type vigil struct {
	d      *Daemon
	config config.WAN
	since  time.Time
	judge  *incident.Judge
	clock  *netio.Clock
	codecs []path.Codec // of the far ends; the first hop is on the way to the first
	cpu    *netio.CPUMeter

	socket  netio.ReflectorSocket
	tried   time.Time // to open it
	said    string
	seq     uint16
	asked   map[uint16]question
	waiting []incident.Second // whose questions may still be answered
	counted tally
	lan     [2]uint64 // packets and errors, a second ago
	pace    incident.Pace
	others  bool // somebody else has asked since the last second
	walk    walk
}

// A question waits for its answer.
type question struct {
	at     unit.Instant
	second time.Time
	to     int // of codecs; -1: the first hop
	hop    int // of a walk; 0: none
}

// newVigil begins to watch a line.
func (d *Daemon) newVigil(c config.WAN) *vigil {
	v := &vigil{d: d, config: c, since: d.now(), clock: netio.ClockSince(d.since), asked: map[uint16]question{}, cpu: netio.NewCPUMeter()}
	if v.pace.Every = time.Second; !c.Incidents {
		_, v.pace.Every = delay.Pace(delay.WithFirstHop(delay.Resolvers()))
	}
	p := incident.Params{WAN: c.Interface, Router: c.Router, Promised: [2]unit.Rate{c.Down, c.Up}}
	for _, t := range steer.Targets(c.Interface, c.Reflectors) {
		if t.Kind == delay.Echo && (len(v.codecs) < vigilFar || c.Follow && !c.Incidents) {
			v.codecs = append(v.codecs, path.Codec{Target: t.Addr, ID: uint16(rand.Uint32()), Token: rand.Uint32(), Size: path.MinSize})
			p.Far = append(p.Far, farName(t))
		}
	}
	v.judge = incident.New(p)
	return v
}

// farName is what people call a far end.
func farName(t delay.Target) string {
	if _, err := netip.ParsePrefix(t.Operator); err == nil || t.Operator == "" {
		return t.Addr.String()
	}
	return t.Operator
}

// suits reports whether the vigil is what the configuration asks for.
func (v *vigil) suits(c config.WAN) bool {
	is := v.config
	return is.Incidents == c.Incidents && is.Follow == c.Follow && is.Down == c.Down && is.Up == c.Up && is.LAN == c.LAN && slices.Equal(is.Reflectors, c.Reflectors)
}

// watches reports whether a line is to be watched: closely if the configuration says so, and
// else by what it takes anyway to measure its delay, for as long as that is done.
func (d *Daemon) watches(c config.WAN, already bool) bool {
	switch {
	case c.Incidents:
		return true
	case c.Untold:
		return false
	}
	d.mu.Lock()
	w := d.wans[keyOf(c.Router, c.Interface)]
	d.mu.Unlock()
	if w == nil || w.following.runs.Load() != nil {
		return w != nil
	}
	is, _ := w.snapshot()
	return already && (is.State == supervise.Waiting || is.State == supervise.Failing || is.State == supervise.Busy)
}

// close ends the vigil, and what goes on.
func (v *vigil) close() {
	for _, x := range v.judge.Close(v.d.now().Truncate(time.Second)) {
		v.d.tellIncident(x)
	}
	if v.socket != nil {
		_ = v.socket.Close()
		v.socket = nil
	}
}

// second does what is due each second.
func (v *vigil) second() {
	now := v.d.now()
	at := now.Round(0).Truncate(time.Second)
	if n := len(v.waiting); n > 0 {
		if gap := at.Sub(v.waiting[n-1].At); gap < 0 || gap > time.Second+vigilJump { // it was set, or the machine slept
			v.waiting = nil
			clear(v.asked)
		} else if gap == 0 {
			return
		}
	}
	v.hear()
	w := v.wan()
	held := false
	if w != nil {
		v.overhear(w.following.overheard.take())
		is, _ := w.snapshot()
		held = is.State == supervise.Held
	}
	if held { // a test fills the line, and is no fault of it
		v.waiting = nil
		return
	}
	s := incident.Second{At: at, Far: make([]incident.Answers, len(v.codecs)), CPU: -1}
	v.read(&s, w)
	v.waiting = append(v.waiting, s)
	v.ask(now, at, w)
	v.others = false
	v.walks(at)
	if len(v.waiting) > vigilWait {
		for _, x := range v.judge.Take(v.waiting[0]) {
			v.d.tellIncident(x)
			unsure := x.Part == incident.Unsure || x.Part == incident.Provider && len(v.codecs) == 1
			if unsure && !x.Over() && v.walk.of != x.ID {
				v.walk = walk{of: x.ID, hops: make([]incident.Hop, walkHops), until: at.Add((walkRounds + vigilWait) * time.Second)}
			}
		}
		v.waiting = v.waiting[1:]
		for seq, q := range v.asked {
			if q.second.Before(v.waiting[0].At) {
				delete(v.asked, seq)
			}
		}
	}
}

// wan returns the loop of the line; nil if there is none.
func (v *vigil) wan() *wan {
	v.d.mu.Lock()
	defer v.d.mu.Unlock()
	return v.d.wans[keyOf(v.config.Router, v.config.Interface)]
}

// ask sends this second's questions.
func (v *vigil) ask(now, second time.Time, w *wan) {
	far, first := v.pace.Ask(v.judge, v.waiting, v.others, late(w))
	if far < 0 && !first {
		return
	}
	if v.socket == nil {
		if now.Sub(v.tried) < vigilAgain && now.After(v.tried) {
			return
		}
		v.tried = now
		open := v.d.o.Reflect
		if open == nil {
			open = netio.OpenReflectors
		}
		var err error
		if v.socket, err = open(v.clock, v.config.Interface); err != nil {
			v.tell(err)
			v.socket = nil
			return
		}
		v.tell(nil)
	}
	if first {
		v.send(second, -1)
	}
	if far >= 0 {
		v.send(second, far)
	}
}

// late reports whether what measures a line's delay, by connections that pass too, sees
// packets wait.
func late(w *wan) bool {
	if w == nil {
		return false
	}
	if p := w.following.runs.Load(); p != nil {
		is := p.View()
		return !is.Blind && max(is.Down.Delay, is.Up.Delay) > incident.DefaultLimit
	}
	return false
}

// send sends one question. One that can't be sent is lost, as on the line.
func (v *vigil) send(second time.Time, to int) {
	s := &v.waiting[len(v.waiting)-1]
	c, hops, a := &v.codecs[0], 1, &s.First
	if to >= 0 {
		c, hops, a = &v.codecs[to], 0, &s.Far[to]
	}
	v.seq = (v.seq + 1) % path.SeqSpace
	v.asked[v.seq] = question{v.clock.Now(), second, to, 0}
	a.Asked++
	_ = v.socket.Send(c.Target, hops, c.Append(nil, v.seq))
}

// hear files the answers that have come.
func (v *vigil) hear() {
	if v.socket == nil {
		return
	}
	err := v.socket.Drain(func(at unit.Instant, from netip.Addr, b []byte) {
		for i := range v.codecs {
			r, ok := v.codecs[i].Parse(path.Heard{Form: path.Message, From: from, Data: b})
			q, open := v.asked[r.Seq]
			if ok && open && q.hop > 0 {
				if delete(v.asked, r.Seq); r.Kind == path.Exceeded && len(v.walk.hops) > q.hop-2 {
					h := &v.walk.hops[q.hop-2]
					h.Hear(at.Sub(q.at))
					h.Address, h.Near = from.String(), near(from, v.codecs[0].Target)
				}
				continue
			}
			first := q.to < 0 && r.Kind == path.Exceeded
			if !ok || !open || !first && (q.to != i || r.Kind != path.Arrived) {
				continue
			}
			delete(v.asked, r.Seq)
			for k := range v.waiting {
				if s := &v.waiting[k]; s.At.Equal(q.second) {
					a := &s.First
					if !first {
						a = &s.Far[i]
					}
					a.Hear(at.Sub(q.at))
				}
			}
		}
	})
	if err != nil {
		v.tell(err)
		_ = v.socket.Close()
		v.socket = nil
	}
}

// tell reports what went wrong, once for each text.
func (v *vigil) tell(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != v.said && text != "" {
		v.d.trouble("%s: watch the line: %s", v.config.Name(), text)
	}
	v.said = text
}

// read takes in what this machine knows itself: rates, counters, links, routes, processors.
func (v *vigil) read(s *incident.Second, w *wan) {
	for i := range s.Way {
		s.Way[i].Carried = -1
	}
	if w != nil {
		is, _ := w.snapshot()
		s.Route = uint32(is.Reroutes)
		if is.State == supervise.InPlace {
			for i, b := range is.Ways() {
				s.Way[i].Rate = b.Rate
			}
		}
		if now := w.count(); now != (tally{}) {
			if carried, ok := now.since(v.counted); ok {
				s.Way[0].Carried, s.Way[1].Carried = unit.Rate(carried[0]), unit.Rate(carried[1])
			}
			v.counted = now
		}
	}
	if busy, err := v.cpu.Busiest(); err == nil {
		s.CPU = busy
	}
	s.WAN = port(v.config.Interface)
	if v.config.LAN != "" {
		s.LAN = port(v.config.LAN)
		packets, errors := s.LAN.Packets, s.LAN.Errors
		s.LAN.Packets, s.LAN.Errors = grown(packets, v.lan[0]), grown(errors, v.lan[1])
		v.lan = [2]uint64{packets, errors}
	}
}

// grown is what a counter has counted; 0 if nothing is known of before.
func grown(is, was uint64) uint64 {
	if was == 0 || is < was {
		return 0
	}
	return is - was
}

// port reads what Linux tells of an interface; elsewhere nothing is known of it.
func port(name string) (p incident.Port) {
	dir := filepath.Join("/sys/class/net", name)
	text := func(file string) string {
		b, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(b))
	}
	state := text("operstate")
	if state == "" {
		return p
	}
	p.Known, p.Up = true, state != "down" && state != "lowerlayerdown" && state != "notpresent"
	number := func(file string) uint64 {
		n, _ := strconv.ParseUint(text(filepath.Join("statistics", file)), 10, 64)
		return n
	}
	p.Packets = number("tx_packets") + number("rx_packets")
	p.Errors = number("tx_errors") + number("rx_errors") + number("tx_dropped")
	return p
}
