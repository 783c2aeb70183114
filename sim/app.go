package sim

import (
	"errors"
	"math"
	"time"

	"unbloat/unit"
)

// Activity is what somebody at home does by short exchanges with servers.
type Activity uint8

// Activities.
const (
	// Web loads pages: 6 connections, 40 objects of 50 kB in the mean, each
	// connection opened by two round trips (TCP and TLS); 5 s of reading
	// between two pages, in the mean.
	Web Activity = iota
	// Video fetches chunks of 4 s of a film over one connection, of the best
	// quality that 80 % of the rate of the last chunk allows, and keeps 30 s in
	// advance.
	Video
	// IMAP looks for mail every 10 s: five short exchanges one after the other.
	IMAP
)

const (
	webConns     = 6
	webObjects   = 40
	webObject    = 50 * unit.KB
	webReading   = 5 * time.Second
	videoChunk   = 4 * time.Second
	videoAdvance = 30 * time.Second
	imapEvery    = 10 * time.Second
	imapSteps    = 5
	imapAnswer   = 3 * unit.KB
	requestSize  = 400 // bytes of payload
	handshake    = 2   // round trips before the first request of a connection
)

// videoRates is the ladder of qualities.
func videoRates() []unit.Rate {
	const k = unit.KbitPerSecond
	return []unit.Rate{400 * k, 750 * k, 1500 * k, 3000 * k, 6000 * k, 12000 * k, 24000 * k}
}

// AppParams describe somebody's activity.
type AppParams struct {
	Activity Activity
	Host     int
	Control  Control // of the servers
	Start    unit.Instant
	Stop     unit.Instant // nothing is asked for any more; 0: never
	ExtraRTT time.Duration
}

// App is an activity under way.
type App struct {
	params  AppParams
	index   uint32
	net     *Network
	pairs   []*pair
	pending int          // answers that are missing of the page, chunk or mail
	objects int          // still to be asked for
	asked   unit.Instant // when the page, chunk or mail was
	done    []Fetch
	rate    unit.Rate // of the film
	played  unit.Instant
	buffer  time.Duration // of film, at played
	stalled time.Duration
}

// Fetch is one page, chunk or look for mail that is complete.
type Fetch struct {
	Asked unit.Instant
	Took  time.Duration
	Rate  unit.Rate // Video: its quality
}

// pair is a connection that is used both ways.
type pair struct {
	app      *App
	up, down *Conn
	opening  int   // handshakes that are still to be made
	want     int64 // segments that will have arrived when the answer is complete
	size     unit.Size
	asked    int64 // requests so far
}

// AddApp adds an activity.
func (n *Network) AddApp(p AppParams) (*App, error) {
	if p.Start < n.now {
		return nil, errors.New("sim: an activity starts in the past")
	}
	if p.Activity > IMAP {
		return nil, errors.New("sim: there is no such activity")
	}
	a := &App{params: p, index: uint32(len(n.apps)), net: n, played: p.Start, rate: videoRates()[0]}
	conns := 1
	if p.Activity == Web {
		conns = webConns
	}
	for range conns {
		if err := a.connect(); err != nil {
			return nil, err
		}
	}
	n.apps = append(n.apps, a)
	n.timers.push(p.Start, a.index, taskApp)
	return a, nil
}

// connect adds a connection of the activity.
func (a *App) connect() (err error) {
	k := &pair{app: a, opening: handshake}
	key := a.net.hash()
	p := ConnParams{Host: a.params.Host, Control: a.params.Control, Start: a.params.Start, ExtraRTT: a.params.ExtraRTT, OnDemand: true, FlowKey: key}
	up, down := p, p
	up.Direction, up.Payload, up.Arrived = Up, requestSize, k.requested
	down.Direction, down.QuickAcks, down.Arrived = Down, 16, k.answered
	if k.up, err = a.net.AddConn(up); err == nil {
		k.down, err = a.net.AddConn(down)
	}
	a.pairs = append(a.pairs, k)
	return err
}

// next asks for the next page, chunk or mail.
func (a *App) next(n *Network) {
	if a.params.Stop > 0 && n.now >= a.params.Stop {
		return
	}
	a.asked = n.now
	switch a.params.Activity {
	case Web:
		a.objects = webObjects
		for _, k := range a.pairs {
			k.opening = handshake
			a.pending++
			k.ask(a.object())
		}
	case Video:
		a.pending++
		a.pairs[0].opening = 0
		a.pairs[0].ask(unit.Size(int64(a.rate) / 8 * int64(videoChunk/time.Second)))
	case IMAP:
		a.objects = imapSteps - 1
		a.pending++
		a.pairs[0].ask(imapAnswer)
	}
}

// object takes an object of the page, of a size drawn from an exponential
// distribution.
func (a *App) object() unit.Size {
	a.objects--
	return 1 + unit.Size(a.net.random.ExpFloat64()*float64(webObject))
}

// ask sends a request for so many bytes, after the handshakes that are due.
func (k *pair) ask(size unit.Size) {
	k.size = size
	k.up.Send(k.app.net, 1)
}

// requested is called at the server when requests have arrived.
func (k *pair) requested(_ unit.Instant, requests int64) {
	for ; k.asked < requests; k.asked++ {
		segments := 1
		if k.opening == 0 {
			segments = int((k.size + fullPayload - 1) / fullPayload)
		}
		k.want += int64(segments)
		k.down.Send(k.app.net, segments)
	}
}

// answered is called at home when segments of the answer have arrived.
func (k *pair) answered(now unit.Instant, segments int64) {
	a := k.app
	switch {
	case segments < k.want || k.asked == 0:
		return
	case k.opening > 0:
		k.opening--
		k.ask(k.size)
		return
	case a.objects > 0 && a.params.Activity == Web:
		k.ask(a.object())
		return
	case a.objects > 0:
		a.objects--
		k.ask(imapAnswer)
		return
	}
	a.pending--
	if a.pending == 0 {
		a.complete(now)
	}
}

// complete files what is complete, and sets when the next is asked for.
func (a *App) complete(now unit.Instant) {
	took := now.Sub(a.asked)
	f := Fetch{Asked: a.asked, Took: took}
	next := now
	switch a.params.Activity {
	case Web:
		next = now.Add(time.Duration(a.net.random.ExpFloat64() * float64(webReading)))
	case Video:
		f.Rate = a.rate
		next = a.play(now, took)
	case IMAP:
		next = max(now, a.asked.Add(imapEvery))
	}
	a.done = append(a.done, f)
	a.net.timers.push(next, a.index, taskApp)
}

// play takes a chunk in, chooses the quality of the next, and returns when to
// ask for it.
func (a *App) play(now unit.Instant, took time.Duration) unit.Instant {
	watched := now.Sub(a.played)
	if len(a.done) > 0 { // before the first chunk nothing plays
		if a.stalled += max(watched-a.buffer, 0); watched > a.buffer {
			watched = a.buffer
		}
		a.buffer -= watched
	}
	a.buffer += videoChunk
	a.played = now
	could := 0.8 * float64(a.rate) * videoChunk.Seconds() / math.Max(took.Seconds(), 1e-3)
	rates := videoRates()
	a.rate = rates[0]
	for _, r := range rates {
		if float64(r) <= could {
			a.rate = r
		}
	}
	return now.Add(max(a.buffer-videoAdvance+videoChunk, 0))
}

// Fetches returns what is complete, in order. The slice is the app's own.
func (a *App) Fetches() []Fetch { return a.done }

// Stalled returns for how long a film stood still, after it had begun.
func (a *App) Stalled() time.Duration { return a.stalled }
