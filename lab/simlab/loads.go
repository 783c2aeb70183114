package simlab

import (
	"cmp"
	"context"
	"errors"
	"time"

	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/probe"
	"unbloat/internal/measure/verdict"
	"unbloat/lab/household"
	"unbloat/lab/scenario"
	"unbloat/lab/sim"
	"unbloat/unit"
)

// Sizes of the loads that are not greedy, as in package lab.
const (
	voipInterval = 20 * time.Millisecond
	udpBytes     = 1200
)

// group is greedy flows that run together.
type group struct {
	direction sim.Direction
	conns     []*sim.Conn
	start     unit.Instant
	looks     []probe.SenderSample
}

// greedy adds a group of greedy flows.
func (h *house) greedy(d sim.Direction, flows, host int, cc string, datagram bool, start, stop unit.Instant) (*group, error) {
	g := &group{direction: d, start: start}
	// Linux acknowledges the first segments of a connection one by one, unless
	// the receiver answers as well: servers have answered the request to upload.
	quick := 0
	if d == sim.Down {
		quick = 15
	}
	for range flows {
		c, err := h.net.AddConn(sim.ConnParams{
			Direction: d, Host: host, Control: sim.Control(cc), QuickAcks: quick, Datagram: datagram,
			ECN: h.scenario.Home.ECN, ExtraRTT: h.scenario.Home.AwayOf(host),
			Start: start.Add(time.Duration(h.random.Int64N(int64(startSpan)))), Stop: stop,
		})
		if err != nil {
			return nil, err
		}
		g.conns = append(g.conns, c)
	}
	return g, nil
}

// look samples the senders.
func (g *group) look(now unit.Instant) {
	s := probe.SenderSample{At: now, Flows: len(g.conns), Known: true}
	s.Busy = max(now.Sub(g.start), 0) * time.Duration(len(g.conns))
	for _, c := range g.conns {
		s.Retransmits += c.Stats().Retransmits
		s.Acked += int64(c.Acked())
		s.Sacked += int64(c.Sacked())
	}
	g.looks = append(g.looks, s)
}

// series returns what arrived of each flow.
func (g *group) series() []verdict.Series { return seriesOf(g.conns) }

func seriesOf(conns []*sim.Conn) []verdict.Series {
	out := make([]verdict.Series, 0, len(conns))
	for _, c := range conns {
		start, bin, bytes := c.Goodput()
		out = append(out, verdict.Series{Start: start, Bin: bin, Bytes: bytes})
	}
	return out
}

// file puts the group under the phase in which it ran.
func (g *group) file(raw *phases.RawPhase) {
	d := phases.Up
	if g.direction == sim.Down {
		d = phases.Down
	}
	phases.AddLoad(raw, d, phases.FlowReport{Series: g.series(), Sender: g.looks})
}

// load is one load of the household under way.
type load struct {
	scenario.Load
	groups      []*group
	streams     []*sim.Stream
	apps        []*sim.App
	films       []*film
	calls       [][2]*caller // home, away
	servers     []*server    // of games
	start, stop unit.Instant
}

// uploadSlots is how many peers a BitTorrent client sends to at a time:
// libtorrent's unchoke_slots_limit.
const uploadSlots = 8

// begin starts a load of the household.
func (h *house) begin(l scenario.Load, start, end unit.Instant) (*load, error) {
	from, stop := start.Add(l.Start), end
	if l.Stop > 0 {
		stop = start.Add(l.Stop)
	}
	r := &load{Load: l, start: from, stop: stop}
	greedy := func(d sim.Direction, flows int, cc string, at unit.Instant) error {
		g, err := h.greedy(d, flows, l.Host, cc, l.Kind == scenario.QUICUpload || l.Kind == scenario.QUICDownload, at, stop)
		r.groups = append(r.groups, g)
		return err
	}
	switch l.Kind {
	case scenario.Download, scenario.QUICDownload:
		return r, greedy(sim.Down, l.Flows, l.CC, from)
	case scenario.Upload, scenario.QUICUpload:
		return r, greedy(sim.Up, l.Flows, l.CC, from.Add(h.scenario.Line.RTT/2)) // the server answers first
	case scenario.Torrent:
		cc := string(sim.LEDBAT)
		if l.Transport == "tcp" {
			cc = string(sim.Cubic)
		}
		return r, errors.Join(greedy(sim.Down, l.Peers, cc, from), greedy(sim.Up, min(l.Peers, uploadSlots), cc, from))
	case scenario.Web, scenario.Video, scenario.IMAP:
		return r, h.activity(r)
	case scenario.WebRTC:
		return r, h.calls(r)
	case scenario.CloudGame:
		return r, h.cloudGames(r)
	}
	p := sim.StreamParams{Direction: sim.Up, Host: l.Host, Start: from, Stop: stop, Echo: true, ExtraRTT: h.scenario.Home.AwayOf(l.Host)}
	switch l.Kind {
	case scenario.VoIP:
		p.Interval, p.Frame = voipInterval, unit.Size(household.PacketBytes(l))+udpHeaders
	case scenario.Game:
		p.Interval, p.Frame = time.Second/time.Duration(l.PPS), household.PacketBytes(l)+udpHeaders
		p.BackFrame = household.AnswerBytes(l) + udpHeaders
	case scenario.DNS:
		p.Interval, p.Frame = time.Duration(float64(l.Interval)/freshShare), dnsFrame
	case scenario.SSH:
		p.Interval, p.Frame = l.Interval, sshFrame
	default: // UDP
		size := min(max(unit.Size(cmp.Or(l.Bytes, udpBytes)), probe.MinSize), probe.MaxSize)
		p.Interval, p.Frame, p.Echo = max(l.Rate.Time(size+udpHeaders), 100*time.Microsecond), size+udpHeaders, false
		if l.Direction == "down" {
			p.Direction = sim.Down
		}
	}
	for range l.Flows {
		q := p
		q.Start = from.Add(time.Duration(h.random.Int64N(int64(p.Interval))))
		s, err := h.net.AddStream(q)
		if err != nil {
			return nil, err
		}
		r.streams = append(r.streams, s)
	}
	return r, nil
}

// loaded measures while every load of the household runs.
func (h *house) loaded(ctx context.Context, d time.Duration) (*phases.RawPhase, []*load, error) {
	start := h.net.Now()
	head := min(d/4, loadedHead)
	if h.scenario.Test.Whole {
		head = 0
	}
	raw := phases.PhaseSpec{Name: verdict.PhaseLoaded, Duration: d, CutHead: head, CutTail: loadedTail}.Raw(start, h.interval)
	var loads []*load
	var groups []*group
	for _, l := range h.scenario.Loads {
		r, err := h.begin(l, start, raw.End)
		if err != nil {
			return nil, nil, err
		}
		loads = append(loads, r)
		groups = append(groups, r.groups...)
	}
	if err := h.during(ctx, raw.End, groups); err != nil {
		return nil, nil, err
	}
	if err := h.settle(ctx, raw.End, len(groups) > 0); err != nil {
		return nil, nil, err
	}
	for _, g := range groups {
		g.file(raw)
	}
	for _, l := range loads {
		for _, c := range l.calls {
			raw.Up, raw.Down = append(raw.Up, c[1].arrived), append(raw.Down, c[0].arrived)
		}
		for _, s := range l.servers {
			raw.Down = append(raw.Down, s.arrived)
		}
		for _, a := range l.apps {
			if l.Kind == scenario.IMAP {
				continue
			}
			raw.Down = append(raw.Down, seriesOf(a.Conns())...)
		}
	}
	raw.Samples = h.samples(h.probe, raw.Start, raw.End)
	return raw, loads, nil
}
