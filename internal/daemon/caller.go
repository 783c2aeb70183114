package daemon

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"time"

	"unbloat/internal/classify"
	"unbloat/internal/daemon/config"
	"unbloat/internal/daemon/keep"
	"unbloat/internal/lang/nft"
	"unbloat/internal/plan"
	"unbloat/unit"
)

// A Caller asks the daemon from within its own process, as Client.Call does from
// without. Errors are *Error.
type Caller func(ctx context.Context, method, router, wan string, params, result any) error

// Names of who asks, for events.
const (
	byCommand = "command"
	byPage    = "page"
)

// ask is a Caller.
func (d *Daemon) ask(ctx context.Context, method, router, wan string, params, result any) error {
	r := Request{Method: method, Router: router, WAN: wan}
	if params != nil {
		b, err := json.Marshal(params)
		if err != nil {
			return err
		}
		r.Params = b
	}
	c := &client{d: d, name: byPage}
	defer c.leave()
	out, err := d.contain("a request of the page", func() (any, error) { return c.do(ctx, r) })
	if err != nil {
		return errorFor(err, d.o.Classify)
	}
	if result == nil {
		return nil
	}
	// What is there already need not be written and read again, which takes a page that
	// asks each second most of its time.
	if to, from := reflect.ValueOf(result), reflect.ValueOf(out); to.Kind() == reflect.Pointer && from.IsValid() && from.Type() == to.Elem().Type() {
		to.Elem().Set(from)
		return nil
	}
	b, err := json.Marshal(out)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, result)
}

// doPage does what those ask for who show and change a WAN's settings; known is false
// for another method.
func (c *client) doPage(ctx context.Context, r Request) (out any, known bool, err error) {
	switch r.Method {
	case MethodSettings:
		out, err = c.settings(r)
	case MethodEvents:
		out = c.d.events.newest(func(e Happening) bool {
			return (r.WAN == "" || r.WAN == e.WAN) && (r.WAN == "" && r.Router == "" || r.Router == e.Router)
		})
	case MethodChange:
		var p ChangeParams
		if err = params(r, &p); err == nil {
			out, err = c.on(ctx, r, func(ctx context.Context, w *wan) (any, error) { return w.change(ctx, c, p) })
		}
	case MethodClasses:
		var p ClassesParams
		if err = params(r, &p); err == nil {
			out, err = c.classes(ctx, r, p)
		}
	case MethodSchedule:
		var p ScheduleParams
		if err = optional(r, &p); err == nil {
			out, err = c.schedule(ctx, p)
		}
	case MethodPage:
		var p PageParams
		if len(r.Params) > 0 {
			err = params(r, &p)
		}
		c.d.mu.Lock()
		page, syntax := c.d.page, c.d.config.Syntax()
		c.d.mu.Unlock()
		switch {
		case err != nil:
		case page == nil:
			err = &Error{CodePrecondition, fmt.Sprintf("the daemon serves no page; add %s with %s to its configuration, %s", syntax.Table("ui"), syntax.Sets(config.PageListen()), c.d.o.File)}
		case p.Enter != "" && p.Enter != EnterAdmin && p.Enter != EnterViewer || p.Enter != "" && p.NewToken:
			err = &Error{CodeUsage, fmt.Sprintf("page: enter is %s or %s, without new_token", EnterAdmin, EnterViewer)}
		default:
			out = page(p)
		}
	default:
		return nil, false, nil
	}
	return out, true, err
}

// settings returns those of the WAN that the request names, or of all.
func (c *client) settings(r Request) (any, error) {
	of := c.d.all()
	if r.WAN != "" || r.Router != "" {
		w, err := c.d.find(r)
		if err != nil {
			return nil, err
		}
		of = []*wan{w}
	}
	out := []Settings{}
	for _, w := range of {
		w.mu.Lock()
		s, p := w.set, w.setPlan
		s.First, s.Last = slices.Clone(s.First), slices.Clone(s.Last)
		if s.Change != nil {
			x := *s.Change
			x.Left = max(time.Until(w.deadline).Seconds(), 0)
			s.Change = &x
		}
		w.mu.Unlock()
		s.explain(p)
		out = append(out, s)
	}
	return out, nil
}

// classes tells the classes of flows by what is in force. The loop only says what that
// is: to read the router's sets takes time.
func (c *client) classes(ctx context.Context, r Request, p ClassesParams) (any, error) {
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
	got, err := c.on(ctx, r, func(ctx context.Context, w *wan) (any, error) {
		if err := w.open(ctx); err != nil {
			return nil, err
		}
		in := force{w.plan, w.router}
		if j, err := w.router.Engine.Pending(w.config.Interface); err == nil && j != nil {
			in.plan = &j.Plan
		}
		if w.keeper.State() == keep.Suspended {
			in.plan = nil
		}
		return in, nil
	})
	if err != nil {
		return nil, err
	}
	in, _ := got.(force)
	out := make([]FlowClasses, len(known))
	for i := range out {
		out[i] = FlowClasses{FlowClass{Why: []ClassWhy{}}, FlowClass{Why: []ClassWhy{}}}
	}
	if in.plan == nil || in.plan.Classes == nil {
		return out, nil
	}
	holds := func(string, string) bool { return false }
	if of := in.router.Driver.Classes; of != nil && of.Sets != nil {
		holds = of.Sets(ctx, in.router.Engine.Runner)
	}
	decider := nft.NewDecider(*in.plan)
	for i, f := range known {
		if f.Protocol == "" || p.Flows[i].Protocol == "other" {
			continue
		}
		ct := nft.Connection{Known: true, Answered: p.Flows[i].Answered, Bytes: p.Flows[i].Bytes, Mark: p.Flows[i].Mark}
		for d, to := range map[plan.Direction]*FlowClass{plan.DirectionDown: &out[i].Down, plan.DirectionUp: &out[i].Up} {
			class, why, ok := decider.Reasons(d, f, ct, holds)
			if !ok {
				continue
			}
			to.Class = string(class)
			for _, w := range why {
				to.Why = append(to.Why, ClassWhy{Code: w.Code.Name(), Rule: ruleName(in.plan, w)})
			}
		}
	}
	return out, nil
}

// ruleName is how people know the rule of a reason; "" if it is of none.
func ruleName(p *plan.Plan, w classify.Reason) string {
	if w.Code != classify.ByRule || w.Rule >= len(p.Classes.Rules) {
		return ""
	}
	return cmp.Or(p.Classes.Rules[w.Rule].Name, strconv.Itoa(w.Rule+1))
}
