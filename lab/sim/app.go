package sim

import (
	"errors"
	"math"
	"time"

	"unbloat/unit"
)

// Activity is something a user does in short exchanges with servers.
type Activity uint8

// Activities.
const (
	// Web loads pages: HTML of 50 kB, then objects from six hosts, over up to six
	// connections to each. A host's name takes a round trip, and opening a
	// connection another.
	Web Activity = iota
	// Video fetches a film's segments, one after the other over one connection.
	Video
	// IMAP looks for mail every 10 s, by five short exchanges one after the
	// other, or fetches a mailbox.
	IMAP
)

// What the household of package lab is made of: the same sizes.
const (
	webHosts     = 6
	webPerHost   = 6
	webObjects   = 80
	webHTML      = 50 * unit.KB
	webMedian    = 9000 // bytes of an object
	webSigma     = 1.3  // of the logarithm
	webMost      = 400_000
	webReading   = 5 * time.Second
	imapEvery    = 10 * time.Second
	imapSteps    = 5
	imapAnswer   = 3 * unit.KB
	mailMedian   = 6000
	mailSigma    = 1.4
	mailMost     = 2_000_000
	mailLeast    = 700
	requestSize  = 400 // bytes of payload
	nameAndOpen  = 2   // round trips before the first request to a host
	openAlone    = 1
	tlsHandshake = 1
)

// Film chooses the segments of a film.
type Film interface {
	// Ask returns the size of the segment that is asked for now.
	Ask(now unit.Instant) unit.Size
	// Took is called when the segment has arrived, and returns how long to wait
	// before the next.
	Took(now unit.Instant, took time.Duration) time.Duration
}

// AppParams describe an activity.
type AppParams struct {
	Activity Activity
	Host     int
	Control  Control // of the servers
	Start    unit.Instant
	Stop     unit.Instant // no further requests after it; 0: never
	ExtraRTT time.Duration
	Objects  int           // Web: of a page, beside its HTML; 0: 80
	Think    time.Duration // Web: between a page and the next; 0: 5 s in the mean, at random
	TLS      bool          // Web: one round trip more to open a connection
	Film     Film          // Video: needed
	Messages int           // IMAP: in the mailbox that is fetched once; 0: looking for mail
}

// App is an activity under way.
type App struct {
	params   AppParams
	index    uint32
	net      *Network
	pairs    []*pair
	waiting  [webHosts][]unit.Size // Web: objects that are still to be asked for
	html     bool                  // Web: the HTML has come
	pending  int                   // answers that are missing of the page, segment or mail
	steps    int                   // IMAP: exchanges to come
	mailbox  unit.Size             // IMAP: what is fetched
	asked    unit.Instant          // when the page, segment or mail was
	mailFrom int64                 // IMAP: segments before it
	done     []Fetch
	conns    []*Conn // all that carried answers
}

// Fetch is one page, segment or look for mail that is complete, or a mailbox.
type Fetch struct {
	Asked unit.Instant
	Took  time.Duration
}

// pair is a connection that is used both ways.
type pair struct {
	app      *App
	host     int // Web
	up, down *Conn
	opening  int   // round trips that are still to be made
	want     int64 // segments that will have arrived when the answer is complete
	size     unit.Size
	asked    int64 // requests so far
}

// AddApp adds an activity.
func (n *Network) AddApp(p AppParams) (*App, error) {
	switch {
	case p.Start < n.now:
		return nil, errors.New("sim: an activity starts in the past")
	case p.Activity > IMAP:
		return nil, errors.New("sim: there is no such activity")
	case p.Activity == Video && p.Film == nil:
		return nil, errors.New("sim: there is no film to watch")
	case p.Objects < 0 || p.Think < 0 || p.Messages < 0:
		return nil, errors.New("sim: an activity's objects, think time or messages are negative")
	}
	if p.Objects == 0 {
		p.Objects = webObjects
	}
	if _, err := n.wiresFor(p.ExtraRTT); err != nil {
		return nil, err
	}
	a := &App{params: p, index: uint32(len(n.apps)), net: n}
	for range p.Messages {
		size := mailMedian * math.Exp(mailSigma*n.random.NormFloat64())
		a.mailbox += unit.Size(min(max(size, mailLeast), mailMost))
	}
	if p.Activity != Web {
		if _, err := a.connect(0, p.Start); err != nil {
			return nil, err
		}
	}
	n.apps = append(n.apps, a)
	n.timers.push(p.Start, a.index, taskApp)
	return a, nil
}

// connect adds a connection of the activity.
func (a *App) connect(host int, at unit.Instant) (k *pair, err error) {
	k = &pair{app: a, host: host, opening: openAlone}
	p := ConnParams{Host: a.params.Host, Control: a.params.Control, Start: at, ExtraRTT: a.params.ExtraRTT, OnDemand: true, FlowKey: a.net.hash()}
	up, down := p, p
	up.Direction, up.Payload, up.Arrived = Up, requestSize, k.requested
	down.Direction, down.QuickAcks, down.Arrived = Down, 16, k.answered
	if k.up, err = a.net.AddConn(up); err == nil {
		k.down, err = a.net.AddConn(down)
	}
	a.pairs, a.conns = append(a.pairs, k), append(a.conns, k.down)
	return k, err
}

// next asks for the next page, segment or mail.
func (a *App) next(n *Network) {
	if a.params.Stop > 0 && n.now >= a.params.Stop {
		return
	}
	a.asked = n.now
	switch a.params.Activity {
	case Web:
		a.pairs, a.html = a.pairs[:0], false
		a.open(0, webHTML, nameAndOpen)
	case Video:
		a.pending++
		a.pairs[0].ask(a.params.Film.Ask(n.now))
	case IMAP:
		a.steps = imapSteps - 1
		a.pending++
		a.pairs[0].ask(imapAnswer)
	}
}

// open opens a connection of a page and asks for something on it.
func (a *App) open(host int, size unit.Size, opening int) {
	k, err := a.connect(host, a.net.now)
	if err != nil {
		panic("sim: a page's connection: " + err.Error()) // the first one was possible
	}
	k.opening = opening
	if a.params.TLS {
		k.opening += tlsHandshake
	}
	a.pending++
	k.ask(size)
}

// objects asks for a page's objects, now that its HTML says which.
func (a *App) objects() {
	a.html = true
	for range a.params.Objects {
		size := webMedian * math.Exp(webSigma*a.net.random.NormFloat64())
		host := a.net.random.IntN(webHosts)
		a.waiting[host] = append(a.waiting[host], unit.Size(min(1+size, webMost)))
	}
	for host := range a.waiting {
		for c := 0; c < webPerHost && len(a.waiting[host]) > 0; c++ {
			if host == 0 && c == 0 { // the connection of the HTML
				a.pending++
				a.pairs[0].ask(a.object(0))
				continue
			}
			opening := openAlone
			if host > 0 && c == 0 {
				opening = nameAndOpen
			}
			a.open(host, a.object(host), opening)
		}
	}
}

// object takes the next object of a host.
func (a *App) object(host int) unit.Size {
	w := a.waiting[host]
	size := w[0]
	a.waiting[host] = w[1:]
	return size
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
	case a.params.Activity == Web && len(a.waiting[k.host]) > 0:
		k.ask(a.object(k.host))
		return
	case a.steps > 0:
		a.steps--
		if a.steps > 0 || a.mailbox == 0 {
			k.ask(imapAnswer)
		} else {
			a.mailFrom = segments
			k.ask(a.mailbox)
		}
		return
	}
	a.pending--
	if a.pending > 0 {
		return
	}
	if a.params.Activity == Web && !a.html {
		if a.objects(); a.pending > 0 {
			return
		}
	}
	a.complete(now)
}

// complete files what is complete, and sets when the next is asked for.
func (a *App) complete(now unit.Instant) {
	took := now.Sub(a.asked)
	a.done = append(a.done, Fetch{Asked: a.asked, Took: took})
	next := now
	switch a.params.Activity {
	case Web:
		for _, k := range a.pairs {
			k.up.Stop()
			k.down.Stop()
		}
		next = now.Add(a.params.Think)
		if a.params.Think == 0 {
			next = now.Add(time.Duration(a.net.random.ExpFloat64() * float64(webReading)))
		}
	case Video:
		next = now.Add(a.params.Film.Took(now, took))
	case IMAP:
		if a.mailbox > 0 {
			return
		}
		next = max(now, a.asked.Add(imapEvery))
	}
	a.net.timers.push(next, a.index, taskApp)
}

// Fetches returns what is complete, in order. The slice is the app's own.
func (a *App) Fetches() []Fetch { return a.done }

// UnderWay returns since when something has been asked for and not come; false
// if nothing is.
func (a *App) UnderWay() (since unit.Instant, ok bool) { return a.asked, a.pending > 0 }

// Mailbox returns how many bytes of the mailbox have arrived, and of how many.
func (a *App) Mailbox() (arrived, all unit.Size) {
	if a.mailbox == 0 || a.mailFrom == 0 {
		return 0, a.mailbox
	}
	segments := a.pairs[0].down.Stats().Delivered - a.mailFrom
	return min(unit.Size(segments)*fullPayload, a.mailbox), a.mailbox
}

// Conns returns the connections that carry answers to the home.
// The slice is the app's own.
func (a *App) Conns() []*Conn { return a.conns }
