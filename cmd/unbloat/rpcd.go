package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"unbloat/guard"
	"unbloat/internal/cure/apply"
	kept "unbloat/internal/keep/config"
	"unbloat/internal/keep/daemon"
	"unbloat/internal/show/cli"
	"unbloat/reason"
	"unbloat/unit"
)

// OpenWrt's rpcd runs a program for each call that LuCI makes: with `list` it says
// which methods it has, with `call METHOD` it reads the arguments as one JSON object
// and prints the answer as another. rpcd ends a call after 120 s. What a method may be
// called by is in LuCI's access control list.

// The methods that the program has itself. Those of rpcdPassed go to the daemon as
// they are.
const (
	rpcdStatus = "status" // rpcdArgs → rpcdState
	rpcdRates  = "rates"  // rpcdArgs → daemon.Applied: other usual rates, until confirm or the deadline
	rpcdTest   = "test"   // rpcdArgs → daemon.Started
	rpcdTune   = "tune"   // the same
	rpcdStop   = "stop"   // → daemon.RunStatus: ends the newest of these
	rpcdEnter  = "enter"  // → rpcdPage: into the router's page, for whoever may change things
	rpcdLook   = "look"   // → rpcdPage: the same, for whoever may look
	rpcdWhile  = "while"  // rpcdArgs → daemon.While: an hour without shaping, or with a machine first

	rpcdIncidents = "incidents" // rpcdArgs → rpcdWrong
)

// rpcdPassed are methods of the daemon's socket.
func rpcdPassed() []string {
	return []string{daemon.MethodConfirm, daemon.MethodRevert, daemon.MethodOn}
}

// rpcdArgs are the arguments of every method; each takes some of them.
type rpcdArgs struct {
	WAN     string  `json:"wan,omitempty"`
	Router  string  `json:"router,omitempty"`
	Lang    string  `json:"lang,omitempty"`    // of texts, as a browser names it
	Down    string  `json:"down,omitempty"`    // what the line carries, as in "50 Mbit/s"
	Up      string  `json:"up,omitempty"`      // the same
	Seconds float64 `json:"seconds,omitempty"` // until the change is undone
	Do      string  `json:"do,omitempty"`      // of while: off or first
	Machine string  `json:"machine,omitempty"` // of first
}

// rpcdWrong is what went wrong within a week, the newest first.
type rpcdWrong struct {
	Watched   bool           `json:"watched"`
	Incidents []rpcdIncident `json:"incidents"`
}

// rpcdIncident is an incident in the words of a language.
type rpcdIncident struct {
	WAN      string    `json:"wan"`
	Begin    time.Time `json:"begin"`
	Seconds  float64   `json:"seconds"`
	Over     bool      `json:"over"`
	Kind     string    `json:"kind"`
	Part     string    `json:"part"`
	Severity string    `json:"severity"`
	Text     string    `json:"text"`
}

// rpcdState is how all is, for a page.
type rpcdState struct {
	Running bool      `json:"running"`           // the daemon
	Problem string    `json:"problem,omitempty"` // what is wrong with the configuration
	Version string    `json:"version"`
	Config  string    `json:"config"`
	WANs    []rpcdWAN `json:"wans"`
	Can     bool      `json:"can_measure"`   // so test and tune work
	Page    bool      `json:"page"`          // there is one, for enter and look
	Run     *rpcdRun  `json:"run,omitempty"` // the newest test or tuning; missing: none lately
}

// rpcdPage is the way into the router's page: rpcd has checked who asks.
type rpcdPage struct {
	URLs   []string `json:"urls"`
	Ticket string   `json:"ticket"`
}

// rpcdRun is how a test or a tuning goes.
type rpcdRun struct {
	Method  string          `json:"method"`
	WAN     string          `json:"wan"`
	Router  string          `json:"router,omitempty"`
	State   daemon.RunState `json:"state"`
	Seconds float64         `json:"seconds"`
	Grade   string          `json:"grade,omitempty"` // at the end, with what is kept
	Text    string          `json:"text,omitempty"`  // why it failed, or tells too little
}

// rpcdWAN is a WAN for a page.
type rpcdWAN struct {
	daemon.WANStatus
	LineDown unit.Rate `json:"line_down_bps"` // the usual rates; 0: not given
	LineUp   unit.Rate `json:"line_up_bps"`
	Follow   bool      `json:"follow"`
	Pending  float64   `json:"undone_in_seconds,omitempty"` // a change waits for confirmation
	WhyDown  string    `json:"why_down,omitempty"`          // why the rate is what it is
	WhyUp    string    `json:"why_up,omitempty"`
}

func newRpcdCommand() *cobra.Command {
	f := daemonFlags{}
	c := &cobra.Command{
		Use:    "rpcd list|call",
		Short:  "Answer OpenWrt's rpcd, for LuCI",
		Hidden: true,
		Args:   cobra.RangeArgs(1, 2),
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case args[0] == "list" && len(args) == 1:
				return cli.PrintJSON(c.OutOrStdout(), rpcdMethods())
			case args[0] == "call" && len(args) == 2:
				answer, err := f.rpcd(c.Context(), args[1], c.InOrStdin())
				if err != nil {
					answer = map[string]any{"error": rpcdError(err)}
				}
				return cli.PrintJSON(c.OutOrStdout(), answer)
			}
			return cli.UsageError("rpcd: it takes list, or call and a METHOD")
		},
	}
	c.Flags().StringVar(&f.config, "config", "/etc/config/unbloat", "the daemon's configuration")
	c.Flags().StringVar(&f.stateDir, "state-dir", stateDirOf(os.Getenv), "where the daemon's socket is")
	return c
}

// rpcdMethods are the methods with their arguments, each with a value of its type.
func rpcdMethods() map[string]map[string]any {
	where := map[string]any{"wan": "", "router": ""}
	out := map[string]map[string]any{
		rpcdStatus: {"lang": ""},
		rpcdRates:  {"wan": "", "router": "", "down": "", "up": "", "seconds": 60},
		rpcdTest:   where,
		rpcdTune:   where,
		rpcdStop:   {},
		rpcdEnter:  {},
		rpcdLook:   {},
		rpcdWhile:  {"wan": "", "router": "", "do": "", "machine": "", "seconds": 3600},

		rpcdIncidents: {"lang": ""},
	}
	for _, m := range rpcdPassed() {
		out[m] = where
	}
	return out
}

func rpcdError(err error) *daemon.Error {
	var e *daemon.Error
	if errors.As(err, &e) {
		return e
	}
	return &daemon.Error{Code: codeOf(err), Text: err.Error()}
}

// rpcd does what a call asks for.
func (f *daemonFlags) rpcd(ctx context.Context, method string, in io.Reader) (any, error) {
	var a rpcdArgs
	text, err := guard.Limit{Size: daemon.MostLine}.Read(in)
	if err == nil && len(text) > 0 {
		err = json.Unmarshal(text, &a)
	}
	if err != nil {
		return nil, cli.UsageError("rpcd: read the arguments of %s: %w", method, err)
	}
	switch {
	case method == rpcdStatus:
		return f.rpcdStatus(ctx, a)
	case method == rpcdRates:
		return f.rpcdRates(ctx, a)
	case method == rpcdTest:
		return f.rpcdAsk(ctx, daemon.MethodTest, a, daemon.TestParams{Unattended: true})
	case method == rpcdTune:
		return f.rpcdAsk(ctx, daemon.MethodTune, a, daemon.TuneParams{Unattended: true})
	case method == rpcdEnter:
		return f.rpcdPage(ctx, a, daemon.EnterAdmin)
	case method == rpcdLook:
		return f.rpcdPage(ctx, a, daemon.EnterViewer)
	case method == rpcdWhile:
		return f.rpcdAsk(ctx, daemon.MethodWhile, a, daemon.WhileParams{Do: a.Do, Machine: a.Machine, Seconds: a.Seconds})
	case method == rpcdIncidents:
		return f.rpcdIncidents(ctx, a)
	case method == rpcdStop:
		return f.rpcdAsk(ctx, daemon.MethodRun, a, daemon.RunParams{Stop: true})
	case slices.Contains(rpcdPassed(), method):
		return f.rpcdAsk(ctx, method, a, nil)
	}
	return nil, &daemon.Error{Code: daemon.CodeMethod, Text: fmt.Sprintf("there is no method %q", method)}
}

// rpcdAsk calls a method of the daemon.
func (f *daemonFlags) rpcdAsk(ctx context.Context, method string, a rpcdArgs, params any) (json.RawMessage, error) {
	c, err := daemon.Dial(ctx, daemon.Socket(f.stateDir))
	if err != nil {
		return nil, &daemon.Error{Code: daemon.CodePrecondition, Text: err.Error()}
	}
	defer c.Close()
	var out json.RawMessage
	return out, c.Call(ctx, method, a.Router, a.WAN, params, &out)
}

// rpcdIncidents tells what went wrong lately.
func (f *daemonFlags) rpcdIncidents(ctx context.Context, a rpcdArgs) (*rpcdWrong, error) {
	const span, most = 7 * 24 * time.Hour, 20
	now := time.Now()
	text, err := f.rpcdAsk(ctx, daemon.MethodIncidents, rpcdArgs{}, daemon.IncidentsParams{From: now.Add(-span).UTC().Format(time.RFC3339)})
	if err != nil {
		return nil, err
	}
	var all daemon.Incidents
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, err
	}
	out := &rpcdWrong{Watched: len(all.Watched) > 0, Incidents: []rpcdIncident{}}
	l := reason.Choose(a.Lang)
	for _, x := range slices.Backward(all.Incidents[max(0, len(all.Incidents)-most):]) {
		out.Incidents = append(out.Incidents, rpcdIncident{x.WAN, x.Begin, x.Lasted(now).Seconds(), x.Over(), l.Name("kind " + string(x.Kind)), l.Name("part " + string(x.Part)), l.Name("severity " + string(x.Severity)),
			x.What.Text(l, reason.Page) + " (" + x.Why.Text(l, reason.Page) + ")"})
	}
	return out, nil
}

// rpcdPage returns the way into the router's page, without the token, which would set
// its password.
func (f *daemonFlags) rpcdPage(ctx context.Context, a rpcdArgs, role string) (*rpcdPage, error) {
	text, err := f.rpcdAsk(ctx, daemon.MethodPage, a, daemon.PageParams{Enter: role})
	if err != nil {
		return nil, err
	}
	var p rpcdPage
	return &p, json.Unmarshal(text, &p)
}

// rpcdStatus says how all is. It works without a daemon too, and says then what
// keeps one from starting.
func (f *daemonFlags) rpcdStatus(ctx context.Context, a rpcdArgs) (*rpcdState, error) {
	s := &rpcdState{Version: version, Config: f.config, WANs: []rpcdWAN{}}
	conf, bad := daemon.Load(ctx, f.config, nil)
	if bad != nil {
		s.Problem = bad.Error()
	}
	var is daemon.Status
	c, err := daemon.Dial(ctx, daemon.Socket(f.stateDir))
	if errors.Is(err, daemon.ErrNoDaemon) {
		return s, nil
	}
	if err == nil {
		defer c.Close()
		err = c.Call(ctx, daemon.MethodStatus, "", "", nil, &is)
	}
	if err != nil {
		return nil, err
	}
	s.Running, s.Version, s.Config = true, is.Version, is.Config
	if is.Failure != "" {
		s.Problem = is.Failure
	}
	s.Can, s.Page = true, conf.UI.Listen.IsValid()
	if s.Run, err = rpcdRunOf(ctx, c); err != nil {
		return nil, err
	}
	language := reason.Choose(a.Lang)
	for _, w := range is.WANs {
		x := rpcdWAN{WANStatus: w}
		if j := f.pending(ctx, w); j != nil {
			x.Pending = max((j.Deadline - apply.Uptime()).Seconds(), 0.1)
			x.Down, x.Up = j.Plan.DownBps, j.Plan.UpBps // what is there now
		}
		for _, c := range conf.WANs {
			if c.Interface == w.WAN && c.Router == w.Router {
				x.LineDown, x.LineUp, x.Follow = c.Down, c.Up, c.Follow
			}
		}
		if w.Line != nil {
			x.WhyDown, x.WhyUp = w.Line.Down.Why.Reason().Text(language, reason.Page), w.Line.Up.Why.Reason().Text(language, reason.Page)
		}
		s.WANs = append(s.WANs, x)
	}
	return s, nil
}

// rpcdRunOf asks for the newest run. Whoever asks keeps it going.
func rpcdRunOf(ctx context.Context, c *daemon.Client) (*rpcdRun, error) {
	var is daemon.RunStatus
	err := c.Call(ctx, daemon.MethodRun, "", "", daemon.RunParams{}, &is)
	var refused *daemon.Error
	if errors.As(err, &refused) {
		return nil, nil // there is none
	}
	if err != nil {
		return nil, err
	}
	r := &rpcdRun{Method: is.Method, WAN: is.WAN, Router: is.Router, State: is.State, Seconds: is.Seconds}
	if is.Error != nil {
		r.Text = is.Error.Text
	}
	var found struct {
		Grade string
		After *struct{ Grade string }
	}
	if json.Unmarshal(is.Result, &found) == nil {
		r.Grade = found.Grade
		if found.After != nil {
			r.Grade = found.After.Grade
		}
	}
	return r, nil
}

// pending returns the change of a WAN that waits for somebody who confirms it; nil:
// none waits, or that is not known here.
func (f *daemonFlags) pending(ctx context.Context, w daemon.WANStatus) *apply.Journal {
	if w.Router != "" || w.Platform == "" {
		return nil
	}
	at := routerFlags{targetFlags: targetFlags{platform: w.Platform, ownTC: w.OwnTC}, stateDir: f.stateDir}
	r, err := at.open(ctx)
	if err != nil {
		return nil
	}
	defer r.Close()
	j, err := r.engine.Pending(w.WAN)
	if err != nil {
		return nil
	}
	return j
}

// rpcdRates applies other usual rates to a WAN. They are kept if somebody confirms
// them in time.
func (f *daemonFlags) rpcdRates(ctx context.Context, a rpcdArgs) (any, error) {
	conf, err := daemon.Load(ctx, f.config, nil)
	if err != nil {
		return nil, cli.UsageError("%w", err)
	}
	i := slices.IndexFunc(conf.WANs, func(w kept.WAN) bool { return w.Interface == a.WAN && w.Router == a.Router })
	if i < 0 {
		return nil, &daemon.Error{Code: daemon.CodeUnknownWAN, Text: fmt.Sprintf("%s has no %q", f.config, a.WAN)}
	}
	w := conf.WANs[i]
	for _, x := range []struct {
		text string
		to   *unit.Rate
	}{{a.Down, &w.Down}, {a.Up, &w.Up}} {
		if x.text == "" {
			continue
		}
		if *x.to, err = unit.ParseRate(x.text); err != nil {
			return nil, cli.UsageError("%w", err)
		}
	}
	if key, err := f.checkWAN(ctx, w); err != nil {
		return nil, cli.UsageError("%s: %w", key, err)
	}
	r, err := f.open(ctx, w)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	p, err := r.Plan(ctx, w)
	if err != nil {
		return nil, err
	}
	if a.Seconds <= 0 {
		a.Seconds = time.Minute.Seconds()
	}
	return f.rpcdAsk(ctx, daemon.MethodApply, a, daemon.ApplyParams{Plan: p, Confirm: a.Seconds})
}
