package scenario

import (
	"slices"
	"time"

	"unbloat/unit"
)

// Limits and defaults of loads.
const (
	maxPeers    = 200
	maxMessages = 10000 // what a guest's memory holds twice
	maxObjects  = 500

	defaultPeers    = 40
	defaultMessages = 1000
	defaultObjects  = 80
	defaultPPS      = 64
	defaultBitrate  = 1500 * unit.KbitPerSecond // of a camera with 720 lines
	leastBitrate    = 150 * unit.KbitPerSecond
	defaultGame     = 15 * unit.MbitPerSecond
	leastGame       = unit.MbitPerSecond
	mostGame        = 100 * unit.MbitPerSecond
	mostBitrate     = 20 * unit.MbitPerSecond
	defaultThink    = 2 * time.Second
	defaultEvery    = 200 * time.Millisecond
)

// Kinds returns the kinds of load, in the order that documents list them.
func Kinds() []string {
	return []string{Upload, Download, UDP, VoIP, Torrent, IMAP, Web, Game, DNS, SSH, Video, WebRTC, QUICUpload, QUICDownload, CloudGame}
}

// within ends a load with the phase that it is to fill, and refuses one that
// would begin after it.
func (p *parser) within(t table, l *Load, phase time.Duration) {
	if l.Start >= phase {
		p.fail(t.key("start"), "%v is not before the end of the loaded phase; make test.seconds (%v) longer", l.Start, phase)
	}
	if l.Stop > phase {
		l.Stop = 0
	}
}

// load reads one [[load]]. A key that its kind has no use for is refused,
// because it would have no effect.
func (p *parser) load(t table) Load {
	l := Load{
		Kind:  t.oneOf("kind", "?", Kinds()...),
		Flows: t.integer("flows", 1, 1, maxFlows),
		Host:  t.integer("host", 1, 1, maxHosts),
		Start: t.duration("start", false, time.Hour),
		Stop:  t.duration("stop", false, time.Hour),
	}
	if l.Stop != 0 && l.Stop <= l.Start {
		p.fail(t.key("stop"), "must be after start")
	}
	if (l.Kind == Torrent || l.Kind == IMAP) && l.Flows != 1 {
		p.fail(t.key("flows"), "a load of kind %s is one client; write another [[load]] for a second", l.Kind)
	}
	if t.owned("cc", l.Kind, Upload, Download) {
		if l.CC = t.text("cc"); l.CC != "" && !ccShape.MatchString(l.CC) {
			p.fail(t.key("cc"), "%q is no name of a congestion control", l.CC)
		}
	}
	if t.owned("rate", l.Kind, UDP, CloudGame) {
		l.Rate = t.rate("rate", false)
		switch {
		case l.Kind == CloudGame && l.Rate == 0:
			l.Rate = defaultGame
		case l.Kind == CloudGame && (l.Rate < leastGame || l.Rate > mostGame):
			p.fail(t.key("rate"), "%v is outside %v to %v", l.Rate, leastGame, mostGame)
		case l.Rate == 0:
			p.fail(t.key("rate"), "a udp load needs a rate")
		}
	}
	if t.owned("bytes_down", l.Kind, Game) {
		l.BytesDown = t.integer("bytes_down", 0, 4, 1472)
	}
	if t.owned("bytes", l.Kind, UDP, Game) {
		l.Bytes = t.integer("bytes", 0, 0, 1472)
	}
	if t.owned("direction", l.Kind, UDP) {
		l.Direction = t.oneOf("direction", "", "up", "down")
	}
	p.household(t, &l)
	t.end()
	return l
}

// household reads what only the loads made by programs have.
func (p *parser) household(t table, l *Load) {
	if t.owned("peers", l.Kind, Torrent) {
		l.Peers = t.integer("peers", defaultPeers, 1, maxPeers)
	}
	if t.owned("transport", l.Kind, Torrent) {
		l.Transport = t.oneOf("transport", "utp", "tcp", "utp")
	}
	if t.owned("messages", l.Kind, IMAP) {
		l.Messages = t.integer("messages", defaultMessages, 1, maxMessages)
	}
	if t.owned("objects", l.Kind, Web) {
		l.Objects = t.integer("objects", defaultObjects, 1, maxObjects)
	}
	if t.owned("think", l.Kind, Web) {
		l.Think = t.durationOr("think", defaultThink, time.Minute)
	}
	if t.owned("pps", l.Kind, Game) {
		l.PPS = t.integer("pps", defaultPPS, 1, 1000)
	}
	if t.owned("through", l.Kind, WebRTC) {
		l.Through = t.oneOf("through", "", ThroughTLS, ThroughTunnel)
		if l.Through != "" && l.Flows > 1 {
			p.fail(t.key("through"), "with it a load is one call; write another [[load]] for a second")
		}
	}
	if t.owned("dscp", l.Kind, WebRTC) {
		l.DSCP = t.oneOf("dscp", "", "af41", "nqb", "ef")
	}
	if t.owned("bitrate", l.Kind, WebRTC) {
		if l.Bitrate = t.rate("bitrate", false); l.Bitrate == 0 {
			l.Bitrate = defaultBitrate
		}
		if l.Bitrate < leastBitrate || l.Bitrate > mostBitrate {
			p.fail(t.key("bitrate"), "%v is outside %v to %v", l.Bitrate, leastBitrate, mostBitrate)
		}
	}
	if t.owned("interval", l.Kind, DNS, SSH) {
		if l.Interval = t.durationOr("interval", defaultEvery, time.Minute); l.Interval < time.Millisecond {
			p.fail(t.key("interval"), "below 1 ms")
		}
	}
}

// owned says whether a key is of a kind of load, and refuses it where it is not.
func (t table) owned(k, kind string, owners ...string) bool {
	if slices.Contains(owners, kind) {
		return true
	}
	if t.take(k) != nil {
		t.p.fail(t.key(k), "is of loads of kind %s, not of %s", list(owners), kind)
	}
	return false
}

func list(words []string) string {
	if len(words) == 1 {
		return words[0]
	}
	return words[0] + " and " + words[1]
}

// durationOr reads a duration that has a default.
func (t table) durationOr(k string, fallback, most time.Duration) time.Duration {
	if _, there := t.m[k]; !there {
		return fallback
	}
	return t.duration(k, false, most)
}
