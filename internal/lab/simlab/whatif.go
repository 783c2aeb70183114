package simlab

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"unbloat/aqm"
	"unbloat/internal/lab/scenario"
	"unbloat/internal/measure"
	"unbloat/internal/plan"
	"unbloat/internal/platform/linux"
	"unbloat/internal/reason"
	"unbloat/internal/verdict"
	"unbloat/sim"
	"unbloat/unit"
)

// Queues that a WhatIf knows, besides the plan's.
const (
	QueueNone        = "none"         // no shaper: the modem's own buffer
	QueueSparseFirst = "sparse-first" // aqm.SparseFirst; no kernel has it
)

// Queues returns what a WhatIf's Queue may be, from the plainest on.
func Queues() []string {
	return []string{QueueNone, string(plan.FIFO), string(plan.FQCoDel), string(plan.CAKE), QueueSparseFirst}
}

// A WhatIf is a question to the simulator: how would this line be, with this
// household on it, behind this queue?
type WhatIf struct {
	Line      scenario.Line
	Household Household
	Queue     string  // one of Queues()
	Share     float64 // of the line's rates that the shaper takes, above 0 and at most 1
	Seed      uint64
	// Quick asks for a first look, at a shorter time, and of a fast line at a
	// slower one with buffers that take as long to empty.
	Quick bool
}

// A Household is how many of each run at once. Downloads, uploads and peers are
// one connection each, and greedy.
type Household struct {
	Downloads int `json:"downloads"`
	Uploads   int `json:"uploads"`
	Calls     int `json:"calls"`
	Web       int `json:"web"`     // people who read pages
	Video     int `json:"video"`   // films
	Torrent   int `json:"torrent"` // peers of a swarm, as many each way, by LEDBAT
}

// A Picture answers a WhatIf: figures of the counted part of the loaded time,
// and curves of all of it. Its JSON is drawn by the page.
type Picture struct {
	Slower   float64           `json:"slower,omitempty"` // so many times slower was the line that was looked at; its rates have been raised by that
	Grade    string            `json:"grade"`
	Verdict  string            `json:"verdict"`
	Verdicts map[string]string `json:"verdicts"` // the same by language: "en", "de"
	IdleMs   float64           `json:"idle_ms"`  // p50 of the round trip before the load
	RTTMs    verdict.Quantiles `json:"rtt_ms"`   // under it
	AddedMs  verdict.Quantiles `json:"added_ms"`
	Loss     float64           `json:"loss"`          // of probes, 0–1
	MOS      float64           `json:"mos,omitempty"` // of a call during the load, 1–4.5
	DownMbps float64           `json:"down_mbps"`     // on the line, headers included
	UpMbps   float64           `json:"up_mbps"`
	Calls    *verdict.Latency  `json:"calls,omitempty"`
	PageS    float64           `json:"page_s,omitempty"` // median time that a web page took; 0: none was complete
	Pages    int               `json:"pages,omitempty"`
	FilmMbps float64           `json:"film_mbps,omitempty"` // mean quality of the chunks of film
	StalledS float64           `json:"stalled_s,omitempty"` // for which films stood still, summed
	Idle     verdict.Timeline  `json:"idle"`
	Loaded   verdict.Timeline  `json:"loaded"`
}

// Phases of a Picture. A fast line is watched for a shorter time, so that no
// question takes much longer than another.
const (
	whatIfIdle    = time.Second
	whatIfLoaded  = 20 * time.Second
	whatIfLeast   = 3 * time.Second        // and ten round trips
	whatIfPackets = 300_000                // full ones, that the line carries meanwhile
	quickLeast    = 800 * time.Millisecond // and ten round trips
	quickPackets  = 40_000
	quickRate     = 150 * unit.MbitPerSecond // both ways together, that a first look is taken at
	whatIfBin     = 100 * time.Millisecond
	whatIfSlice   = 200 // full packets that the line carries between two breaths
)

// Answer simulates a WhatIf. breathe is called many times a second, so that
// more urgent work gets the processor; it may be nil. The error is
// ctx's, if that ends first.
func (w WhatIf) Answer(ctx context.Context, breathe func()) (*Picture, error) {
	if !slices.Contains(Queues(), w.Queue) || w.Share <= 0 || w.Share > 1 || w.Line.Down <= 0 || w.Line.Up <= 0 {
		return nil, errors.New("simulate: the queue, the share or a rate is not possible")
	}
	slower := w.slow()
	s := &scenario.Scenario{Name: "what-if", Line: w.Line, Test: scenario.Test{Seconds: w.seconds()}}
	h, err := newHouse(s, linux.Name, w.Seed)
	if err != nil {
		return nil, fmt.Errorf("simulate: %w", err)
	}
	if err := w.shape(ctx, h); err != nil {
		return nil, fmt.Errorf("simulate: %w", err)
	}
	if breathe == nil {
		breathe = func() {}
	}
	m := &watch{house: h, breathe: breathe, slice: min(max(whatIfSlice*w.full(), time.Millisecond), whatIfBin)}
	idle, err := m.phase(ctx, verdict.PhaseIdle, whatIfIdle)
	if err != nil {
		return nil, fmt.Errorf("simulate: %w", err)
	}
	f, err := w.move(h, h.net.Now().Add(s.Test.Seconds))
	if err != nil {
		return nil, fmt.Errorf("simulate: %w", err)
	}
	loaded, err := m.phase(ctx, verdict.PhaseLoaded, s.Test.Seconds)
	if err != nil {
		return nil, fmt.Errorf("simulate: %w", err)
	}
	p := f.picture(h, idle, loaded)
	p.speed(slower)
	return p, nil
}

// slow makes the line of a first look slower, if it is fast, and returns how many times.
func (w *WhatIf) slow() float64 {
	times := float64(w.Line.Down+w.Line.Up) / float64(quickRate)
	if !w.Quick || times <= 1 {
		return 1
	}
	w.Line.Down, w.Line.Up = w.Line.Down.Scale(1/times), w.Line.Up.Scale(1/times)
	room := func(b unit.Size) unit.Size { return max(unit.Size(float64(b)/times), 10*fullFrame) }
	w.Line.BufferDown, w.Line.BufferUp = room(w.Line.BufferDown), room(w.Line.BufferUp)
	return times
}

// speed turns the rates of a line that was looked at slower into those of the line
// asked about. How long pages and films take there it does not know.
func (p *Picture) speed(times float64) {
	if times == 1 {
		return
	}
	p.Slower = times
	p.DownMbps *= times
	p.UpMbps *= times
	for _, series := range [][]float64{p.Loaded.DownMbps, p.Loaded.UpMbps} {
		for i := range series {
			series[i] *= times
		}
	}
	p.PageS, p.Pages, p.FilmMbps, p.StalledS = 0, 0, 0, 0
}

// seconds returns for how long the household is watched.
func (w WhatIf) seconds() time.Duration {
	packets, least := time.Duration(whatIfPackets), whatIfLeast
	if w.Quick {
		packets, least = quickPackets, quickLeast
	}
	return min(max(packets*w.full(), least+10*w.Line.RTT), whatIfLoaded).Truncate(whatIfBin)
}

// full returns what a full packet takes, as if one link carried both ways.
func (w WhatIf) full() time.Duration { return (w.Line.Down + w.Line.Up).Time(fullFrame) }

// shape puts the router into its state.
func (w WhatIf) shape(ctx context.Context, h *house) error {
	down, up := w.Line.Down.Scale(w.Share), w.Line.Up.Scale(w.Share)
	switch w.Queue {
	case QueueNone:
		return nil
	case QueueSparseFirst:
		of := func(rate unit.Rate) sim.Shaping {
			return sim.Shaping{Queue: func(drop aqm.DropFunc) (aqm.Queue, error) { return sparseFirst(rate, drop) }}
		}
		return errors.Join(h.net.Shape(sim.Up, of(up)), h.net.Shape(sim.Down, of(down)))
	}
	p, err := fix(h.scenario, h.platform, &scenario.Fix{AQM: w.Queue, Down: down, Up: up})
	if err != nil {
		return err
	}
	return h.Shape(ctx, p)
}

// sparseFirst makes a shaper of that rate with aqm.SparseFirst behind it.
func sparseFirst(rate unit.Rate, drop aqm.DropFunc) (aqm.Queue, error) {
	p := aqm.DefaultSparseFirst(aqm.Linux73, rate)
	p.StartTime.CoDel.Drop = drop
	p.StartTime.CoDel.Target = max(5*time.Millisecond, rate.Time(fullFrame)*3/2)
	inner, err := aqm.NewSparseFirst(p)
	if err != nil {
		return nil, err
	}
	return aqm.NewTokenBucket(aqm.TokenBucketParams{Bucket: aqm.HTB, Rate: rate, Burst: usualBurst}, inner)
}

// workload is a household that has moved in.
type workload struct {
	calls *load
	web   []*sim.App
	films []*film
}

// Machines of a household: its films and pages are on one, calls on another,
// what is greedy on a third, so that fairness between hosts can be seen.
const (
	screenHost = 1
	callHost   = 2
	greedyHost = 3
)

// move has the household start what it does.
func (w WhatIf) move(h *house, stop unit.Instant) (*workload, error) {
	f, now := &workload{}, h.net.Now()
	var err error
	greedy := func(d sim.Direction, n int, cc sim.Control) {
		if err == nil && n > 0 {
			_, err = h.greedy(d, n, greedyHost, string(cc), false, now, stop)
		}
	}
	greedy(sim.Down, w.Household.Downloads, sim.Cubic)
	greedy(sim.Up, w.Household.Uploads, sim.Cubic)
	greedy(sim.Down, w.Household.Torrent, sim.LEDBAT)
	greedy(sim.Up, w.Household.Torrent, sim.LEDBAT)
	if n := w.Household.Calls; n > 0 && err == nil {
		f.calls, err = h.begin(scenario.Load{Kind: scenario.VoIP, Flows: n, Host: callHost}, now, stop)
	}
	apps := func(a sim.Activity, n int) (all []*sim.App) {
		for i := 0; i < n && err == nil; i++ {
			start := now.Add(time.Duration(h.random.Int64N(int64(time.Second))))
			var app *sim.App
			p := sim.AppParams{Activity: a, Host: screenHost, Start: start, Stop: stop, TLS: true}
			if a == sim.Video {
				player := &film{began: start}
				f.films, p.Film = append(f.films, player), player
			}
			app, err = h.net.AddApp(p)
			all = append(all, app)
		}
		return all
	}
	f.web = apps(sim.Web, w.Household.Web)
	apps(sim.Video, w.Household.Video)
	return f, err
}

// watch lets time pass and counts what crosses the line.
type watch struct {
	house   *house
	breathe func()
	slice   time.Duration
}

func (m *watch) phase(ctx context.Context, name string, d time.Duration) (verdict.Raw, error) {
	h := m.house
	start := h.net.Now()
	raw := verdict.Raw{Name: name, Interval: h.interval, Start: start, End: start.Add(d), From: start, To: start.Add(d)}
	if name != verdict.PhaseIdle {
		raw.From, raw.To = start.Add(d/4), start.Add(d-whatIfBin)
	}
	var bytes [2][]int64
	before := m.sent()
	for bin := start; bin < raw.End; bin = bin.Add(whatIfBin) {
		if err := m.run(ctx, bin.Add(whatIfBin)); err != nil {
			return raw, err
		}
		now := m.sent()
		for i := range bytes {
			bytes[i] = append(bytes[i], now[i]-before[i])
		}
		before = now
	}
	for limit := raw.End.Add(grace); !h.settled(raw.End, h.net.Now()) && h.net.Now() < limit; {
		if err := m.run(ctx, h.net.Now().Add(settleStep)); err != nil {
			return raw, err
		}
	}
	raw.Samples = h.samples(h.probe, raw.Start, raw.End)
	if name != verdict.PhaseIdle {
		raw.Down = []verdict.Series{{Start: start, Bin: whatIfBin, Bytes: bytes[0]}}
		raw.Up = []verdict.Series{{Start: start, Bin: whatIfBin, Bytes: bytes[1]}}
	}
	return raw, nil
}

// run lets time pass, and breathes.
func (m *watch) run(ctx context.Context, until unit.Instant) error {
	for m.house.net.Now() < until {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		m.breathe()
		if err := m.house.run(min(m.house.net.Now().Add(m.slice), until)); err != nil {
			return err
		}
	}
	return nil
}

// sent returns the bytes that have crossed the line, down and up.
func (m *watch) sent() [2]int64 {
	net := m.house.net
	return [2]int64{int64(net.Bottleneck(sim.Down).SentBytes), int64(net.Bottleneck(sim.Up).SentBytes)}
}

// picture makes the answer of what was watched.
func (f *workload) picture(h *house, idle, loaded verdict.Raw) *Picture {
	t := h.Judge("what-if", []measure.RawPhase{idle, loaded})
	p := &Picture{
		Grade: t.Grade, Verdict: t.Verdict, Verdicts: map[string]string{}, IdleMs: t.Idle.Latency.RTTMs.P50,
		RTTMs: t.Loaded.Latency.RTTMs, AddedMs: t.Loaded.Latency.IncreaseMs, Loss: t.Loaded.Latency.Loss,
		DownMbps: t.Loaded.GoodputDownBps / 1e6, UpMbps: t.Loaded.GoodputUpBps / 1e6,
		Idle: *t.Idle.Series, Loaded: *t.Loaded.Series,
	}
	for _, l := range reason.Languages() {
		p.Verdicts[l.Tag] = t.VerdictIn(l, reason.Page)
	}
	if v := t.Loaded.Voice; v != nil {
		p.MOS = v.MOS
	}
	if f.calls != nil {
		p.Calls = h.outcome(f.calls, &loaded, verdict.NewBaseline(idle)).Latency
	}
	var took []time.Duration
	for _, a := range f.web {
		for _, page := range a.Fetches() {
			took = append(took, page.Took)
		}
	}
	if p.Pages = len(took); p.Pages > 0 {
		p.PageS = verdict.Summarise(took).P50 / 1e3
	}
	segments, sum := 0, 0.0
	for _, f := range f.films {
		f.Advance(loaded.End.Sub(f.began))
		r := f.Result()
		p.StalledS += r.StalledS
		segments += r.Segments
		sum += r.QualityBps * float64(r.Segments) / 1e6
	}
	if segments > 0 {
		p.FilmMbps = sum / float64(segments)
	}
	return p
}
