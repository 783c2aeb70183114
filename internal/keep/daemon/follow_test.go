package daemon

import (
	"context"
	"errors"
	"testing"

	"unbloat/internal/cure/plan"
	"unbloat/internal/keep/delay"
	"unbloat/internal/keep/steer"
	"unbloat/internal/keep/supervise"
	"unbloat/unit"
)

// runner is a follower that does nothing, and counts.
type runner struct {
	Follower
	lines, ended, closed int
}

func (r *runner) Run(ctx context.Context)     { <-ctx.Done(); r.ended++ }
func (r *runner) NewLine()                    { r.lines++ }
func (r *runner) Set(string, unit.Rate) error { return nil }
func (r *runner) Port() uint32                { return 0 }
func (r *runner) Close() error                { r.closed = r.ended; return nil }

// TestFollowingDue: what runs goes on as long as it is for the wanted line. What follows one
// outlasts a time out of place, what measures its delay does not; neither goes on while the
// WAN is left alone.
func TestFollowingDue(t *testing.T) {
	one, other := &plan.Plan{}, &plan.Plan{}
	type what struct {
		runs bool
		of   *plan.Plan
		held bool
	}
	nothing := what{}
	follows, measures := what{true, one, false}, what{true, one, true}
	for _, x := range []struct {
		name       string
		is         what
		want       what // runs is not read
		anew       bool
		end, start bool // in place
	}{
		{"nothing, as wanted", nothing, nothing, false, false, false},
		{"nothing, and none can begin anew", nothing, nothing, true, false, false},
		{"it begins", nothing, follows, false, false, true},
		{"measuring begins", nothing, measures, false, false, true},
		{"it goes on", follows, follows, false, false, false},
		{"measuring goes on", measures, measures, false, false, false},
		{"another is asked for", follows, follows, true, true, true},
		{"it is not wanted", follows, nothing, false, true, false},
		{"it is not wanted, and another was asked for", follows, nothing, true, true, false},
		{"another plan", follows, what{of: other}, false, true, true},
		{"another plan of a measured line", measures, what{of: other, held: true}, false, true, true},
		{"held from now on", follows, measures, false, true, true},
		{"followed from now on", measures, follows, false, true, true},
	} {
		for _, is := range supervise.States() {
			var f following
			f.anew.Store(x.anew)
			if x.is.runs {
				f.runs.Store(&pursuit{plan: x.is.of, held: x.is.held})
			}
			alone := is == supervise.Suspended || is == supervise.Held || is == supervise.Foreign || is == supervise.Contested
			wantEnd, wantStart := x.is.runs && (alone || x.is.held), false
			if is == supervise.InPlace {
				wantEnd, wantStart = x.end, x.start
			}
			if end, start := f.due(is, x.want.of, x.want.held); end != wantEnd || start != wantStart {
				t.Errorf("%s, and it is %s: end %t, start %t", x.name, is, end, start)
			}
			if asked := x.anew && is != supervise.InPlace; f.anew.Load() != asked {
				t.Errorf("%s, and it is %s: another is asked for: %t", x.name, is, !asked)
			}
		}
	}
}

// TestFollowing: a follower is run, renewed and ended, and its setter closed after it. That it
// can't run is told once for each reason.
func TestFollowing(t *testing.T) {
	var f following
	first, second := &plan.Plan{}, &plan.Plan{}
	var config steer.Config
	woken := 0
	begin := func(p *pursuit, err error) error {
		return f.start(p, func() { woken++ }, func(_ *pursuit, c steer.Config) error { config = c; return err })
	}
	none := errors.New("no right to sockets")
	for i, x := range []struct {
		held bool
		err  error
		told bool
	}{{false, none, true}, {false, none, false}, {true, none, false}, {true, errors.New("no such interface"), true}, {true, none, true}, {true, nil, false}, {true, none, false}, {false, nil, false}, {false, none, true}} {
		r := &runner{}
		if err := begin(&pursuit{Follower: r, held: x.held, plan: first}, x.err); (err != nil) != x.told {
			t.Errorf("%d: told %v", i, err)
		}
		if is := f.runs.Load(); (is != nil) != (x.err == nil) || (f.line() != nil) != (x.err == nil && !x.held) {
			t.Errorf("%d: %+v runs", i, is)
		}
		if followed := f.end(); followed != (x.err == nil && !x.held) || f.runs.Load() != nil {
			t.Errorf("%d: it followed the line: %t, and %+v runs", i, followed, f.runs.Load())
		}
		if x.err == nil && (r.ended != 1 || r.closed != 0) {
			t.Errorf("%d: %+v", i, r)
		}
	}

	r := &runner{}
	if err := begin(&pursuit{Follower: r, setter: r, plan: first}, nil); err != nil {
		t.Fatal(err)
	}
	f.line().renew(second)
	if end, start := f.due(supervise.InPlace, second, false); end || start || r.lines != 1 {
		t.Errorf("its plan was made again: end %t, start %t, %d new lines", end, start, r.lines)
	}
	config.Asked(1, delay.Target{})
	if heard := f.overheard.take(); len(heard) != 1 {
		t.Errorf("heard %v", heard)
	}
	config.Again()
	if end, start := f.due(supervise.InPlace, second, false); !end || !start || woken != 1 {
		t.Errorf("another is asked for: end %t, start %t, woken %d times", end, start, woken)
	}
	if !f.end() || r.ended != 1 || r.closed != 1 {
		t.Errorf("at its end: %+v", r)
	}
	if f.end() {
		t.Error("it ended twice")
	}
}
