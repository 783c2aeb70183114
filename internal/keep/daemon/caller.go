package daemon

import (
	"cmp"
	"context"
	"fmt"
	"strconv"

	"unbloat/internal/cure/classify"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/keep/config"
	"unbloat/internal/keep/supervise"
	"unbloat/unit"
)

// A Caller asks the daemon: a connection to its socket, or the router's page. Its
// methods are those of the socket. Errors are *Error, or mean CodeFailed.
type Caller struct {
	d    *Daemon
	name string // for events; "": a command
	does string // the command that has a turn
	turn []*wan
	runs []*run // that end with the caller
}

// A Name names a WAN.
type Name struct {
	WAN    string `json:"wan,omitempty"`    // interface; "": the only one
	Router string `json:"router,omitempty"` // address; "": the daemon's own machine
}

// Names of who asks, for events.
const (
	byCommand = "command"
	byPage    = "page"

	bySchedule = "schedule"
	byMQTT     = "mqtt"
)

// by names who asks, for events.
func (c *Caller) by() string { return cmp.Or(c.name, byCommand) }

// Page is the Caller that the router's page is.
func (d *Daemon) Page() *Caller { return &Caller{d: d, name: byPage} }

// find returns the WAN that is named; without a name, the only one.
func (d *Daemon) find(at Name) (*wan, error) {
	var found []*wan
	for _, w := range d.all() {
		if w.routerName == at.Router && (at.WAN == "" || w.name == at.WAN) {
			found = append(found, w)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return nil, &Error{CodeUsage, "several WANs are kept; say which with wan"}
	}
	return nil, d.unknown(at)
}

func (d *Daemon) unknown(at Name) error {
	return &Error{CodeUnknownWAN, fmt.Sprintf("the daemon keeps no %s; its configuration is %s", keyOf(at.Router, at.WAN), d.o.File)}
}

// named returns the WAN that is named; without a name, all.
func (d *Daemon) named(at Name) ([]*wan, error) {
	if at == (Name{}) {
		return d.all(), nil
	}
	w, err := d.find(at)
	return []*wan{w}, err
}

// within does something in the loop of a WAN. Its errors are *Error.
func within[T any](ctx context.Context, w *wan, f func(context.Context) (T, error)) (out T, err error) {
	got, err := w.call(ctx, func(ctx context.Context) (any, error) { return f(ctx) })
	if err != nil {
		return out, errorFor(err, w.d.o.Classify)
	}
	out, _ = got.(T)
	return out, nil
}

// on does something in the loop of the WAN that is named.
func on[T any](ctx context.Context, d *Daemon, at Name, f func(context.Context, *wan) (T, error)) (out T, err error) {
	w, err := d.find(at)
	if err != nil {
		return out, err
	}
	return within(ctx, w, func(ctx context.Context) (T, error) { return f(ctx, w) })
}

// Status says how the daemon is, with the WAN that is named, or all.
func (c *Caller) Status(_ context.Context, at Name) (Status, error) {
	s := c.d.status()
	if at == (Name{}) {
		return s, nil
	}
	w, err := c.d.find(at)
	if err != nil {
		return s, err
	}
	one, _ := w.snapshot()
	s.WANs = []WANStatus{one}
	return s, nil
}

// Apply applies a plan to the plan's WAN.
func (c *Caller) Apply(ctx context.Context, at Name, p ApplyParams) (out Applied, err error) {
	if at.WAN != "" && at.WAN != p.Plan.WAN {
		return out, &Error{CodeUsage, fmt.Sprintf("apply to %s: the plan is for %q; make one for it", at.WAN, p.Plan.WAN)}
	}
	at.WAN = p.Plan.WAN
	return on(ctx, c.d, at, func(ctx context.Context, w *wan) (Applied, error) { return w.apply(ctx, c, p) })
}

// Confirm keeps what waits for that.
func (c *Caller) Confirm(ctx context.Context, at Name, p IDParams) (Applied, error) {
	return on(ctx, c.d, at, func(ctx context.Context, w *wan) (out Applied, err error) {
		if err := w.changes.pending.waiting(w.config.Name(), p.Change); err != nil {
			return out, err
		}
		return w.confirm(ctx, c)
	})
}

// Revert takes back what waits for its confirmation, or else all that is shaped.
func (c *Caller) Revert(ctx context.Context, at Name, p IDParams) (Reverted, error) {
	return on(ctx, c.d, at, func(ctx context.Context, w *wan) (out Reverted, err error) {
		if err := w.changes.pending.waiting(w.config.Name(), p.Change); err != nil {
			return out, err
		}
		return w.revert(ctx, c)
	})
}

// On puts the WAN in place, and turns it on if it is off.
func (c *Caller) On(ctx context.Context, at Name, p OnParams) (WANStatus, error) {
	return on(ctx, c.d, at, func(ctx context.Context, w *wan) (WANStatus, error) { return w.on(ctx, c, p) })
}

// Turn gives the caller the turn on a WAN, or on all of a router. It waits for what is
// being done there.
func (c *Caller) Turn(ctx context.Context, at Name, p TurnParams) (out Turn, err error) {
	if c.turn != nil {
		return out, &Error{CodeUsage, "you have a turn already; it ends with the connection"}
	}
	if p.For == "" {
		return out, &Error{CodeUsage, "turn: say what for"}
	}
	c.does = p.For
	out.WANs = []string{}
	for _, w := range c.d.all() {
		if w.routerName != at.Router || at.WAN != "" && w.name != at.WAN {
			continue
		}
		if _, err := within(ctx, w, func(context.Context) (any, error) { return nil, w.turn(c, p.KeepOn) }); err != nil {
			c.leave()
			return out, err
		}
		c.turn = append(c.turn, w)
		out.WANs = append(out.WANs, w.name)
	}
	if len(c.turn) == 0 {
		return out, c.d.unknown(at)
	}
	return out, nil
}

// goes ends what ends with the caller.
func (c *Caller) goes() {
	for _, r := range c.runs {
		r.cancel()
	}
	c.leave()
}

// leave gives back the turn.
func (c *Caller) leave() {
	for _, w := range c.turn {
		_, _ = w.call(context.Background(), func(context.Context) (any, error) { w.release(c); return nil, nil })
	}
	c.turn = nil
}

// Look has every WAN looked at soon; the one that is named has come or gone.
func (c *Caller) Look(_ context.Context, at Name) (any, error) {
	c.d.look(at.WAN)
	return nil, nil
}

// Decisions returns the newest decisions of the WAN that is named, or of all.
func (c *Caller) Decisions(_ context.Context, at Name, p DecisionsParams) (out Decisions, err error) {
	of, err := c.d.named(at)
	if err != nil {
		return out, err
	}
	return c.d.decisions(of, p), nil
}

// Why says which class a flow has, as `unbloat why --json` prints it.
func (c *Caller) Why(ctx context.Context, at Name, p WhyParams) (any, error) {
	return on(ctx, c.d, at, func(ctx context.Context, w *wan) (any, error) { return w.whyFlow(ctx, p) })
}

// Tune begins a tuning.
func (c *Caller) Tune(ctx context.Context, at Name, p TuneParams) (Started, error) {
	return c.begin(ctx, at, MethodTune, p, p.Unattended)
}

// Test begins a test.
func (c *Caller) Test(ctx context.Context, at Name, p TestParams) (Started, error) {
	return c.begin(ctx, at, MethodTest, p, p.Unattended)
}

func (c *Caller) begin(ctx context.Context, at Name, method string, params any, unattended bool) (out Started, err error) {
	w, err := c.d.find(at)
	if err != nil {
		return out, err
	}
	return c.d.begin(ctx, c, w, method, params, unattended)
}

// History returns what a line did. While nothing is known of it there is an empty one
// with the error.
func (c *Caller) History(ctx context.Context, at Name, p HistoryParams) (out History, err error) {
	w, err := c.d.find(at)
	if err != nil {
		return out, err
	}
	return w.history(ctx, p)
}

// Settings returns those of the WAN that is named, or of all.
func (c *Caller) Settings(_ context.Context, at Name) ([]Settings, error) {
	of, err := c.d.named(at)
	if err != nil {
		return nil, err
	}
	out := []Settings{}
	for _, w := range of {
		s, p := w.board.settings()
		s.explain(p)
		out = append(out, s)
	}
	return out, nil
}

// Change changes settings of a WAN until they are confirmed.
func (c *Caller) Change(ctx context.Context, at Name, p ChangeParams) (Change, error) {
	return on(ctx, c.d, at, func(ctx context.Context, w *wan) (Change, error) { return w.change(ctx, c, p) })
}

// Events returns what happened to the WAN that is named, or to all, newest first.
func (c *Caller) Events(_ context.Context, at Name) ([]Happening, error) {
	return c.d.events.newest(func(e Happening) bool {
		return (at.WAN == "" || at.WAN == e.WAN) && (at == (Name{}) || at.Router == e.Router)
	}), nil
}

// Classes tells the classes of flows by what is in force. The loop only says what that
// is: to read the router's sets takes time.
func (c *Caller) Classes(ctx context.Context, at Name, p ClassesParams) ([]FlowClasses, error) {
	if len(p.Flows) > MostClassed {
		return nil, &Error{CodeUsage, fmt.Sprintf("classes: at most %d flows", MostClassed)}
	}
	var known []classify.Flow
	for _, f := range p.Flows {
		x, err := classify.ParseFlow(f.Protocol + " " + f.Home + " > " + f.Far)
		if err != nil && f.Protocol != "other" {
			return nil, &Error{CodeUsage, "classes: " + err.Error()}
		}
		if f.Packets > 0 {
			x.Packet = min(max(f.Bytes/unit.Size(f.Packets), 20), 1500)
		}
		known = append(known, x)
	}
	type force struct {
		plan   *plan.Plan
		router *Router
	}
	in, err := on(ctx, c.d, at, func(ctx context.Context, w *wan) (in force, err error) {
		if err := w.open(ctx); err != nil {
			return in, err
		}
		in = force{w.plan, w.router}
		if j, err := w.router.Engine.Pending(w.config.Interface); err == nil && j != nil {
			in.plan = &j.Plan
		}
		if w.supervisor.State() == supervise.Suspended {
			in.plan = nil
		}
		return in, nil
	})
	if err != nil {
		return nil, err
	}
	out := make([]FlowClasses, len(known))
	for i := range out {
		out[i] = FlowClasses{FlowClass{Why: []ClassWhy{}}, FlowClass{Why: []ClassWhy{}}}
	}
	if in.plan == nil || in.plan.Classes == nil {
		return out, nil
	}
	decided := func(f classify.Flow, d plan.Direction, carried unit.Size) (platform.Decided, bool) {
		return platform.ByRules(*in.plan, d, f, carried, func(int, bool) bool { return false })
	}
	if of := in.router.Driver.Classes; of != nil && of.Decided != nil {
		decided = of.Decided(ctx, in.router.Engine.Runner, *in.plan)
	}
	for i, f := range known {
		if f.Protocol == "" || p.Flows[i].Protocol == "other" {
			continue
		}
		for d, to := range map[plan.Direction]*FlowClass{plan.DirectionDown: &out[i].Down, plan.DirectionUp: &out[i].Up} {
			x, ok := decided(f, d, p.Flows[i].Bytes)
			if !ok {
				continue
			}
			to.Class = string(x.Class)
			to.Why = append(to.Why, ClassWhy{Code: x.Code.Name(), Rule: ruleName(in.plan, x)})
		}
	}
	return out, nil
}

// ruleName is how people know the rule that decided; "" if none did.
func ruleName(p *plan.Plan, x platform.Decided) string {
	if x.Code != classify.ByRule || x.Rule >= len(p.Classes.Rules) {
		return ""
	}
	return cmp.Or(p.Classes.Rules[x.Rule].Name, strconv.Itoa(x.Rule+1))
}

// Page says how the router's page is reached.
func (c *Caller) Page(_ context.Context, _ Name, p PageParams) (out Page, err error) {
	c.d.mu.Lock()
	page, syntax := c.d.page, c.d.config.Syntax()
	c.d.mu.Unlock()
	switch {
	case page == nil:
		return out, &Error{CodePrecondition, fmt.Sprintf("the daemon serves no page; add %s with %s to its configuration, %s", syntax.Table("ui"), syntax.Sets(config.PageListen()), c.d.o.File)}
	case p.Enter != "" && p.Enter != EnterAdmin && p.Enter != EnterViewer || p.Enter != "" && p.NewToken:
		return out, &Error{CodeUsage, fmt.Sprintf("page: enter is %s or %s, without new_token", EnterAdmin, EnterViewer)}
	}
	return page(p), nil
}
