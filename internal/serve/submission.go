package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"unbloat/guard"
	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/probe"
	"unbloat/internal/measure/verdict"
	"unbloat/unit"
)

// SubmissionSchema names the JSON layout of a Submission.
const SubmissionSchema = "unbloat.raw/1"

// A Submission is what the page measured, before anything is counted. Its times
// are whole µs of the browser's clock since the test began, except ServerUs,
// which are of the server's.
type Submission struct {
	Schema     string     `json:"schema"`
	IntervalUs int64      `json:"interval_us"` // between probes
	TickUs     int64      `json:"tick_us"`     // how coarse the browser's clock is
	HiddenUs   int64      `json:"hidden_us"`   // how long the tab was not in front
	Protocol   string     `json:"protocol"`    // of the loads: "http/1.1", "h2", …; "" if the browser does not tell
	Transport  string     `json:"transport"`   // of the probes: OverWebSocket or OverWebTransport
	Phases     []RawPhase `json:"phases"`      // idle first
}

// What the probes of a Submission travelled over.
const (
	OverWebSocket    = "websocket"    // TCP
	OverWebTransport = "webtransport" // QUIC datagrams
)

// A RawPhase is one phase of a Submission. The columns of a probe are of equal
// length, ordered by SentUs.
type RawPhase struct {
	Name     string  `json:"name"`
	StartUs  int64   `json:"start_us"`
	EndUs    int64   `json:"end_us"`
	Flows    Flows   `json:"flows"`
	Broken   int     `json:"broken"` // flows that ended before their time
	Probes   Probes  `json:"probes"`
	Skips    []Skip  `json:"skips"` // probes that were never sent
	BinUs    int64   `json:"bin_us"`
	DownByte []int64 `json:"down_bytes"` // that all flows brought, per bin from StartUs on
	UpByte   []int64 `json:"up_bytes"`   // the same, as the server counted them
}

// Flows is the number of loads in each direction.
type Flows struct {
	Down int `json:"down"`
	Up   int `json:"up"`
}

// Probes holds one column for each property of a probe.
type Probes struct {
	DueUs      []int64 `json:"due_us"`      // when it was to leave
	SentUs     []int64 `json:"sent_us"`     // when it left
	ReceivedUs []int64 `json:"received_us"` // when its answer came; -1: none did
	ServerUs   []int64 `json:"server_us"`   // when the server received it; 0 with no answer
	HeldUs     []int64 `json:"held_us"`     // how long the server kept it
}

// A Skip is probes that were not sent because the time for the next one
// had come already.
type Skip struct {
	AtUs   int64 `json:"at_us"`
	Probes int   `json:"probes"`
	LateUs int64 `json:"late_us"` // how late the first of them was
}

// Bounds of what a Submission may hold, far above what the page sends.
const (
	mostUs     = int64(time.Hour / time.Microsecond)
	mostProbes = 20_000 // of a phase
	mostSkips  = 5_000
	mostBins   = 5_000
	mostFlows  = 32
	mostBytes  = int64(1) << 40 // of a bin
	leastBinUs = 10_000
	mostBinUs  = 1_000_000
	leastPhase = int64(500_000) // µs
)

// Decode reads one Submission, strictly: no unknown field, nothing after it, no
// figure that a test of this page cannot have. It reads at most limit bytes.
func DecodeSubmission(r io.Reader, limit unit.Size) (*Submission, error) {
	text, err := guard.Limit{Size: limit}.Read(r)
	if err != nil {
		return nil, fmt.Errorf("read the result: %w", err)
	}
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.DisallowUnknownFields()
	var s Submission
	if err := d.Decode(&s); err != nil {
		return nil, fmt.Errorf("read the result: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("read the result: something follows its JSON")
	}
	if err := s.check(); err != nil {
		return nil, fmt.Errorf("check the result: %w", err)
	}
	return &s, nil
}

func (s *Submission) check() error {
	order := verdict.PhaseNames()
	switch {
	case s.Schema != SubmissionSchema:
		return fmt.Errorf("schema is %.40q, not %q", s.Schema, SubmissionSchema)
	case !between(s.IntervalUs, 1_000, 1_000_000):
		return errors.New("interval_us is not from 1 ms to 1 s")
	case !between(s.TickUs, 0, 1_000_000), !between(s.HiddenUs, 0, mostUs):
		return errors.New("tick_us or hidden_us is out of range")
	case len(s.Protocol) > 16 || strings.ContainsFunc(s.Protocol, func(r rune) bool { return r <= ' ' || r > '~' }):
		return errors.New("protocol is no name of a protocol")
	case s.Transport != OverWebSocket && s.Transport != OverWebTransport:
		return fmt.Errorf("transport is neither %s nor %s", OverWebSocket, OverWebTransport)
	case len(s.Phases) == 0 || s.Phases[0].Name != verdict.PhaseIdle:
		return errors.New("the first phase is not idle")
	}
	next, after := 0, int64(0)
	for i := range s.Phases {
		p := &s.Phases[i]
		at := slices.Index(order, p.Name)
		if at < next {
			return fmt.Errorf("phase %.20q is unknown, twice there or out of order", p.Name)
		}
		next = at + 1
		if p.StartUs < after {
			return fmt.Errorf("phase %s begins before the one before it ends", p.Name)
		}
		after = p.EndUs
		if err := p.check(); err != nil {
			return fmt.Errorf("phase %s: %w", p.Name, err)
		}
	}
	return nil
}

func between(v, least, most int64) bool { return least <= v && v <= most }

func (p *RawPhase) check() error {
	wantDown, wantUp := verdict.Loads(p.Name)
	switch {
	case !between(p.StartUs, 0, mostUs), !between(p.EndUs, p.StartUs+leastPhase, mostUs):
		return errors.New("start_us or end_us is out of range")
	case !between(int64(p.Flows.Down), 0, mostFlows), !between(int64(p.Flows.Up), 0, mostFlows),
		p.Flows.Down > 0 != wantDown, p.Flows.Up > 0 != wantUp:
		return errors.New("flows do not fit the phase")
	case !between(int64(p.Broken), 0, int64(p.Flows.Down+p.Flows.Up)):
		return errors.New("broken is out of range")
	case !between(p.BinUs, leastBinUs, mostBinUs), len(p.DownByte) > mostBins, len(p.UpByte) > mostBins:
		return errors.New("bin_us is out of range, or there are too many bins")
	case !wantDown && len(p.DownByte) > 0, !wantUp && len(p.UpByte) > 0:
		return errors.New("bytes in a direction that was not loaded")
	}
	for _, n := range slices.Concat(p.DownByte, p.UpByte) {
		if !between(n, 0, mostBytes) {
			return errors.New("a bin's bytes are out of range")
		}
	}
	if len(p.Skips) > mostSkips {
		return errors.New("too many skips")
	}
	for _, k := range p.Skips {
		if !between(k.AtUs, 0, mostUs) || !between(int64(k.Probes), 1, mostProbes) || !between(k.LateUs, 0, mostUs) {
			return errors.New("a skip is out of range")
		}
	}
	return p.Probes.check(p.StartUs, p.EndUs)
}

func (c *Probes) check(start, end int64) error {
	n := len(c.SentUs)
	if n > mostProbes || len(c.DueUs) != n || len(c.ReceivedUs) != n || len(c.ServerUs) != n || len(c.HeldUs) != n {
		return errors.New("the columns of probes are not of equal length, or too long")
	}
	for i := range n {
		sent, got := c.SentUs[i], c.ReceivedUs[i]
		switch {
		case !between(sent, start, end-1), i > 0 && sent < c.SentUs[i-1]:
			return fmt.Errorf("probe %d was not sent in the phase, or out of order", i)
		case !between(c.DueUs[i], 0, sent):
			return fmt.Errorf("probe %d left before it was due", i)
		case got != -1 && !between(got, sent, mostUs), !between(c.ServerUs[i], 0, mostUs):
			return fmt.Errorf("probe %d was answered at an impossible time", i)
		case !between(c.HeldUs[i], 0, max(got-sent, 0)):
			return fmt.Errorf("probe %d was kept longer than it was away", i)
		}
	}
	return nil
}

// raw returns the phase as package verdict takes it. Probes count as punctual;
// judge looks at their lateness itself.
func (p *RawPhase) raw(s *Submission) verdict.Raw {
	us := func(v int64) unit.Instant { return unit.Instant(v) * unit.Instant(time.Microsecond) }
	from, to := p.counted()
	raw := verdict.Raw{
		Name: p.Name, Start: us(p.StartUs), End: us(p.EndUs), From: us(from), To: us(to),
		Interval: time.Duration(s.IntervalUs) * time.Microsecond,
		Greedy:   p.Flows.Down+p.Flows.Up > 0,
		Down:     series(p.Flows.Down, p, p.DownByte),
		Up:       series(p.Flows.Up, p, p.UpByte),
	}
	for range p.Broken {
		raw.Broken = append(raw.Broken, "the browser lost the connection")
	}
	c := &p.Probes
	for i := range c.SentUs {
		x := probe.Sample{Seq: uint32(i), Scheduled: us(c.SentUs[i]), Sent: us(c.SentUs[i])}
		if c.ReceivedUs[i] >= 0 {
			x.Fate = probe.Answered
			x.Received = us(c.ReceivedUs[i])
			x.ServerReceived = us(c.ServerUs[i] + 1) // zero would mean that it is not known
			x.ServerSent = us(c.ServerUs[i] + 1 + c.HeldUs[i])
		}
		raw.Samples = append(raw.Samples, x)
	}
	return raw
}

// series files the bytes of all flows under the first one: the browser and the
// server tell their sum only.
func series(flows int, p *RawPhase, bytes []int64) []verdict.Series {
	out := make([]verdict.Series, flows)
	for i := range out {
		out[i] = verdict.Series{Start: unit.Instant(p.StartUs) * unit.Instant(time.Microsecond), Bin: time.Duration(p.BinUs) * time.Microsecond}
	}
	if flows > 0 {
		out[0].Bytes = bytes
	}
	return out
}

// counted returns what counts of the phase.
func (p *RawPhase) counted() (from, to int64) {
	if p.Name == verdict.PhaseIdle {
		return p.StartUs, p.EndUs
	}
	head, tail := phases.Edges(time.Duration(p.EndUs-p.StartUs) * time.Microsecond)
	return p.StartUs + head.Microseconds(), p.EndUs - tail.Microseconds()
}
