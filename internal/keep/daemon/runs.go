package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"unbloat/internal/keep/config"
)

// Bounds of runs.
const (
	mostRuns      = 8                // that are remembered after their end
	mostRunEvents = 256              // of one
	mostRunWait   = 5 * time.Second  // for an event
	runKept       = time.Hour        // after its end
	runUnasked    = 30 * time.Second // that an unattended run goes on without anybody who asks
)

// runs are the long things that are done, and were.
type runs struct {
	mu    sync.Mutex
	n     int
	all   []*run // oldest first
	group sync.WaitGroup
	ended bool // none may begin
}

// A run is one of them. What others than its beginner see of it is there before it is
// among all.
type run struct {
	holder *Caller // has the turn on its WANs
	cancel context.CancelFunc
	asked  *time.Timer // ends it when nobody asks; nil: its client's end does
	news   chan struct{}

	mu sync.Mutex
	is RunStatus
}

// begin starts a run on a WAN, which is left to it until the end: a command with
// parameters, TuneParams or TestParams.
func (d *Daemon) begin(ctx context.Context, c *Caller, w *wan, method string, params any, unattended bool) (out Started, err error) {
	working, cancel := context.WithCancel(d.running)
	r := &run{holder: &Caller{d: d, does: method}, cancel: cancel, news: make(chan struct{}), is: RunStatus{By: "schedule"}}
	if c != nil {
		r.is.By = "client"
	}
	if c != nil && unattended {
		r.asked = time.AfterFunc(actionTime+runUnasked, cancel) // who starts it can't ask before it is begun
	}
	id, err := d.runs.add(r, w, method)
	if err != nil {
		r.over()
		return out, err
	}
	args, env, err := d.prepare(ctx, working, r, w, params, c != nil && !unattended)
	if err != nil {
		r.holder.leave()
		r.end(nil, 1, err, working.Err() != nil, d.o.Classify)
		d.runs.remove(r)
		return out, err
	}
	if r.asked != nil {
		r.asked.Reset(runUnasked)
	} else if c != nil {
		c.runs = append(c.runs, r)
	}
	go func() {
		defer d.runs.group.Done()
		d.work(working, r, args, env)
	}()
	return Started{Run: id}, nil
}

// prepare waits for the run's turn on its WAN, as long as nobody stops it, and returns
// its command with all that the configuration says. theirs: whoever asks keeps the result.
func (d *Daemon) prepare(ctx, working context.Context, r *run, w *wan, params any, theirs bool) (args, env []string, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(working, cancel)()
	_, test := params.(TestParams)
	// A test changes nothing, so the shaping is kept meanwhile.
	of, err := within(ctx, w, func(context.Context) (config.WAN, error) { return w.config, w.turn(r.holder, test) })
	if err == nil {
		r.holder.turn = []*wan{w}
	}
	if working.Err() != nil {
		err = &Error{CodeFailed, "it was stopped before it began"}
	}
	d.mu.Lock()
	server, store := d.config.Server, d.config.History
	d.mu.Unlock()
	if theirs {
		store = ""
	}
	args, env = commandFor(of, params, server, store)
	return args, env, err
}

// work runs a run's command, and takes in what comes of it.
func (d *Daemon) work(working context.Context, r *run, args, env []string) {
	var result json.RawMessage
	code := 1
	_, err := d.contain(r.holder.does, func() (_ any, err error) {
		result, code, err = d.heard(working, r, args, env)
		return nil, err
	})
	r.holder.leave() // before it is seen to have ended: what was kept is in the configuration then
	r.end(result, code, err, working.Err() != nil, d.o.Classify)
}

// add takes in a run that begins, unless another goes on, and numbers it. It is waited
// for from then on.
func (s *runs) add(r *run, w *wan, method string) (id string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return "", &Error{CodeEnding, "the daemon ends"}
	}
	now := time.Now()
	s.all = slices.DeleteFunc(s.all, func(x *run) bool { return x.endedBefore(now.Add(-runKept)) })
	for _, x := range s.all {
		if is := x.status(); is.State == RunGoing {
			return "", &Error{CodeBusy, fmt.Sprintf("%s: `unbloat %s` is measuring already (run %s); two at once would measure each other", method, is.Method, is.Run)}
		}
	}
	if len(s.all) >= mostRuns {
		s.all = slices.Delete(s.all, 0, 1)
	}
	s.n++
	r.is = RunStatus{Run: strconv.Itoa(s.n), Method: method, By: r.is.By, WAN: w.name, Router: w.routerName, State: RunGoing, Began: now.UTC().Format(time.RFC3339), Events: []RunEvent{}}
	s.all = append(s.all, r)
	s.group.Add(1)
	return r.is.Run, nil
}

// remove forgets a run that did not begin.
func (s *runs) remove(r *run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.group.Done()
	s.all = slices.DeleteFunc(s.all, func(x *run) bool { return x == r })
}

// close lets none begin any more, and waits for the one that goes on, whose context
// has ended.
func (s *runs) close() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.group.Wait()
}

// find returns the run with a number; "" is the newest.
func (s *runs) find(id string) (*run, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range slices.Backward(s.all) {
		if id == "" || r.is.Run == id { // it never changes
			return r, nil
		}
	}
	if id == "" {
		return nil, &Error{CodePrecondition, "nothing was started yet"}
	}
	return nil, &Error{CodeUsage, fmt.Sprintf("there is no run %q; the last %d are remembered for an hour", id, mostRuns)}
}

// report takes in an event.
func (r *run) report(e RunEvent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.is.State != RunGoing {
		return
	}
	r.is.Last++
	e.N = r.is.Last
	if e.Phase != nil {
		r.is.Phase = e.Phase
	}
	if e.Stage != nil {
		r.is.Stage = e.Stage
	}
	if len(r.is.Events) >= mostRunEvents {
		r.is.Events = slices.Delete(r.is.Events, 0, 1)
	}
	r.is.Events = append(r.is.Events, e)
	r.tell()
}

// tell wakes those who wait. The caller holds r.mu.
func (r *run) tell() {
	close(r.news)
	r.news = make(chan struct{})
}

// over gives back what a run holds.
func (r *run) over() {
	r.cancel()
	if r.asked != nil {
		r.asked.Stop()
	}
}

// end takes in what came of it.
func (r *run) end(result json.RawMessage, code int, err error, stopped bool, classify func(error) Code) {
	defer r.over()
	r.mu.Lock()
	defer r.mu.Unlock()
	is := &r.is
	is.State, is.ExitCode, is.Ended = RunDone, code, time.Now().UTC().Format(time.RFC3339)
	is.Seconds, is.Result = since(is.Began, time.Now()), result
	if err != nil {
		is.Error = errorFor(err, classify)
	}
	switch {
	case stopped && err != nil:
		is.State = RunEnded
	case is.Result == nil:
		is.State = RunFailed
	}
	r.tell()
}

// since returns the seconds from a time in RFC 3339.
func since(from string, now time.Time) float64 {
	t, err := time.Parse(time.RFC3339, from)
	if err != nil {
		return 0
	}
	return max(now.Sub(t).Seconds(), 0)
}

// endedBefore reports whether it has ended, and before a time.
func (r *run) endedBefore(t time.Time) bool {
	is := r.status()
	at, err := time.Parse(time.RFC3339, is.Ended)
	return is.State != RunGoing && err == nil && at.Before(t)
}

func (r *run) status() RunStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.is
}

// Run says how a run goes.
func (c *Caller) Run(ctx context.Context, _ Name, p RunParams) (out RunStatus, err error) {
	r, err := c.d.runs.find(p.Run)
	if err != nil {
		return out, err
	}
	if p.Stop {
		r.cancel()
	}
	if r.asked != nil && r.status().State == RunGoing {
		r.asked.Reset(runUnasked + mostRunWait)
	}
	wait := min(time.Duration(max(p.Wait, 0)*float64(time.Second)), mostRunWait)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for waits := wait > 0; waits; {
		r.mu.Lock()
		news := r.news
		waits = r.is.State == RunGoing && r.is.Last <= p.After
		r.mu.Unlock()
		if !waits {
			break
		}
		select {
		case <-news:
		case <-timer.C:
			waits = false
		case <-ctx.Done():
			waits = false
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	out = r.is
	out.Events = []RunEvent{}
	for _, e := range r.is.Events {
		if e.N > p.After {
			out.Events = append(out.Events, e)
		}
	}
	if out.State == RunGoing {
		out.Seconds = since(out.Began, time.Now())
	}
	return out, nil
}
