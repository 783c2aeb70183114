package source

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"unbloat/internal/classify"
	"unbloat/internal/daemon"
	"unbloat/internal/daemon/config"
	"unbloat/internal/reason"
	"unbloat/internal/ui"
	"unbloat/internal/verdict"
	"unbloat/unit"
)

// tinOf is the tin that a connection's mark says.
func tinOf(mark uint32) uint8 { return uint8(mark & classify.MarkMask >> classify.MarkShift) }

// waitFor is how long the page has to come back.
const waitFor = 30 // seconds

// SetLine implements ui.Router.
func (s *Source) SetLine(ctx context.Context, l ui.SetLine) (ui.Change, error) {
	var c daemon.Change
	err := s.ask(ctx, daemon.MethodChange, l.WAN, daemon.ChangeParams{Down: l.Down, Up: l.Up, Follow: l.Follow, On: l.On, Confirm: waitFor}, &c)
	return s.change(l.WAN, c), err
}

// SetRule implements ui.Router.
func (s *Source) SetRule(ctx context.Context, r ui.SetRule) (ui.Change, error) {
	action := map[ui.Action]string{ui.ActionFirst: daemon.ActionFirst, ui.ActionIdle: daemon.ActionLast, ui.ActionNone: daemon.ActionNone}[r.Action]
	if action == "" {
		return ui.Change{}, &ui.Error{Code: ui.CodeUsage, Text: fmt.Sprintf("action %q: must be first, idle or none", r.Action)}
	}
	var settings []daemon.Settings
	if err := s.ask(ctx, daemon.MethodSettings, r.WAN, nil, &settings); err != nil {
		return ui.Change{}, err
	}
	if r.WAN == "" && len(settings) == 1 {
		r.WAN = keyOf(settings[0].Router, settings[0].WAN)
	}
	if len(settings) == 1 && settings[0].On && !settings[0].Classes && action != daemon.ActionNone {
		return ui.Change{}, &ui.Error{Code: ui.CodeClasses, Text: "the line has no classes, so no machine can go first or last; they need the setting classes, on"}
	}
	var c daemon.Change
	err := s.ask(ctx, daemon.MethodChange, r.WAN, daemon.ChangeParams{Machine: r.Address, Action: action, Confirm: waitFor}, &c)
	return s.change(r.WAN, c), err
}

// Confirm implements ui.Router.
func (s *Source) Confirm(ctx context.Context, change string) error {
	wan, err := s.waiting(ctx, func(c daemon.Settings) bool { return c.Change.ID == change })
	if err != nil {
		return err
	}
	return s.ask(ctx, daemon.MethodConfirm, wan, daemon.IDParams{Change: change}, nil)
}

// Revert implements ui.Router.
func (s *Source) Revert(ctx context.Context, wan string) error {
	id := ""
	wan, err := s.waiting(ctx, func(c daemon.Settings) bool {
		id = c.Change.ID
		return wan == "" || keyOf(c.Router, c.WAN) == wan
	})
	if err != nil {
		return err
	}
	return s.ask(ctx, daemon.MethodRevert, wan, daemon.IDParams{Change: id}, nil)
}

// waiting returns the WAN whose change waits and is meant.
func (s *Source) waiting(ctx context.Context, is func(daemon.Settings) bool) (string, error) {
	var all []daemon.Settings
	if err := s.ask(ctx, daemon.MethodSettings, "", nil, &all); err != nil {
		return "", err
	}
	i := slices.IndexFunc(all, func(c daemon.Settings) bool { return c.Change != nil && is(c) })
	if i < 0 {
		return "", &ui.Error{Code: ui.CodeNoChange, Text: "no such change waits any more; it was confirmed, or undone"}
	}
	return keyOf(all[i].Router, all[i].WAN), nil
}

// Run implements ui.Router.
func (s *Source) Run(ctx context.Context, r ui.Run) (ui.Running, error) {
	var began daemon.Started
	var err error
	switch r.Kind {
	case ui.RunTest:
		err = s.ask(ctx, daemon.MethodTest, r.WAN, daemon.TestParams{Unattended: true}, &began)
	case ui.RunTune:
		err = s.ask(ctx, daemon.MethodTune, r.WAN, daemon.TuneParams{Unattended: true}, &began)
	default:
		err = &ui.Error{Code: ui.CodeUsage, Text: fmt.Sprintf("kind %q: must be test or tune", r.Kind)}
	}
	if err != nil {
		return ui.Running{}, err
	}
	var is daemon.RunStatus
	if err := s.ask(ctx, daemon.MethodRun, "", daemon.RunParams{Run: began.Run}, &is); err != nil {
		return ui.Running{}, err
	}
	return runningOf(is), nil
}

// Stop implements ui.Router.
func (s *Source) Stop(ctx context.Context, wan string) error {
	var is daemon.RunStatus
	if err := s.ask(ctx, daemon.MethodRun, "", nil, &is); err != nil {
		return err
	}
	if is.State != daemon.RunGoing || wan != "" && keyOf(is.Router, is.WAN) != wan {
		return &ui.Error{Code: ui.CodeNoChange, Text: "nothing is running there"}
	}
	return s.ask(ctx, daemon.MethodRun, "", daemon.RunParams{Run: is.Run, Stop: true}, nil)
}

// shownFor is how long what has ended is shown.
const shownFor = time.Minute

// running says of the WANs which of them is measured. That the page asks is what keeps
// a test or a tuning going: it ends when nobody looks any more.
func (s *Source) running(ctx context.Context, wans []ui.WAN) {
	var is daemon.RunStatus
	if s.o.Ask(ctx, daemon.MethodRun, "", "", daemon.RunParams{After: 1 << 30}, &is) != nil {
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
func (s *Source) found(is daemon.RunStatus, r ui.Running, w ui.WAN) *ui.Result {
	if !r.Ended || r.Stopped || len(is.Result) == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == nil || s.lastRun != is.Run+is.Began {
		out := ResultOf(r.Kind, is.Result)
		out.WAN, out.AtMs = w.WAN, r.BeganMs
		out.Shaped = out.Kept || w.On && w.Kept == ui.KeptInPlace
		s.last, s.lastRun = &out, is.Run+is.Began
	}
	return s.last
}

// runningOf is a run as the page shows it.
func runningOf(is daemon.RunStatus) ui.Running {
	out := ui.Running{Kind: ui.RunKind(is.Method), RTTMs: -1, Round: 1, Ended: is.State != daemon.RunGoing, Seconds: is.Seconds}
	if t, err := time.Parse(time.RFC3339, is.Began); err == nil {
		out.BeganMs = t.UnixMilli()
	}
	if p := is.Phase; p != nil {
		out.Step, out.Down, out.Up = p.Phase, p.Down, p.Up
		if p.RTTMs > 0 {
			out.RTTMs = finite(p.RTTMs)
		}
		if p.Duration > 0 {
			out.Progress = min(max(p.Elapsed/p.Duration, 0), 1)
		}
		if out.Kind == ui.RunTest {
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
		out.Error = &ui.Error{Code: ui.Code(is.Error.Code), Text: is.Error.Text}
	}
	return out
}

// ResultOf is what a test or a tuning has found, by the JSON that its command prints. Of
// a tuning it is what holds after it. It has no ID, time or WAN.
func ResultOf(kind ui.RunKind, text json.RawMessage) ui.Result {
	out := ui.Result{Kind: kind, Invalid: []ui.Said{}}
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
	case kind == ui.RunTest:
	case held.Kept && held.After != nil:
		t, out.Kept = held.After, true
	case held.Before != nil:
		t = held.Before
	}
	out.Valid, out.Grade = t.Valid, t.Grade
	if len(t.Reasons) > 0 {
		english, german := reason.English(), reason.German()
		for _, r := range t.Reasons {
			out.Invalid = append(out.Invalid, ui.Said{EN: r.Text(english, reason.Page), DE: r.Text(german, reason.Page)})
		}
	}
	for _, p := range t.Phases() {
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
func tuneProgress(st daemon.RunStage) float64 {
	switch st.Doing {
	case daemon.RunAsItIs:
		return 0.05
	case daemon.RunChecking:
		return 0.8
	case daemon.RunDeciding:
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

// Events implements ui.Router.
func (s *Source) Events(ctx context.Context) (ui.Events, error) {
	out := ui.Events{Events: []ui.Event{}}
	var all []daemon.Happening
	if err := s.ask(ctx, daemon.MethodEvents, "", nil, &all); err != nil {
		return out, err
	}
	for _, h := range all {
		e := ui.Event{ID: h.N, WAN: keyOf(h.Router, h.WAN), Kind: ui.EventKind(h.Kind), By: h.By, What: append([]string{}, h.What...), Undone: ui.Undone(h.Undone)}
		if t, err := time.Parse(time.RFC3339, h.Time); err == nil {
			e.AtMs = t.UnixMilli()
		}
		out.Events = append(out.Events, e)
	}
	return out, nil
}

// Health implements ui.Router.
func (s *Source) Health(ctx context.Context, wan string) (ui.Health, error) {
	if s.o.Examine == nil {
		return ui.Health{}, &ui.Error{Code: ui.CodeNotHere, Text: "this build has no doctor"}
	}
	var status daemon.Status
	if err := s.ask(ctx, daemon.MethodStatus, "", nil, &status); err != nil {
		return ui.Health{}, err
	}
	i := slices.IndexFunc(status.WANs, func(w daemon.WANStatus) bool { return wan == "" || keyOf(w.Router, w.WAN) == wan })
	if i < 0 {
		return ui.Health{}, &ui.Error{Code: ui.CodeUnknownWAN, Text: fmt.Sprintf("the daemon keeps no %s", wan)}
	}
	w := status.WANs[i]
	r, err := s.o.Examine(ctx, w.Router, w.WAN)
	if err != nil {
		return ui.Health{}, err
	}
	out := ui.Health{WAN: keyOf(w.Router, w.WAN), OK: r.OK, AtMs: s.o.Now().UnixMilli(), Findings: []ui.Finding{}, Checked: len(r.Checked), Skipped: len(r.Skipped)}
	for _, f := range r.Findings {
		out.Findings = append(out.Findings, ui.Finding{Code: f.ID, Blocking: f.Blocking, What: f.What, Why: f.Why, Remedy: f.Remedy, Mend: mendable(f.ID)})
	}
	return out, nil
}

// mendable says which findings the daemon mends itself: what it had applied is not
// there, or another's shaper is.
func mendable(code string) bool {
	return slices.Contains([]string{"drift", "classes-lost", "other-shaper"}, code)
}

// Mend implements ui.Router.
func (s *Source) Mend(ctx context.Context, m ui.Mend) (ui.Health, error) {
	if !mendable(m.Code) {
		return ui.Health{}, &ui.Error{Code: ui.CodeUsage, Text: fmt.Sprintf("%q can't be mended from here; do what its remedy says", m.Code)}
	}
	if err := s.ask(ctx, daemon.MethodOn, m.WAN, daemon.OnParams{Replace: m.Code == "other-shaper"}, nil); err != nil {
		return ui.Health{}, err
	}
	return s.Health(ctx, m.WAN)
}

// History implements ui.Router.
func (s *Source) History(ctx context.Context, wan string) (ui.History, error) {
	out := ui.History{Results: []ui.Result{}}
	if s.o.Results == nil {
		return out, &ui.Error{Code: ui.CodeNotHere, Text: "results are not kept here; `history` in the configuration says where"}
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

// Compare implements ui.Router.
func (s *Source) Compare(ctx context.Context, before, after string) (ui.Comparison, error) {
	h, err := s.History(ctx, "")
	if err != nil {
		return ui.Comparison{}, err
	}
	var out ui.Comparison
	for id, to := range map[string]*ui.Result{before: &out.Before, after: &out.After} {
		i := slices.IndexFunc(h.Results, func(r ui.Result) bool { return r.ID == id })
		if i < 0 {
			return out, &ui.Error{Code: ui.CodeNotFound, Text: fmt.Sprintf("there is no result %q", id)}
		}
		*to = h.Results[i]
	}
	return out, nil
}

// Schedule implements ui.Router.
func (s *Source) Schedule(ctx context.Context) (ui.Schedule, error) {
	return s.plan(ctx, daemon.ScheduleParams{})
}

// SetSchedule implements ui.Router.
func (s *Source) SetSchedule(ctx context.Context, to ui.Schedule) (ui.Schedule, error) {
	p := daemon.ScheduleParams{Entries: &[]config.EntryTable{}, Confirm: waitFor}
	for _, e := range to.Entries {
		router, wan := named(e.WAN)
		t := config.EntryTable{Do: string(e.Do), WAN: wan, Router: router, From: e.From, To: e.To, Days: e.Days, Machine: e.Machine}
		switch e.Do {
		case ui.EntryTest, ui.EntryTune:
			t.At, t.From = e.From, ""
		case ui.EntryIdle:
			t.Do = string(config.DoLast)
		}
		if e.Down != 0 {
			t.Down = e.Down.String()
		}
		if e.Up != 0 {
			t.Up = e.Up.String()
		}
		*p.Entries = append(*p.Entries, t)
	}
	return s.plan(ctx, p)
}

// plan asks for the schedule, or has another one.
func (s *Source) plan(ctx context.Context, p daemon.ScheduleParams) (ui.Schedule, error) {
	out := ui.Schedule{Entries: []ui.Entry{}}
	var is daemon.Schedule
	if err := s.ask(ctx, daemon.MethodSchedule, "", p, &is); err != nil {
		return out, err
	}
	if is.Change != nil {
		c := s.change(keyOf(is.Change.Router, is.Change.WAN), is.Change.Change)
		out.Pending = &c
	}
	for _, t := range is.Entries {
		e := ui.Entry{WAN: keyOf(t.Router, t.WAN), Do: ui.EntryKind(t.Do), From: cmp.Or(t.From, t.At), To: t.To, Days: append([]string{}, t.Days...), Machine: t.Machine}
		if t.Do == string(config.DoLast) {
			e.Do = ui.EntryIdle
		}
		for _, x := range []struct {
			text string
			to   *unit.Rate
		}{{t.Down, &e.Down}, {t.Up, &e.Up}} {
			if x.text == "" {
				continue
			}
			var err error
			if *x.to, err = unit.ParseRate(x.text); err != nil {
				return out, err
			}
		}
		out.Entries = append(out.Entries, e)
	}
	return out, nil
}
