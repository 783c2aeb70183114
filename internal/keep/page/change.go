package page

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"unbloat/internal/cure/tune"
	"unbloat/internal/keep/daemon"
	"unbloat/internal/keep/supervise"
	"unbloat/internal/measure/verdict"
	"unbloat/reason"
	"unbloat/unit"
)

// SetLine implements Router.
func (s *Source) SetLine(ctx context.Context, l SetLine) (daemon.Change, error) {
	at := named(l.WAN)
	if l.Machine != "" && l.Action != daemon.ActionNone {
		set, err := s.o.Daemon.Settings(ctx, at)
		if err == nil && len(set) == 1 && set[0].On && !set[0].Classes {
			err = &daemon.Error{Code: CodeClasses, Text: "the line has no classes, so no machine can go first or last; they need the setting classes, on"}
		}
		if err != nil {
			return daemon.Change{}, err
		}
	}
	return s.o.Daemon.Change(ctx, at, l.ChangeParams)
}

// Confirm implements Router.
func (s *Source) Confirm(ctx context.Context, change string) error {
	wan, err := s.waiting(ctx, func(c daemon.Settings) bool { return c.Change.ID == change })
	if err != nil {
		return err
	}
	_, err = s.o.Daemon.Confirm(ctx, wan, daemon.IDParams{Change: change})
	return err
}

// Revert implements Router.
func (s *Source) Revert(ctx context.Context, wan string) error {
	id := ""
	at, err := s.waiting(ctx, func(c daemon.Settings) bool {
		id = c.Change.ID
		return wan == "" || keyOf(c.Router, c.WAN) == wan
	})
	if err != nil {
		return err
	}
	_, err = s.o.Daemon.Revert(ctx, at, daemon.IDParams{Change: id})
	return err
}

// waiting returns the WAN whose change waits and is meant.
func (s *Source) waiting(ctx context.Context, is func(daemon.Settings) bool) (at daemon.Name, err error) {
	all, _ := s.o.Daemon.Settings(ctx, daemon.Name{}) // of all there is no error
	i := slices.IndexFunc(all, func(c daemon.Settings) bool { return c.Change != nil && is(c) })
	if i < 0 {
		return at, &daemon.Error{Code: daemon.CodeNoChange, Text: "no such change waits any more; it was confirmed, or undone"}
	}
	return daemon.Name{WAN: all[i].WAN, Router: all[i].Router}, nil
}

// Run implements Router.
func (s *Source) Run(ctx context.Context, r Run) (Running, error) {
	var began daemon.Started
	var err error
	switch r.Kind {
	case RunTest:
		began, err = s.o.Daemon.Test(ctx, named(r.WAN), daemon.TestParams{Unattended: true})
	case RunTune:
		began, err = s.o.Daemon.Tune(ctx, named(r.WAN), daemon.TuneParams{Unattended: true})
	default:
		err = &daemon.Error{Code: daemon.CodeUsage, Text: fmt.Sprintf("kind %q: must be test or tune", r.Kind)}
	}
	if err != nil {
		return Running{}, err
	}
	is, err := s.o.Daemon.Run(ctx, daemon.Name{}, daemon.RunParams{Run: began.Run})
	if err != nil {
		return Running{}, err
	}
	return runningOf(is), nil
}

// Stop implements Router.
func (s *Source) Stop(ctx context.Context, wan string) error {
	is, err := s.o.Daemon.Run(ctx, daemon.Name{}, daemon.RunParams{})
	if err != nil {
		return err
	}
	if is.State != daemon.RunGoing || wan != "" && keyOf(is.Router, is.WAN) != wan {
		return &daemon.Error{Code: daemon.CodeNoChange, Text: "nothing is running there"}
	}
	_, err = s.o.Daemon.Run(ctx, daemon.Name{}, daemon.RunParams{Run: is.Run, Stop: true})
	return err
}

// shownFor is how long what has ended is shown.
const shownFor = time.Minute

// running says of the WANs which of them is measured. That the page asks is what keeps
// a test or a tuning going: it ends when nobody looks any more.
func (s *Source) running(ctx context.Context, wans []WAN) {
	is, err := s.o.Daemon.Run(ctx, daemon.Name{}, daemon.RunParams{After: 1 << 30})
	if err != nil {
		return
	}
	if t, err := time.Parse(time.RFC3339, is.Ended); err == nil && s.o.Now().Sub(t) > shownFor {
		return
	}
	for i := range wans {
		if wans[i].WAN == keyOf(is.Router, is.WAN) {
			r := runningOf(is)
			r.Result = s.found(is, r, wans[i])
			wans[i].Running = &r
		}
	}
}

// found is what a run has found that has ended; nil: nothing. It is read once: the page
// asks each second.
func (s *Source) found(is daemon.RunStatus, r Running, w WAN) *Result {
	if !r.Ended || r.Stopped || len(is.Result) == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == nil || s.lastRun != is.Run+is.Began {
		out := ResultOf(r.Kind, is.Result)
		out.WAN, out.AtMs = w.WAN, r.BeganMs
		out.Shaped = out.Kept || w.On && w.Kept == supervise.InPlace
		s.last, s.lastRun = &out, is.Run+is.Began
	}
	return s.last
}

// runningOf is a run as the page shows it.
func runningOf(is daemon.RunStatus) Running {
	out := Running{Kind: RunKind(is.Method), RTTMs: -1, Round: 1, Ended: is.State != daemon.RunGoing, Seconds: is.Seconds}
	if t, err := time.Parse(time.RFC3339, is.Began); err == nil {
		out.BeganMs = t.UnixMilli()
	}
	if p := is.Phase; p != nil {
		out.Step, out.Down, out.Up = p.Phase, p.Down, p.Up
		if p.RTT > 0 {
			out.RTTMs = finite(unit.Ms(time.Duration(p.RTT)))
		}
		if p.Duration > 0 {
			out.Progress = min(max(float64(p.Elapsed)/float64(p.Duration), 0), 1)
		}
		if out.Kind == RunTest {
			out.Progress = testProgress(p.Phase, out.Progress)
		}
	}
	if st := is.Stage; st != nil {
		out.Doing, out.Round = string(st.Doing), len(st.Trials)+1
		out.TryDown, out.TryUp = st.Down, st.Up
		out.Progress = tuneProgress(*st)
	}
	if out.Ended {
		out.Progress = 1
	}
	if is.State == daemon.RunEnded {
		out.Stopped = true
		return out
	}
	if is.Error != nil {
		out.Error = is.Error
	}
	return out
}

// ResultOf is what a test or a tuning has found, by the JSON that its command prints. Of
// a tuning it is what holds after it. It has no ID, time or WAN.
func ResultOf(kind RunKind, text json.RawMessage) Result {
	out := Result{Kind: kind, Invalid: []Said{}, Outcomes: []Outcome{}}
	var held struct {
		verdict.Test
		Before *verdict.Test `json:"before"`
		After  *verdict.Test `json:"after"`
		Kept   bool          `json:"kept"`
	}
	if json.Unmarshal(text, &held) != nil {
		return out
	}
	t := &held.Test
	switch {
	case kind == RunTest:
	case held.Kept && held.After != nil:
		t, out.Kept = held.After, true
	case held.Before != nil:
		t = held.Before
	}
	out.Valid, out.Grade = t.Valid, t.Grade
	for _, o := range t.Outcomes {
		out.Outcomes = append(out.Outcomes, Outcome{o.Use, finite(o.Score), o.Limit})
	}
	if len(t.Reasons) > 0 {
		english, german := reason.English(), reason.German()
		for _, r := range t.Reasons {
			out.Invalid = append(out.Invalid, Said{EN: r.Text(english, reason.Page), DE: r.Text(german, reason.Page)})
		}
	}
	for _, p := range t.Phases() {
		if p.RecoveryMs != nil {
			out.FellMs = max(out.FellMs, finite(*p.RecoveryMs))
		}
		switch p.Name {
		case verdict.PhaseIdle:
			out.IdleMs = finite(p.Latency.RTTMs.P50)
		case verdict.PhaseDownload:
			out.Down, out.DownP95 = unit.Rate(finite(p.GoodputDownBps)), finite(p.Latency.IncreaseMs.P95)
		case verdict.PhaseUpload:
			out.Up, out.UpP95 = unit.Rate(finite(p.GoodputUpBps)), finite(p.Latency.IncreaseMs.P95)
		}
	}
	return out
}

// testProgress is how far a whole test is: it has four phases of about the same
// length.
func testProgress(phase string, of float64) float64 {
	i := slices.Index([]string{"idle", "download", "upload", "both"}, phase)
	if i < 0 {
		return of
	}
	return (float64(i) + of) / 4
}

// tuneProgress is how far a tuning is, as far as its search can say: the line as it is
// is an eighth, and the search ends where its bounds meet.
func tuneProgress(st tune.Stage) float64 {
	switch st.Doing {
	case tune.AsItIs:
		return 0.05
	case tune.Checking:
		return 0.8
	case tune.Deciding:
		return 0.95
	}
	width := func(from, to, line unit.Rate) float64 {
		if line <= 0 || to <= 0 {
			return 1
		}
		return min(max(float64(to-from)/float64(line), 0), 1)
	}
	left := max(width(st.DownFrom, st.DownTo, st.LineDown), width(st.UpFrom, st.UpTo, st.LineUp))
	return 0.125 + 0.6*(1-left)
}

// While implements Router.
func (s *Source) While(ctx context.Context, w While) (daemon.While, error) {
	return s.o.Daemon.While(ctx, named(w.WAN), w.WhileParams)
}

// Incidents implements Router.
func (s *Source) Incidents(ctx context.Context, wan string) (Incidents, error) {
	const span = 31 * 24 * time.Hour
	out := Incidents{WAN: wan, Incidents: []Incident{}}
	all, err := s.o.Daemon.Incidents(ctx, named(wan), daemon.IncidentsParams{From: s.o.Now().Add(-span).UTC().Format(time.RFC3339)})
	if err != nil {
		return out, err
	}
	out.Watched = slices.ContainsFunc(all.Watched, func(w daemon.Watched) bool { return wan == "" || keyOf(w.Router, w.WAN) == wan })
	english, german := reason.English(), reason.German()
	said := func(r reason.Reason) Said {
		return Said{EN: r.Text(english, reason.Page), DE: r.Text(german, reason.Page)}
	}
	for _, x := range slices.Backward(all.Incidents) {
		to := Incident{ID: x.ID, BeginMs: x.Begin.UnixMilli(), Kind: string(x.Kind), Part: string(x.Part), Severity: string(x.Severity), What: said(x.What), Why: said(x.Why)}
		if x.Over() {
			to.EndMs = x.End.UnixMilli()
		}
		out.Incidents = append(out.Incidents, to)
	}
	return out, nil
}

// Events implements Router.
func (s *Source) Events(ctx context.Context) (Events, error) {
	all, err := s.o.Daemon.Events(ctx, daemon.Name{})
	return Events{all}, err
}

// Health implements Router.
func (s *Source) Health(ctx context.Context, wan string) (Health, error) {
	if s.o.Examine == nil {
		return Health{}, &daemon.Error{Code: daemon.CodeLeftOut, Text: "this build has no doctor"}
	}
	status, err := s.o.Daemon.Status(ctx, daemon.Name{})
	if err != nil {
		return Health{}, err
	}
	i := slices.IndexFunc(status.WANs, func(w daemon.WANStatus) bool { return wan == "" || keyOf(w.Router, w.WAN) == wan })
	if i < 0 {
		return Health{}, &daemon.Error{Code: daemon.CodeUnknownWAN, Text: fmt.Sprintf("the daemon keeps no %s", wan)}
	}
	w := status.WANs[i]
	r, err := s.o.Examine(ctx, w.Router, w.WAN)
	if err != nil {
		return Health{}, err
	}
	out := Health{WAN: keyOf(w.Router, w.WAN), OK: r.OK, AtMs: s.o.Now().UnixMilli(), Findings: []Finding{}, Checked: len(r.Checked), Skipped: len(r.Skipped)}
	for _, f := range r.Findings {
		out.Findings = append(out.Findings, Finding{Code: f.ID, Blocking: f.Blocking, What: f.What, Why: f.Why, Remedy: f.Remedy, Mend: mendable(f.ID)})
	}
	return out, nil
}

// mendable says which findings the daemon mends itself: what it had applied is not
// there, or another's shaper is.
func mendable(code string) bool {
	return slices.Contains([]string{"drift", "classes-lost", "other-shaper"}, code)
}

// Mend implements Router.
func (s *Source) Mend(ctx context.Context, m Mend) (Health, error) {
	if !mendable(m.Code) {
		return Health{}, &daemon.Error{Code: daemon.CodeUsage, Text: fmt.Sprintf("%q can't be mended from here; do what its remedy says", m.Code)}
	}
	if _, err := s.o.Daemon.On(ctx, named(m.WAN), daemon.OnParams{Replace: m.Code == "other-shaper"}); err != nil {
		return Health{}, err
	}
	return s.Health(ctx, m.WAN)
}

// History implements Router.
func (s *Source) History(ctx context.Context, wan string) (History, error) {
	out := History{Results: []Result{}}
	if s.o.Results == nil {
		return out, &daemon.Error{Code: daemon.CodeLeftOut, Text: "results are not kept here; `history` in the configuration says where"}
	}
	all, err := s.o.Results(ctx)
	if err != nil {
		return out, err
	}
	for _, r := range all {
		if wan == "" || r.WAN == wan || r.WAN == "" {
			out.Results = append(out.Results, r)
		}
	}
	return out, nil
}

// Compare implements Router.
func (s *Source) Compare(ctx context.Context, before, after string) (Comparison, error) {
	h, err := s.History(ctx, "")
	if err != nil {
		return Comparison{}, err
	}
	var out Comparison
	for id, to := range map[string]*Result{before: &out.Before, after: &out.After} {
		i := slices.IndexFunc(h.Results, func(r Result) bool { return r.ID == id })
		if i < 0 {
			return out, &daemon.Error{Code: CodeNotFound, Text: fmt.Sprintf("there is no result %q", id)}
		}
		*to = h.Results[i]
	}
	return out, nil
}

// Schedule implements Router.
func (s *Source) Schedule(ctx context.Context, p daemon.ScheduleParams) (daemon.Schedule, error) {
	return s.o.Daemon.Schedule(ctx, daemon.Name{}, p)
}
