package simlab

import (
	"math/rand/v2"
	"slices"
	"time"

	"unbloat/internal/measure/verdict"
	"unbloat/lab/household"
	"unbloat/lab/sim"
	"unbloat/unit"
)

// Sizes and times of calls and games, as in package household's.
const (
	rtpHeaders    = 12 + 8 + 16 // RTP, the number for congestion control, SRTP's tag
	rtpPayload    = 1184        // of video in one packet
	reportBytes   = 120         // RTCP, encrypted
	reportEvery   = 100 * time.Millisecond
	nackEvery     = 20 * time.Millisecond
	nackMore      = 5 * time.Millisecond // beyond a round trip, before a packet is sent again once more
	resendWindow  = 500 * time.Millisecond
	nackMost      = 1024 // packets back
	gamePort      = 3478
	gamePiece     = 1200
	inputInterval = time.Second / 128
	inputBytes    = 80
	frameVaries   = 0.15
)

// What a datagram of a call carries.
type content uint8

const (
	aSound content = iota
	aFragment
	aReport
)

// A message is one datagram of a call.
type message struct {
	what     content
	sent     unit.Instant
	size     unit.Size // UDP payload
	n        int       // sound: its number
	fragment household.Fragment
	acks     []ack    // report: what arrived since the last one
	lost     int      // report: what did not
	missing  []uint16 // report: of the video, to be sent again
	key      bool     // report: a key frame is asked for
}

// A caller is one side of a call: package household's camera and viewer, with a
// congestion control between them, and packets that are sent again.
type caller struct {
	most        unit.Rate
	random      *rand.Rand
	rtt         time.Duration // smoothed; at the beginning the idle line's
	other       *caller
	start       unit.Instant
	control     *gcc
	camera      household.Camera
	record      household.CallRecord // of what this side sends
	out         []message            // the same, by the simulator's numbers
	gone        []bool               // of them: came at the other side
	seq         uint16
	queue       []message // video that waits for its turn
	resend      []message
	resent      []ack              // of the last half second
	resentBytes unit.Size          // of them
	kept        map[uint16]message // video that may be asked for again; sent is when it was last sent
	credit      float64            // bytes of video that may leave
	woken       unit.Instant
	hearing     hearing
	arrived     verdict.Series // at this side
}

// hearing is what a caller keeps of what it receives.
type hearing struct {
	viewer   household.Viewer
	acks     []ack
	newest   int // number of the last message of the other side that came
	reported int // until here, it knows what came
	reportAt unit.Instant
	nackAt   unit.Instant
	begun    bool
	expected uint16 // the next number of the other side's video
	missing  map[uint16]bool
}

func newCaller(most unit.Rate, rtt time.Duration, start unit.Instant, random *rand.Rand) *caller {
	return &caller{
		most: most, random: random, rtt: rtt, start: start, woken: start, kept: map[uint16]message{},
		control: newGCC(household.CallLeast+household.CallSound, most+household.CallSound),
		camera:  household.Camera{Random: random},
		hearing: hearing{newest: -1, reported: -1, missing: map[uint16]bool{}},
		arrived: verdict.Series{Start: start, Bin: 100 * time.Millisecond},
	}
}

// Wake implements sim.Talker.
func (c *caller) Wake(now unit.Instant) (frames []unit.Size, next unit.Instant) {
	send := func(m message) {
		m.sent = now
		c.out, c.gone = append(c.out, m), append(c.gone, false)
		if m.what != aReport {
			c.record.Packets = append(c.record.Packets, now)
		}
		if m.what == aFragment {
			c.kept[m.fragment.Seq] = m
			delete(c.kept, m.fragment.Seq-nackMost)
		}
		frames = append(frames, m.size+udpHeaders)
	}
	since := now.Sub(c.start)
	rate := household.VideoRate(c.control.rate(), c.most)
	for n := len(c.record.Sounds); time.Duration(n)*household.SoundLength <= since; n++ {
		c.record.Sounds = append(c.record.Sounds, household.Heard{Sent: now})
		send(message{what: aSound, n: n, size: unit.Size(household.SoundSize(c.random)) + rtpHeaders})
	}
	for n := len(c.record.Made); time.Duration(n)*household.FrameLength <= since; n++ {
		c.film(now, n, rate)
	}
	for _, m := range c.resend {
		send(m)
	}
	c.resend = c.resend[:0]
	step := household.CallPacing * float64(rate) / 8 * household.CallTick.Seconds()
	c.credit = min(c.credit+step*float64(now.Sub(c.woken))/float64(household.CallTick), 2*step)
	c.woken = now
	for len(c.queue) > 0 && c.credit > 0 {
		c.credit -= float64(c.queue[0].size)
		send(c.queue[0])
		c.queue = c.queue[1:]
	}
	if m, ok := c.report(now); ok {
		send(m)
	}
	return frames, now.Add(household.CallTick)
}

// film makes the n-th frame, and queues its packets.
func (c *caller) film(now unit.Instant, n int, rate unit.Rate) {
	size, key := c.camera.Frame(now.Sub(c.start), rate)
	c.record.Made = append(c.record.Made, now)
	for first := true; size > 0; first = false {
		part := min(size, rtpPayload)
		size -= part
		f := household.Fragment{Seq: c.seq, First: first, Last: size == 0, Key: key, No: n, Made: now, Bytes: part}
		c.seq++
		c.queue = append(c.queue, message{what: aFragment, size: part + rtpHeaders, fragment: f})
	}
}

// report is what this side tells the other of what it received, if it is time.
func (c *caller) report(now unit.Instant) (m message, ok bool) {
	h := &c.hearing
	m = message{what: aReport, size: reportBytes, key: h.viewer.Wait(now)}
	if now.Sub(h.nackAt) >= nackEvery && len(h.missing) > 0 {
		h.nackAt = now
		for seq := range h.missing {
			m.missing = append(m.missing, seq)
		}
		slices.Sort(m.missing)
	}
	if now.Sub(h.reportAt) >= reportEvery && h.newest > h.reported {
		for n := h.reported + 1; n <= h.newest; n++ {
			if !c.other.gone[n] && c.other.out[n].what != aReport {
				m.lost++
			}
		}
		m.acks, h.acks, h.reported, h.reportAt = h.acks, nil, h.newest, now
	}
	return m, m.key || m.missing != nil || m.acks != nil
}

// Hear implements sim.Talker.
func (c *caller) Hear(now unit.Instant, n int) {
	m := &c.other.out[n]
	c.other.gone[n] = true
	h := &c.hearing
	h.newest = max(h.newest, n)
	if m.what == aReport {
		c.told(now, m)
		return
	}
	h.acks = append(h.acks, ack{sent: m.sent, arrived: now, size: m.size})
	i := int(now.Sub(c.arrived.Start) / c.arrived.Bin)
	for len(c.arrived.Bytes) <= i {
		c.arrived.Bytes = append(c.arrived.Bytes, 0)
	}
	c.arrived.Bytes[i] += int64(m.size - rtpHeaders)
	if m.what == aSound {
		c.other.record.Sounds[m.n].Arrived = now
		return
	}
	seq := m.fragment.Seq
	delete(h.missing, seq)
	if !h.begun {
		h.begun, h.expected = true, seq
	}
	for ; int16(seq-h.expected) >= 0; h.expected++ {
		if h.expected != seq {
			h.missing[h.expected] = true
		}
		delete(h.missing, h.expected-nackMost)
	}
	h.viewer.Receive(now, m.fragment)
}

// told takes a report of the other side.
func (c *caller) told(now unit.Instant, m *message) {
	if m.key {
		c.camera.AskKey()
	}
	if m.acks != nil {
		c.control.report(now, m.acks, m.lost)
		c.rtt += (now.Sub(m.acks[len(m.acks)-1].sent) - c.rtt) / 8
	}
	for _, seq := range m.missing {
		k, ok := c.kept[seq]
		if !ok || now.Sub(k.sent) < c.rtt+nackMore {
			continue
		}
		if !c.mayResend(now, k.size) {
			return
		}
		k.sent = now
		c.kept[seq] = k
		c.resend = append(c.resend, k)
	}
}

// mayResend says whether another packet may be sent again: no more of them than
// the congestion control allows for all of the call.
func (c *caller) mayResend(now unit.Instant, size unit.Size) bool {
	for len(c.resent) > 0 && now.Sub(c.resent[0].sent) > resendWindow {
		c.resentBytes -= c.resent[0].size
		c.resent = c.resent[1:]
	}
	if len(c.resent) > 0 && c.resentBytes+size > c.control.rate().Bytes(resendWindow) {
		return false
	}
	c.resent, c.resentBytes = append(c.resent, ack{sent: now, size: size}), c.resentBytes+size
	return true
}

// way sums up what this side sent.
func (c *caller) way(from, to unit.Instant) household.CallWay {
	r := c.record
	r.Shown, r.Asked = c.other.hearing.viewer.Shown, c.other.hearing.viewer.Asked
	for n, m := range c.out {
		if m.what != aReport && !c.gone[n] {
			r.Lost = append(r.Lost, m.sent)
		}
	}
	return r.Way(from, to)
}

// calls starts the calls of a load.
func (h *house) calls(r *load) error {
	rtt := h.scenario.Line.RTT + h.scenario.Home.AwayOf(r.Host)
	for k := range r.Flows {
		home, away := newCaller(r.Bitrate, rtt, r.start, h.random), newCaller(r.Bitrate, rtt, r.start, h.random)
		home.other, away.other = away, home
		r.calls = append(r.calls, [2]*caller{home, away})
		if err := h.net.AddTalk(sim.TalkParams{Host: r.Host, Home: home, Away: away, Start: r.start, Stop: r.stop, DSCP: r.CodePoint(),
			ExtraRTT: h.scenario.Home.AwayOf(r.Host), Port: uint16(gamePort + k)}); err != nil {
			return err
		}
	}
	return nil
}

// called says how a load's calls were: the worst of them.
func (l *load) called(raw *verdict.Raw) *household.CallResult {
	var worst *household.CallResult
	for _, c := range l.calls {
		r := &household.CallResult{Up: c[0].way(raw.From, raw.To), Down: c[1].way(raw.From, raw.To)}
		if worst == nil || r.Worse(*worst) {
			worst = r
		}
	}
	return worst
}

// A player is the home's side of a game: packets at a steady pace.
type player struct {
	interval time.Duration
	size     unit.Size // UDP payload
	server   *server
	sent     []household.Heard
}

// Wake implements sim.Talker.
func (p *player) Wake(now unit.Instant) (frames []unit.Size, next unit.Instant) {
	p.sent = append(p.sent, household.Heard{Sent: now})
	return []unit.Size{p.size + udpHeaders}, now.Add(p.interval)
}

// Hear implements sim.Talker.
func (p *player) Hear(now unit.Instant, n int) {
	s := p.server
	s.bytes(now, s.sizes[n])
	k := s.of[n]
	if s.left[k]--; s.left[k] == 0 {
		s.frames[k].Whole = now
	}
}

// server is the far side of a game that it plays: it sends pictures.
type server struct {
	random  *rand.Rand
	rate    unit.Rate
	player  *player
	sizes   []unit.Size // of its packets
	of      []int       // the frames that they are of
	left    []int       // packets of each frame that have not come
	frames  []household.PlayFrame
	arrived verdict.Series
}

// Wake implements sim.Talker.
func (s *server) Wake(now unit.Instant) (frames []unit.Size, next unit.Instant) {
	mean := float64(s.rate) / 8 / household.PlayFrames
	size := unit.Size(mean * (1 + frameVaries*(2*s.random.Float64()-1)))
	n := len(s.frames)
	for ; size > 0; size -= gamePiece {
		piece := min(size, gamePiece)
		s.sizes, s.of = append(s.sizes, piece), append(s.of, n)
		frames = append(frames, piece+udpHeaders)
	}
	s.frames, s.left = append(s.frames, household.PlayFrame{Made: now}), append(s.left, len(frames))
	return frames, now.Add(time.Second / household.PlayFrames)
}

// Hear implements sim.Talker.
func (s *server) Hear(now unit.Instant, n int) { s.player.sent[n].Arrived = now }

// bytes counts what arrived at home.
func (s *server) bytes(now unit.Instant, n unit.Size) {
	i := int(now.Sub(s.arrived.Start) / s.arrived.Bin)
	for len(s.arrived.Bytes) <= i {
		s.arrived.Bytes = append(s.arrived.Bytes, 0)
	}
	s.arrived.Bytes[i] += int64(n)
}

// cloudGames starts the games of a load that a server plays.
func (h *house) cloudGames(r *load) error {
	for k := range r.Flows {
		p := &player{interval: inputInterval, size: inputBytes}
		s := &server{random: h.random, rate: r.Rate, player: p, arrived: verdict.Series{Start: r.start, Bin: 100 * time.Millisecond}}
		p.server = s
		r.servers = append(r.servers, s)
		if err := h.net.AddTalk(sim.TalkParams{Host: r.Host, Home: p, Away: s, Start: r.start, Stop: r.stop,
			ExtraRTT: h.scenario.Home.AwayOf(r.Host), Port: uint16(gamePort + k)}); err != nil {
			return err
		}
	}
	return nil
}

// played says how a load's games were: the worst of them.
func (l *load) played(raw *verdict.Raw) *household.PlayResult {
	var worst *household.PlayResult
	for _, s := range l.servers {
		r := household.Play(s.frames, s.player.sent, raw.From, raw.To)
		if worst == nil || r.Missed() > worst.Missed() {
			worst = r
		}
	}
	return worst
}
