package webtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"unbloat/unit"
)

// A Simulator answers the questions of the page of sliders. Simulating takes
// seconds of a processor; the page asks one question at a time.
type Simulator interface {
	// Queues returns what a Question's Queue may be, from the plainest on.
	Queues() []string
	// Answer simulates a question. What it returns becomes JSON, which the page
	// draws (its Picture in web/src/wire.gen.ts). It calls breathe many times a second, so that
	// others get the processor. The error is ctx's, if that ends first.
	Answer(ctx context.Context, q Question, breathe func()) (picture any, err error)
}

// A Question is one position of all sliders: how would this line be, with this
// household on it, behind this queue?
type Question struct {
	Down, Up             unit.Rate
	RTT                  time.Duration
	BufferDown, BufferUp unit.Size // of the modem and the provider
	Household            Household
	Queue                string  // one of the simulator's Queues
	Share                float64 // of the line's rates that the shaper takes, above 0 and at most 1
	Seed                 uint64
	Quick                bool // a first look, at less cost
}

// A Household is how many of each run at once.
type Household struct {
	Downloads, Uploads, Calls int
	Web, Video                int // people who read pages, films
	Torrent                   int // peers of a swarm
}

// noQueue is the queue of a line that nothing shapes.
const noQueue = "none"

// What the simulator may take of this machine for the page of sliders.
const (
	modelTime  = 3 * time.Second // of the clock, for one question
	modelWait  = 2 * time.Second // for the one before it
	modelTurn  = time.Millisecond / 2
	modelPause = time.Millisecond / 4 // between two turns, at least
	modelKept  = 256                  // answers
	modelBurst = 120                  // questions of one address at once, first looks among them …
	modelEvery = time.Second / 2      // … and then two each second
	modelSeed  = 1
)

// A model answers what-if questions from the simulator, one at a time, and
// remembers the newest answers.
type model struct {
	simulator Simulator

	turn   chan struct{} // held while simulating
	quotas *quota

	mu    sync.Mutex
	kept  map[string][]byte
	order []string // the newest last
}

func newModel(s Simulator) *model {
	return &model{simulator: s, turn: make(chan struct{}, 1), quotas: newQuota(modelBurst, modelEvery), kept: map[string][]byte{}}
}

// Reasons why a question is not answered.
var (
	errTooMany = errors.New("you have asked for many pictures; please wait a moment")
	errTooSlow = errors.New("this server is too busy to simulate that; please try again in a moment")
)

// A knob is one number of a question.
type knob struct {
	name        string
	least, most float64
	whole       bool
	set         func(*Question, float64)
}

// knobs are all numbers of a question, in the order of its canonical form.
func knobs() []knob {
	rate := func(mbit float64) unit.Rate { return unit.Rate(math.Round(mbit * 1e6)) }
	ms := func(v float64) time.Duration { return time.Duration(v * float64(time.Millisecond)) }
	const people = 16
	return []knob{
		{"down", 0.1, 1000, false, func(q *Question, v float64) { q.Down = rate(v) }}, // Mbit/s
		{"up", 0.1, 1000, false, func(q *Question, v float64) { q.Up = rate(v) }},
		{"rtt", 1, 600, false, func(q *Question, v float64) { q.RTT = ms(v) }}, // ms
		// How long a full buffer of the modem takes to empty, ms. It holds at
		// least ten full packets.
		{"buffer_down", 5, 4000, false, func(q *Question, v float64) { q.BufferDown = buffer(q.Down, ms(v)) }},
		{"buffer_up", 5, 4000, false, func(q *Question, v float64) { q.BufferUp = buffer(q.Up, ms(v)) }},
		{"downloads", 0, people, true, func(q *Question, v float64) { q.Household.Downloads = int(v) }},
		{"uploads", 0, people, true, func(q *Question, v float64) { q.Household.Uploads = int(v) }},
		{"calls", 0, people, true, func(q *Question, v float64) { q.Household.Calls = int(v) }},
		{"web", 0, people, true, func(q *Question, v float64) { q.Household.Web = int(v) }},
		{"video", 0, people, true, func(q *Question, v float64) { q.Household.Video = int(v) }},
		{"torrent", 0, 60, true, func(q *Question, v float64) { q.Household.Torrent = int(v) }},
		{"share", 10, 100, false, func(q *Question, v float64) { q.Share = v / 100 }}, // % of the line's rates
	}
}

func buffer(r unit.Rate, d time.Duration) unit.Size { return max(r.Bytes(d), 10*1514) }

// question reads a question from a query, strictly, and returns it with its
// canonical form.
func question(q url.Values, queues []string) (w Question, canonical string, err error) {
	w.Seed, w.Queue = modelSeed, q.Get("queue")
	if !slices.Contains(queues, w.Queue) {
		return w, "", fmt.Errorf("queue is none of %q", queues)
	}
	out := url.Values{"queue": {w.Queue}}
	for _, k := range knobs() {
		v, err := strconv.ParseFloat(q.Get(k.name), 64)
		if err != nil || !(v >= k.least && v <= k.most) || k.whole && v != math.Trunc(v) {
			return w, "", fmt.Errorf("%s must be a number from %v to %v", k.name, k.least, k.most)
		}
		v = math.Round(v*100) / 100
		k.set(&w, v)
		out.Set(k.name, strconv.FormatFloat(v, 'f', -1, 64))
	}
	switch q.Get("quick") {
	case "":
	case "1":
		w.Quick = true
		out.Set("quick", "1")
	default:
		return w, "", errors.New("quick must be 1, or not be there")
	}
	if w.Queue == noQueue { // then the share means nothing
		w.Share = 1
		out.Del("share")
	}
	return w, out.Encode(), nil
}

// simulate answers GET /api/model with the simulator's picture.
func (h *Handler) simulate(w http.ResponseWriter, r *http.Request) {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		fail(w, http.StatusForbidden, "this is for the server's own page")
		return
	}
	asked, canonical, err := question(r.URL.Query(), h.model.simulator.Queues())
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	text, err := h.model.answer(r.Context(), clientOf(r), h.now(), canonical, asked)
	switch {
	case errors.Is(err, errTooMany):
		w.Header().Set("Retry-After", "2")
		fail(w, http.StatusTooManyRequests, err.Error())
	case errors.Is(err, errTooSlow), r.Context().Err() != nil:
		w.Header().Set("Retry-After", "2")
		fail(w, http.StatusServiceUnavailable, errTooSlow.Error())
	case err != nil:
		h.log.Error("simulate", "question", canonical, "err", err)
		fail(w, http.StatusInternalServerError, "the simulator failed")
	default:
		w.Header().Set("Cache-Control", "private, max-age=600")
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(text) // the visitor may be gone
	}
}

// answer returns the picture as JSON.
func (m *model) answer(ctx context.Context, from netip.Addr, now time.Time, key string, asked Question) ([]byte, error) {
	if text := m.recall(key); text != nil {
		return text, nil
	}
	if !m.quotas.take(from, now) {
		return nil, errTooMany
	}
	wait, cancel := context.WithTimeout(ctx, modelWait)
	defer cancel()
	select {
	case m.turn <- struct{}{}:
		defer func() { <-m.turn }()
	case <-wait.Done():
		return nil, errTooSlow
	}
	if text := m.recall(key); text != nil { // the one before asked the same
		return text, nil
	}
	run, cancel := context.WithTimeout(ctx, modelTime)
	defer cancel()
	p, err := m.simulator.Answer(run, asked, breather())
	if run.Err() != nil {
		return nil, errTooSlow
	}
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	m.remember(key, text)
	return text, nil
}

// breather returns a function that gives up the processor once a
// millisecond: a server with one must answer probes meanwhile.
func breather() func() {
	last := time.Now()
	return func() {
		if time.Since(last) >= modelTurn {
			time.Sleep(modelPause)
			last = time.Now()
		}
	}
}

func (m *model) recall(key string) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.kept[key]
}

func (m *model) remember(key string, text []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, there := m.kept[key]; there {
		return
	}
	m.kept[key] = text
	m.order = append(m.order, key)
	if len(m.order) > modelKept {
		delete(m.kept, m.order[0])
		m.order = m.order[1:]
	}
}
