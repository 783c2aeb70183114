// Package tell tells people of incidents where they are: by ntfy, a webhook, mail or MQTT. A
// receiver that hangs or refuses slows nothing: each has a bounded queue of its own, and
// what does not fit is dropped and counted.
package tell

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"unbloat/internal/keep/config"
	"unbloat/internal/keep/incident"
	"unbloat/reason"
)

// Bounds of a receiver.
const (
	mostWaiting = 32               // messages
	mostAge     = time.Hour        // of a message that can't be sent
	sendTime    = 10 * time.Second // for one try
	firstAgain  = 5 * time.Second  // until the next; then twice as long
	mostAgain   = 5 * time.Minute
)

// Options of a Teller.
type Options struct {
	Getenv func(string) string
	Now    func() time.Time
	Log    func(format string, args ...any)
	Send   func(ctx context.Context, to config.Notify, secret string, m Message) error
	// MQTT opens a broker, until ctx ends.
	MQTT  func(ctx context.Context, to config.Notify, secret func() (string, error), h House, log func(string, ...any)) (func(context.Context, Message) error, error)
	House House
}

// A Teller tells receivers.
type Teller struct {
	o   Options
	all []*receiver
}

// A Count is what became of a receiver's messages. It has nothing that is secret.
type Count struct {
	To      string `json:"to"`
	Host    string `json:"host"`
	Sent    int    `json:"sent"`
	Dropped int    `json:"dropped"`           // they did not fit, were too old, or too many within an hour
	Failing string `json:"failing,omitempty"` // why the last could not be sent
}

// New returns a Teller; Run starts it.
func New(to []config.Notify, o Options) *Teller {
	if o.Now == nil {
		o.Now = time.Now
	}
	t := &Teller{o: o}
	for _, n := range to {
		t.all = append(t.all, &receiver{gate: gate{to: n, told: map[string]bool{}}, wake: make(chan struct{}, 1)})
	}
	return t
}

// Tell has everybody told who is to hear of the newest word of an incident. It never waits.
func (t *Teller) Tell(x incident.Incident) {
	for _, r := range t.all {
		r.take(x, t.o.Now())
	}
}

// Counts returns what became of the messages.
func (t *Teller) Counts() []Count {
	var out []Count
	for _, r := range t.all {
		r.mu.Lock()
		out = append(out, Count{r.to.To, r.to.Host(), r.sent, r.dropped, r.failing})
		r.mu.Unlock()
	}
	return out
}

// Run sends until ctx ends.
func (t *Teller) Run(ctx context.Context) {
	var all sync.WaitGroup
	for _, r := range t.all {
		all.Go(func() { r.run(ctx, &t.o) })
	}
	all.Wait()
}

// A gate says which words of an incident a receiver hears: one of its begin and one of its
// end, if it is bad enough, the hour is not quiet and not full.
type gate struct {
	to   config.Notify
	told map[string]bool // by ID: true told, false held back
	hour []time.Time     // when messages of the last hour went
}

func rank(s incident.Severity) int { return slices.Index(incident.Severities(), s) }

// passes reports whether it hears this word; full says that it would, but for the hour.
func (g *gate) passes(x incident.Incident, now time.Time) (ok, full bool) {
	key := x.Router + " " + x.WAN + " " + x.ID
	was, known := g.told[key]
	if x.Over() {
		delete(g.told, key)
		if known {
			return was, false // its end belongs to its begin, whatever the hour
		}
	} else if was {
		return false, false
	}
	if rank(x.Severity) < rank(incident.Severity(g.to.MinSeverity)) {
		return false, false // it may get worse
	}
	if known && !was {
		return false, false
	}
	g.hour = slices.DeleteFunc(g.hour, func(t time.Time) bool { return now.Sub(t) >= time.Hour })
	full = len(g.hour) >= g.to.Most
	ok = !full && !quiet(g.to, now)
	if ok {
		g.hour = append(g.hour, now)
	}
	if !x.Over() {
		if len(g.told) >= 1000 { // their ends are long overdue
			clear(g.told)
		}
		g.told[key] = ok
	}
	return ok, full
}

// quiet reports whether a receiver is to be left alone at a local time.
func quiet(n config.Notify, now time.Time) bool {
	at := time.Duration(now.Hour())*time.Hour + time.Duration(now.Minute())*time.Minute
	if n.QuietFrom <= n.QuietTo {
		return at >= n.QuietFrom && at < n.QuietTo
	}
	return at >= n.QuietFrom || at < n.QuietTo
}

// A receiver is one, and what waits for it.
type receiver struct {
	gate
	wake chan struct{}

	mu      sync.Mutex
	waiting []Message
	sent    int
	dropped int
	failing string
}

// take takes in the newest word of an incident.
func (r *receiver) take(x incident.Incident, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ok, full := r.passes(x, now)
	if full {
		r.dropped++
	}
	if !ok {
		return
	}
	if len(r.waiting) >= mostWaiting {
		r.waiting = slices.Delete(r.waiting, 0, 1)
		r.dropped++
	}
	r.waiting = append(r.waiting, messageOf(x, r.to.Language, now))
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// next returns the message that waits longest; those that are too old are dropped.
func (r *receiver) next(now time.Time) (m Message, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.waiting) > 0 && now.Sub(r.waiting[0].Made) > mostAge {
		r.waiting = slices.Delete(r.waiting, 0, 1)
		r.dropped++
	}
	if len(r.waiting) == 0 {
		return m, false
	}
	return r.waiting[0], true
}

// done takes in what became of a message.
func (r *receiver) done(m Message, err error, log func(string, ...any)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	was := r.failing
	r.failing = ""
	if err == nil {
		r.sent++
		r.waiting = slices.DeleteFunc(r.waiting, func(x Message) bool { return x == m })
		return
	}
	if r.failing = err.Error(); r.failing != was && log != nil {
		log("tell %s (%s): %s; it is tried again", r.to.To, r.to.Host(), r.failing)
	}
}

func (r *receiver) run(ctx context.Context, o *Options) {
	if r.to.To == "mqtt" {
		publish, err := o.MQTT(ctx, r.to, func() (string, error) { return secretOf(r.to, o.Getenv) }, o.House, o.Log)
		of := *o
		of.Send = func(ctx context.Context, _ config.Notify, _ string, m Message) error {
			if err != nil {
				return err
			}
			return publish(ctx, m)
		}
		o = &of
	}
	again := firstAgain
	for {
		m, ok := r.next(o.Now())
		wait := mostAge
		if ok {
			err := r.try(ctx, o, m)
			if ctx.Err() != nil {
				return
			}
			if r.done(m, err, o.Log); err == nil {
				again = firstAgain
				continue
			}
			wait, again = again, min(2*again, mostAgain)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		case <-r.wake:
			if ok { // the one before it goes first, when it is due
				select {
				case <-ctx.Done():
				case <-timer.C:
				}
			}
		}
		timer.Stop()
	}
}

// try sends a message once.
func (r *receiver) try(ctx context.Context, o *Options, m Message) error {
	secret, err := secretOf(r.to, o.Getenv)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, sendTime)
	defer cancel()
	err = o.Send(ctx, r.to, secret, m)
	var at *url.Error
	if errors.As(err, &at) { // its address may be secret
		err = at.Err
	}
	if err != nil && secret != "" && strings.Contains(err.Error(), secret) {
		err = errors.New("it was refused, with an answer that has the secret")
	}
	return err
}

// mostSecret is the longest secret.
const mostSecret = 4096

// secretOf reads a receiver's secret, each time anew: it may have been changed.
func secretOf(n config.Notify, getenv func(string) string) (string, error) {
	text := ""
	switch {
	case n.SecretEnv != "":
		text = getenv(n.SecretEnv)
	case n.SecretFile != "":
		b, err := os.ReadFile(n.SecretFile)
		if err != nil {
			return "", fmt.Errorf("read its secret: %w", err)
		}
		if len(b) > mostSecret {
			return "", fmt.Errorf("read its secret: %s has more than %d bytes", n.SecretFile, mostSecret)
		}
		text = string(b)
	default:
		return "", nil
	}
	if text = strings.TrimSpace(text); text == "" {
		return "", errors.New("its secret is empty; put it where secret_file or secret_env says")
	}
	return text, nil
}

// A Message is what is sent. It is comparable.
type Message struct {
	Title, Text string
	Severity    incident.Severity
	Over        bool
	Body        string // JSON, for programs
	Line        string // its WAN, and its router before it
	Made        time.Time
}

// MessageSchema names the JSON layout of a webhook's body.
const MessageSchema = "unbloat.notify/1"

func bodyOf(x incident.Incident) string {
	b, err := json.Marshal(struct {
		Schema string `json:"schema"`
		Event  string `json:"event"`
		incident.Incident
	}{MessageSchema, map[bool]string{false: "begin", true: "end"}[x.Over()], x})
	if err != nil { // its figures are finite
		return "{}"
	}
	return string(b)
}

func messageOf(x incident.Incident, language string, now time.Time) Message {
	l := reason.Choose(language)
	name := config.WAN{Interface: x.WAN, Router: x.Router}.Name()
	m := Message{Severity: x.Severity, Over: x.Over(), Made: now}
	m.Title = fmt.Sprintf("%s: %s, %s", name, l.Name("kind "+string(x.Kind)), l.Name("severity "+string(x.Severity)))
	if x.Over() {
		m.Title = l.Say(reason.NotifyOver, "title", m.Title, "lasted", x.Lasted(now).Round(time.Second).String())
	}
	m.Text = l.Say(reason.NotifyText, "begin", x.Begin.Local().Format(time.DateTime), "part", l.Name("part "+string(x.Part)), "what", x.What.Text(l, reason.Page), "why", x.Why.Text(l, reason.Page))
	m.Body = bodyOf(x)
	m.Line = strings.TrimSpace(x.Router + " " + x.WAN)
	return m
}

// A LineState is how a line is now, for what shows it.
type LineState struct {
	Key       string  `json:"-"` // as daemon.While takes it
	Name      string  `json:"-"`
	Down      int64   `json:"down_bps"`       // carried; 0: nothing, or not known
	Up        int64   `json:"up_bps"`         //
	LimitDown int64   `json:"limit_down_bps"` // the shaper's; 0: none
	LimitUp   int64   `json:"limit_up_bps"`
	DelayMs   float64 `json:"delay_ms"` // that queues add, in the worse direction; -1: not known
	Grade     string  `json:"grade"`    // of the last ten minutes; "": too little is known
	Incident  string  `json:"incident"` // kind of what is wrong now; "none"
	Shaping   string  `json:"shaping"`  // ON or OFF
}

// A House is what a broker needs of the daemon.
type House struct {
	Lines  func() []LineState
	Switch func(ctx context.Context, key string, on bool) error
}
