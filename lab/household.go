package lab

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"time"

	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/verdict"
	"unbloat/lab/household"
	"unbloat/lab/scenario"
	"unbloat/unit"
)

// Lengths of a case's phases, where the scenario does not say.
const (
	defaultIdle = 5 * time.Second
	// loadedHead is how much of a loaded phase is not counted, at most: the
	// deepest queues take seconds to fill.
	loadedHead = 10 * time.Second
	loadedTail = 250 * time.Millisecond
)

// Household is the process in home1 that measures one case: the phases of
// `unbloat test`, or, where the scenario brings loads, idle and loaded. It
// writes a CaseResult as JSON. Of the guest's task it takes the scenario, the case
// and the router.
func Household(ctx context.Context, g Guest, out io.Writer) error {
	s, err := g.Scenario.Of(g.Case)
	if err != nil {
		return err
	}
	c, err := phases.Dial(ctx, Server(), phases.Options{
		Agent: "lab", Probe: phases.ProbeSpec{Interval: s.Probe.Interval, Size: unit.Size(s.Probe.Bytes)},
	})
	if err != nil {
		return err
	}
	defer c.Close()
	h := &homeProcess{client: c, scenario: s, router: g.Router}
	r := CaseResult{Name: g.Case, Loads: []LoadResult{}}
	if len(s.Loads) == 0 {
		r.Test, err = h.phases(ctx, g.Case)
	} else {
		err = h.loaded(ctx, &r)
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(r)
}

// homeProcess measures from home1.
type homeProcess struct {
	client   *phases.Client
	scenario *scenario.Scenario
	router   *Router // a router's own image; nil: the lab's
}

// Phases returns the phases in which a scenario's line is measured that brings
// no loads of its own. The first is idle, for every scenario.
func Phases(s *scenario.Scenario) []phases.PhaseSpec {
	down, up := FlowsOf(s)
	return phases.Phases(cmp.Or(s.Test.Idle, defaultIdle), cmp.Or(s.Test.Seconds, phases.DefaultLoad), down, up)
}

func (h *homeProcess) phases(ctx context.Context, label string) (*verdict.Test, error) {
	var raws []phases.RawPhase
	for _, spec := range Phases(h.scenario) {
		raw, err := h.client.Phase(ctx, spec)
		if err != nil {
			return nil, err
		}
		raws = append(raws, *raw)
	}
	return h.client.Judge(label, raws), nil
}

// FlowsOf returns with how many flows each way a scenario's line is measured
// and tuned: what its file says, else what its loads do, else the default.
func FlowsOf(s *scenario.Scenario) (down, up int) {
	down, up = s.Test.FlowsDown, s.Test.FlowsUp
	for _, l := range s.Loads {
		switch {
		case l.Kind == scenario.Download && s.Test.FlowsDown == 0:
			down += l.Flows
		case l.Kind == scenario.Upload && s.Test.FlowsUp == 0:
			up += l.Flows
		}
	}
	if down == 0 {
		down = phases.DefaultFlows
	}
	if up == 0 {
		up = phases.DefaultFlows
	}
	return down, up
}

// loaded measures idle, and then while every load of the household runs.
func (h *homeProcess) loaded(ctx context.Context, r *CaseResult) error {
	idle, err := h.client.Phase(ctx, Phases(h.scenario)[0])
	if err != nil {
		return err
	}
	d := h.scenario.LoadedFor()
	head := min(d/4, loadedHead)
	if h.scenario.Test.Whole {
		head = 0
	}
	running, err := h.connect(ctx, d, head)
	defer func() {
		for _, l := range running {
			l.end()
		}
	}()
	if err != nil {
		return err
	}
	for _, l := range running {
		if err := l.start(); err != nil {
			return err
		}
	}
	line := watchLine(ctx, h.router, d, head, loadedTail)
	raw, err := h.client.Phase(ctx, phases.PhaseSpec{Name: verdict.PhaseLoaded, Duration: d, CutHead: head, CutTail: loadedTail})
	if err != nil {
		return err
	}
	crossing := <-line
	if crossing.err != nil {
		return crossing.err
	}
	r.LineDownBps, r.LineUpBps = crossing.down, crossing.up
	// What the interface counted besides the probes is the household's own.
	raw.Wire = verdict.Counted{}
	base := verdict.NewBaseline(*idle)
	for _, l := range running {
		o, err := l.outcome()
		if err != nil {
			return err
		}
		r.Loads = append(r.Loads, file(l.load, o, raw, base))
	}
	r.Test = h.client.Judge(r.Name, []phases.RawPhase{*idle, *raw})
	return nil
}

// file puts a load's outcome under the phase in which it ran.
func file(l scenario.Load, o *household.Outcome, raw *phases.RawPhase, base verdict.Baseline) LoadResult {
	r := LoadResult{Kind: l.Kind, Host: l.Host, Flows: l.Flows, GoodputBps: float64(o.Goodput), QoE: o.QoE}
	switch {
	case o.Flows != nil:
		dir := phases.Up
		if l.Kind == scenario.Download {
			dir = phases.Down
		}
		phases.AddLoad(raw, dir, *o.Flows)
		r.GoodputBps = float64(verdict.Goodput(o.Flows.Series, raw.From, raw.To))
	case o.Samples != nil:
		counted := o.Samples[:0:0]
		for _, s := range o.Samples {
			if !s.Sent.Before(raw.From) && s.Sent.Before(raw.To) {
				counted = append(counted, s)
			}
		}
		latency := verdict.EvaluateLatency(counted, base)
		r.Latency = &latency
		if l.Kind == scenario.VoIP {
			r.Voice = verdict.Call(latency)
		}
		r.GoodputBps = float64(latency.Received) * float64(household.AnswerBytes(l)) * 8 / raw.To.Sub(raw.From).Seconds()
	case o.Bodies != nil:
		r.GoodputBps = verdict.Goodput(o.Bodies, raw.From, raw.To)
		if l.Kind == scenario.QUICDownload {
			raw.Down = append(raw.Down, o.Bodies...)
		} else {
			raw.Up = append(raw.Up, o.Bodies...)
		}
	case o.Down != nil || o.Up != nil:
		moved(&r, o, raw)
		if c := o.QoE.Call; c != nil {
			r.Latency = c.Latency()
		}
	case l.Kind == scenario.UDP:
		loss := 0.0
		if o.Sent > 0 {
			loss = 1 - float64(o.Received)/float64(o.Sent)
		}
		r.Latency = &verdict.Latency{Sent: o.Sent, Received: o.Received, Loss: max(loss, 0)}
	}
	return r
}

// moved files what a load moved both ways; it is goodput of the phase too.
func moved(r *LoadResult, o *household.Outcome, raw *phases.RawPhase) {
	count := func(s *verdict.Series, flows *[]verdict.Series) float64 {
		if s == nil {
			return 0
		}
		*flows = append(*flows, *s)
		return verdict.Goodput([]verdict.Series{*s}, raw.From, raw.To)
	}
	r.GoodputDownBps, r.GoodputUpBps = count(o.Down, &raw.Down), count(o.Up, &raw.Up)
	r.GoodputBps = r.GoodputDownBps + r.GoodputUpBps
	if t := r.Torrent; t != nil {
		t.DownBps, t.UpBps = r.GoodputDownBps, r.GoodputUpBps
	}
}

// A runningLoad is the process that makes one load.
type runningLoad struct {
	load   scenario.Load
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
	stderr bytes.Buffer
	waited bool
}

// connect starts the processes of all loads, one after the other: some share
// what the first of them starts, such as the router's resolver.
func (h *homeProcess) connect(ctx context.Context, phase, head time.Duration) ([]*runningLoad, error) {
	var out []*runningLoad
	resolver, resolverAddr := NodeRouter, routerLAN4
	if h.router != nil { // it may resolve nothing; the provider does
		resolver, resolverAddr = NodeISP, ispHome4
	}
	for i, l := range h.scenario.Loads {
		task, err := json.Marshal(household.Task{Load: l, Index: i, Phase: phase, From: head, To: phase - loadedTail, Home: household.Home{
			Node: Host(l.Host), Server: Server(), ServerNode: NodeServer,
			RouterNode: resolver, RouterAddr: resolverAddr,
		}})
		if err != nil {
			return out, err
		}
		r := &runningLoad{load: l}
		r.cmd = exec.CommandContext(ctx, "ip", "netns", "exec", Host(l.Host), GuestLab, "lab-load", string(task))
		r.cmd.Stderr = &r.stderr
		if r.stdin, err = r.cmd.StdinPipe(); err != nil {
			return out, err
		}
		pipe, err := r.cmd.StdoutPipe()
		if err != nil {
			return out, err
		}
		r.stdout = bufio.NewReaderSize(pipe, 1<<16)
		if err := r.cmd.Start(); err != nil {
			return out, fmt.Errorf("start load %s: %w", l.Kind, err)
		}
		out = append(out, r)
		if line, err := r.stdout.ReadString('\n'); err != nil || line != household.Ready+"\n" {
			return out, r.failed(err)
		}
	}
	return out, nil
}

func (r *runningLoad) start() error {
	_, err := io.WriteString(r.stdin, "go\n")
	return err
}

func (r *runningLoad) outcome() (*household.Outcome, error) {
	var o household.Outcome
	err := json.NewDecoder(r.stdout).Decode(&o)
	if err != nil {
		return nil, r.failed(err)
	}
	r.waited = true
	if err := r.cmd.Wait(); err != nil {
		return nil, r.failed(err)
	}
	return &o, nil
}

func (r *runningLoad) failed(err error) error {
	r.end()
	return errors.Join(fmt.Errorf("load %s of %s failed: %s", r.load.Kind, Host(r.load.Host), bytes.TrimSpace(r.stderr.Bytes())), err)
}

// end makes sure that the process is gone.
func (r *runningLoad) end() {
	if r.waited {
		return
	}
	r.waited = true
	_ = r.cmd.Process.Kill()
	_ = r.cmd.Wait()
}
