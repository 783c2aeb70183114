package simlab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"

	"unbloat/internal/measure/verdict"
	"unbloat/lab"
)

// A Line is what one run gave: a line of a sweep's file.
type SweepLine struct {
	Index  int               `json:"index"`
	Case   string            `json:"case"`
	Seed   uint64            `json:"seed"`
	Params map[string]string `json:"params"`
	Error  string            `json:"error,omitempty"` // why there are no figures
	Valid  bool              `json:"valid"`
	Grade  string            `json:"grade"`
	Phases []Phase           `json:"phases,omitempty"`
}

// Phase is a phase's figures, and for the loaded phase those of its calls.
type Phase struct {
	Name          string  `json:"name"`
	DownBps       float64 `json:"goodput_down_bps"`
	UpBps         float64 `json:"goodput_up_bps"`
	P50Ms         float64 `json:"rtt_p50_ms"`
	P95Ms         float64 `json:"rtt_p95_ms"`
	P99Ms         float64 `json:"rtt_p99_ms"`
	MaxMs         float64 `json:"rtt_max_ms"`
	IncreaseP95Ms float64 `json:"increase_p95_ms"`
	Loss          float64 `json:"loss"`
	Retransmits   int64   `json:"retransmits"`
	CallP99Ms     float64 `json:"call_p99_ms,omitempty"`
	CallLoss      float64 `json:"call_loss,omitempty"`
}

// Do runs the runs of a shard that come after the first skip, on so many cores,
// and writes a line for each in the order of their indices. done is called after
// each with how many of the shard's runs are complete; it may be nil.
//
// What it wrote when it returns an error is always whole lines without a gap,
// so that a sweep goes on where it stopped.
func Sweep(ctx context.Context, s *SweepSpec, shard Shard, skip, cores int, out io.Writer, done func(complete, of int)) error {
	all := shard.indices(s.Runs)
	if skip > len(all) {
		return fmt.Errorf("%d runs are complete, but the shard has %d", skip, len(all))
	}
	todo := all[skip:]
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	type result struct {
		text []byte
		err  error
	}
	// A worker is at most this far ahead of what is written.
	slots := make(chan chan result, max(2*cores, 1))
	var workers sync.WaitGroup
	defer workers.Wait()
	busy := make(chan struct{}, max(cores, 1))
	workers.Go(func() {
		defer close(slots)
		for _, i := range todo {
			slot := make(chan result, 1)
			select {
			case busy <- struct{}{}:
			case <-ctx.Done():
				return
			}
			workers.Go(func() {
				text, err := s.line(ctx, i)
				slot <- result{text, err}
				<-busy
			})
			select {
			case slots <- slot:
			case <-ctx.Done():
				return
			}
		}
	})
	complete := skip
	for slot := range slots {
		r := <-slot
		if r.err == nil {
			_, r.err = out.Write(r.text)
		}
		if r.err != nil {
			cancel(r.err)
			return r.err
		}
		complete++
		if done != nil {
			done(complete, len(all))
		}
	}
	return context.Cause(ctx)
}

// line simulates a run and returns its line. A run that cannot be simulated
// says so in its line; only a cancelled one is an error.
func (s *SweepSpec) line(ctx context.Context, index int) ([]byte, error) {
	run := s.Run(index)
	l := SweepLine{Index: run.Index, Case: run.Case, Seed: run.Seed, Params: run.Params}
	sc, o, err := s.scenarioOf(run)
	if err == nil {
		var r *lab.Result
		if r, err = Run(ctx, sc, o); err == nil {
			l.fill(r.Cases[0])
		}
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		l.Error = err.Error()
	}
	text, err := json.Marshal(l)
	return append(text, '\n'), err
}

func (l *SweepLine) fill(c lab.CaseResult) {
	l.Valid, l.Grade = c.Test.Valid, c.Test.Grade
	for _, p := range c.Test.Phases() {
		f := Phase{
			Name: p.Name, DownBps: p.GoodputDownBps, UpBps: p.GoodputUpBps,
			P50Ms: p.Latency.RTTMs.P50, P95Ms: p.Latency.RTTMs.P95, P99Ms: p.Latency.RTTMs.P99, MaxMs: p.Latency.RTTMs.Max,
			IncreaseP95Ms: p.Latency.IncreaseMs.P95, Loss: p.Latency.Loss, Retransmits: p.Retransmits,
		}
		if p.Name == verdict.PhaseLoaded {
			for _, x := range c.Loads {
				if x.Kind == "voip" && x.Latency != nil {
					f.CallP99Ms = math.Max(f.CallP99Ms, x.Latency.RTTMs.P99)
					f.CallLoss = math.Max(f.CallLoss, x.Latency.Loss)
				}
			}
		}
		l.Phases = append(l.Phases, f)
	}
}

// ErrOther is wrapped when a file belongs to another sweep.
var ErrOtherSweep = errors.New("the file belongs to another sweep")
