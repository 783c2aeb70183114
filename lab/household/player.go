package household

import (
	"time"

	"unbloat/unit"
)

// A film is cut into segments, each at hand in several qualities (RFC 8216,
// DASH): the ladder is what a service of 2020 offers from 240p to 1080p50.
const (
	SegmentLength = 4 * time.Second  // of film in one segment
	bufferMost    = 24 * time.Second // the player pauses fetching above it
	bufferLow     = 8 * time.Second  // and is careful below
)

func ladder() []unit.Rate {
	return []unit.Rate{400e3, 1e6, 2500e3, 5e6, 8e6}
}

// Player is the part of a video player that does not touch the network: the
// buffer, the picture, and the choice of quality. Times are since its start; its
// zero value is a player whose button has just been pressed.
type Player struct {
	now      time.Duration
	buffer   time.Duration // of film
	playing  bool
	startup  time.Duration // until the first picture
	played   time.Duration
	stalls   int
	stalled  time.Duration
	segments int
	fetched  float64 // sum of the fetched segments' rates
	seen     []float64
}

// Advance lets time pass until now: the picture plays while there is film.
func (p *Player) Advance(now time.Duration) {
	d := now - p.now
	p.now = now
	if p.playing {
		n := min(d, p.buffer)
		p.buffer -= n
		p.played += n
		d -= n
		if d > 0 {
			p.playing = false
			p.stalls++
		}
	}
	if !p.playing && p.startup > 0 {
		p.stalled += d
	}
}

// Full says for how long the player fetches nothing.
func (p *Player) Full() time.Duration { return max(p.buffer+SegmentLength-bufferMost, 0) }

// Choose returns the quality of the next segment: the best that the harmonic
// mean of the last five segments' rates carries, with a reserve that is larger
// when little film is left.
func (p *Player) Choose() unit.Rate {
	all := ladder()
	if len(p.seen) == 0 {
		return all[0]
	}
	var inverse float64
	for _, r := range p.seen {
		inverse += 1 / r
	}
	carries := 0.8 * float64(len(p.seen)) / inverse
	if p.buffer < bufferLow {
		carries *= 0.6
	}
	best := all[0]
	for _, r := range all {
		if float64(r) <= carries {
			best = r
		}
	}
	return best
}

// Fetched adds a segment that arrived at now and took so long.
func (p *Player) Fetched(now, took time.Duration, quality unit.Rate) {
	p.Advance(now)
	p.segments++
	p.fetched += float64(quality)
	p.seen = append(p.seen, float64(quality)*SegmentLength.Seconds()/max(took.Seconds(), 1e-3))
	p.seen = p.seen[max(0, len(p.seen)-5):]
	p.buffer += SegmentLength
	if !p.playing {
		p.playing = true
		if p.startup == 0 {
			p.startup = now
		}
	}
}

// Result is what was seen until now.
func (p *Player) Result() *VideoResult {
	r := &VideoResult{Segments: p.segments, StartupMs: unit.Ms(p.startup), Stalls: p.stalls,
		StalledS: p.stalled.Seconds(), PlayedS: p.played.Seconds()}
	if p.segments > 0 {
		r.QualityBps = p.fetched / float64(p.segments)
	}
	return r
}
