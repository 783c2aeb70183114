// Package opnsense is the driver for OPNsense routers, through their REST API:
// a plan becomes pipes, queues and rules of the traffic shaper, with fixed
// uuids, so that applying again changes the same items. Its commands are
// requests: argv is method and path, standard input the body. It implements
// platform.Backend.
package opnsense

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"unbloat/internal/cure/lang/dummynet"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
)

const (
	settings    = "/api/trafficshaper/settings/"
	reconfigure = "/api/trafficshaper/service/reconfigure"
	statistics  = "/api/trafficshaper/service/statistics"
)

// A Backend applies plans to one OPNsense router through Runner.
type Backend struct {
	platform.Plain
	Runner platform.Runner
}

// An Item is one pipe, queue or rule: all its fields are strings.
type Item struct {
	Kind   string            `json:"kind"` // pipe, queue or rule
	UUID   string            `json:"uuid"`
	Fields map[string]string `json:"fields"`
}

// A state holds our items, saved and running.
type state struct {
	Items  []Item   `json:"items"`
	Live   []string `json:"live"`
	Others []string `json:"others,omitempty"` // somebody else's rules, "interface: description"
	Taken  []string `json:"taken,omitempty"`  // numbers of somebody else's pipes and queues, "pipe 10000"
}

// kinds returns the kinds of items in order of creation.
func kinds() []string { return []string{"pipe", "queue", "rule"} }

// own returns the name of our item, "" if the uuid isn't ours. earlier says
// that the uuid has a form that OPNsense no longer accepts since 23.1: the item
// is older.
func own(kind, uuid string) (name string, earlier bool) {
	for _, n := range dummynet.ItemNames(kind) {
		switch uuid {
		case dummynet.UUID(kind + " " + n):
			return n, false
		case dummynet.EarlierUUID(kind + " " + n):
			return n, true
		}
	}
	return "", false
}

// ours reports whether a uuid is one of ours.
func ours(kind, uuid string) bool {
	name, _ := own(kind, uuid)
	return name != ""
}

// Observe reads the shaper's settings and its statistics.
func (b *Backend) Observe(ctx context.Context, _ plan.Plan, _ platform.State) (platform.State, error) {
	out, err := platform.Output(ctx, b.Runner, "GET", settings+"get")
	if err != nil {
		return nil, fmt.Errorf("read the traffic shaper's settings: %w", err)
	}
	s, err := parseSettings(out)
	if err != nil {
		return nil, err
	}
	if out, err = platform.Output(ctx, b.Runner, "GET", statistics); err != nil {
		return nil, fmt.Errorf("read the traffic shaper's statistics: %w", err)
	}
	if s.Live, err = parseStatistics(out); err != nil {
		return nil, err
	}
	return json.Marshal(s)
}

// parseSettings reads the answer of settings/get.
func parseSettings(b []byte) (s state, err error) {
	all, err := parseItems(b)
	for _, x := range all {
		s.add(x.Kind, x.UUID, x.Fields)
	}
	return s, err
}

// parseItems returns all items of settings/get, ours and others.
func parseItems(b []byte) (out []Item, err error) {
	var all struct {
		TS entries[entries[json.RawMessage]] `json:"ts"`
	}
	if err := json.Unmarshal(b, &all); err != nil {
		return nil, fmt.Errorf("read the traffic shaper's settings: %w", err)
	}
	for _, kind := range kinds() {
		var items entries[entries[json.RawMessage]]
		if raw := all.TS[kind+"s"][kind]; raw != nil {
			if err := json.Unmarshal(raw, &items); err != nil {
				return nil, fmt.Errorf("read the traffic shaper's %ss: %w", kind, err)
			}
		}
		for _, uuid := range slices.Sorted(maps.Keys(items)) {
			fields := map[string]string{}
			for name, raw := range items[uuid] {
				fields[name] = value(raw)
			}
			out = append(out, Item{kind, uuid, fields})
		}
	}
	return out, nil
}

// entries is a map in PHP's JSON, where an empty one is a list.
type entries[V any] map[string]V

// UnmarshalJSON reads an empty list as an empty map.
func (e *entries[V]) UnmarshalJSON(b []byte) error {
	if bytes.Equal(bytes.Join(bytes.Fields(b), nil), []byte("[]")) {
		*e = entries[V]{}
		return nil
	}
	return json.Unmarshal(b, (*map[string]V)(e))
}

func (s *state) add(kind, uuid string, fields map[string]string) {
	if ours(kind, uuid) {
		s.Items = append(s.Items, Item{kind, uuid, known(kind, fields)})
		return
	}
	if kind == "rule" && fields["enabled"] == "1" {
		s.Others = append(s.Others, fields["interface"]+": "+fields["description"])
	}
	if kind != "rule" {
		s.Taken = append(s.Taken, kind+" "+strings.TrimPrefix(strings.TrimSpace(fields["number"]), "+"))
	}
}

// known returns only the fields that our items use.
func known(kind string, fields map[string]string) map[string]string {
	out := map[string]string{}
	has := map[string]any{"pipe": dummynet.PipeItem{Queue: "x", CoDelTarget: "x", CoDelInterval: "x", Quantum: "x", Limit: "x", Flows: "x"}, "queue": dummynet.QueueItem{}, "rule": dummynet.RuleItem{DSCP: "x", IPLen: "x"}}[kind]
	if kind == "queue" && fields["codel_enable"] == "1" {
		has = dummynet.QueueItem{CoDelEnable: "x", CoDelTarget: "x", CoDelInterval: "x", CoDelECN: "x"}
	}
	for name := range asFields(has) {
		if v := fields[name]; v != "" {
			out[name] = v
		}
	}
	return out
}

func asFields(item any) map[string]string {
	b, err := json.Marshal(item)
	if err != nil {
		panic("marshal an item: " + err.Error()) // strings alone
	}
	var out map[string]string
	if err := json.Unmarshal(b, &out); err != nil {
		panic("an item has a field that is no string: " + err.Error())
	}
	return out
}

// value reads a field: a string, or a list of options of which some are selected.
func value(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var options map[string]struct {
		Selected json.RawMessage `json:"selected"`
	}
	if json.Unmarshal(raw, &options) != nil {
		return strings.Trim(string(raw), `"`)
	}
	var chosen []string
	for name, o := range options {
		if sel := strings.Trim(string(o.Selected), `"`); sel == "1" || sel == "true" {
			chosen = append(chosen, name)
		}
	}
	slices.Sort(chosen)
	return strings.Join(chosen, ",")
}

// parseStatistics returns a line for each of our running items.
func parseStatistics(b []byte) ([]string, error) {
	var all struct {
		Status string `json:"status"`
		Items  []struct {
			Type, UUID, BW string
			Weight         string
			Rules          []struct {
				UUID string `json:"rule_uuid"`
			}
		}
	}
	if err := json.Unmarshal(b, &all); err != nil {
		return nil, fmt.Errorf("read the traffic shaper's statistics: %w", err)
	}
	if all.Status != "ok" { // nothing has ever been loaded
		return []string{}, nil
	}
	live := []string{}
	for _, x := range all.Items {
		switch {
		case x.Type == "pipe" && ours("pipe", x.UUID):
			live = append(live, "pipe "+x.UUID+" bw "+strings.Join(strings.Fields(x.BW), " "))
		case x.Type == "queue" && ours("queue", x.UUID):
			live = append(live, queueLine(x.UUID, x.Weight))
		}
		for _, r := range x.Rules {
			if ours("rule", r.UUID) {
				live = append(live, ruleLine(r.UUID))
			}
		}
	}
	slices.Sort(live)
	return live, nil
}

// Desire returns the state that the plan asks for.
func (b *Backend) Desire(_ context.Context, p plan.Plan, now, _ platform.State) (platform.State, error) {
	if err := platform.CheckPlan(p, Language()); err != nil {
		return nil, err
	}
	s, err := decode(now)
	if err != nil {
		return nil, err
	}
	it, _, err := dummynet.RenderItems(p)
	if err != nil {
		return nil, err
	}
	if err := check(p, it, s); err != nil {
		return nil, err
	}
	w := state{Others: s.Others, Taken: s.Taken, Live: []string{}}
	add := func(kind, uuid string, item any) {
		fields := asFields(item)
		if kind != "rule" {
			fields["number"] = s.number(kind, uuid)
		}
		maps.DeleteFunc(fields, func(_, v string) bool { return v == "" })
		w.Items = append(w.Items, Item{kind, uuid, fields})
	}
	for _, x := range it.Pipes {
		add("pipe", x.UUID, x)
		r, _ := x.Shaper(p.WAN)
		w.Live = append(w.Live, pipeLine(x.UUID, r.Rate))
	}
	for _, x := range it.Queues {
		add("queue", x.UUID, x)
		w.Live = append(w.Live, queueLine(x.UUID, x.Weight))
	}
	for _, x := range it.Rules {
		add("rule", x.UUID, x)
		w.Live = append(w.Live, ruleLine(x.UUID))
	}
	slices.Sort(w.Live)
	return json.Marshal(w)
}

// number returns the number of our item: its present one, or the first free one
// in its range.
func (s state) number(kind, uuid string) string {
	for _, x := range s.Items {
		if x.Kind == kind && x.UUID == uuid && x.Fields["number"] != "" {
			return x.Fields["number"]
		}
	}
	name, _ := own(kind, uuid)
	return strconv.Itoa(dummynet.ItemNumber(kind, name, func(n int) bool { return slices.Contains(s.Taken, kind+" "+strconv.Itoa(n)) }))
}

// check returns an error if something prevents the plan.
func check(p plan.Plan, it dummynet.Items, s state) error {
	for _, o := range s.Others {
		if strings.HasPrefix(o, p.WAN+": ") {
			return &platform.PreconditionError{Doing: "shape " + p.WAN, What: "the traffic shaper has a rule for it that unbloat did not make (" + o + ")",
				Remedy: "switch that rule off in Firewall: Shaper: Rules, then try again"}
		}
	}
	for _, x := range s.Items {
		if _, earlier := own(x.Kind, x.UUID); earlier {
			return &platform.PreconditionError{Doing: "shape " + p.WAN, What: "the traffic shaper has items of an earlier unbloat, under uuids that OPNsense from 23.1 on takes for no new item, so that they could not be brought back",
				Remedy: "run `unbloat revert` first, which takes them away, and then apply again"}
		}
		if x.Kind == "rule" && x.Fields["interface"] != p.WAN {
			return &platform.PreconditionError{Doing: "shape " + p.WAN, What: "unbloat shapes " + x.Fields["interface"] + " here already, and has uuids for one WAN", Remedy: "run `unbloat revert` first"}
		}
	}
	for _, r := range it.Rules {
		if r.Source == dummynet.RouterAddress {
			return &platform.InputError{Why: "the article's rule for DNS needs the router's own address, which a plan doesn't know; plan without --style article, or paste what `unbloat plan --style article` prints"}
		}
	}
	return nil
}

// Baseline removes our items. Their uuids are ours, so nothing needs to be
// restored.
func (b *Backend) Baseline(_ context.Context, now, _ platform.State) (platform.State, error) {
	s, err := decode(now)
	if err != nil {
		return nil, err
	}
	s.Items, s.Live = nil, []string{}
	return json.Marshal(s)
}

// Compare returns the requests from actual to wanted: they create pipes, then
// queues, then rules, delete in the opposite order, and end with one
// reconfigure.
func (b *Backend) Compare(actual, wanted platform.State) ([]platform.Step, []string, error) {
	a, err := decode(actual)
	if err != nil {
		return nil, nil, err
	}
	w, err := decode(wanted)
	if err != nil {
		return nil, nil, err
	}
	var sets, dels []platform.Step
	var diffs []string
	for _, x := range w.Items {
		is, ok := a.find(x)
		if ok && maps.Equal(is.Fields, x.Fields) {
			continue
		}
		diffs = append(diffs, fmt.Sprintf("%s %s is not as it should be", x.Kind, x.Fields["description"]))
		sets = append(sets, set(x))
	}
	for _, x := range a.Items {
		if _, ok := w.find(x); !ok {
			diffs = append(diffs, fmt.Sprintf("%s %s is there, and should not be", x.Kind, x.Fields["description"]))
			dels = append([]platform.Step{{Argv: []string{"POST", settings + "del" + title(x.Kind) + "/" + x.UUID}, Stdin: "{}"}}, dels...)
		}
	}
	for _, l := range w.Live {
		if !slices.Contains(a.Live, l) {
			diffs = append(diffs, "it does not run `"+l+"`")
		}
	}
	for _, l := range a.Live {
		if !slices.Contains(w.Live, l) {
			diffs = append(diffs, "it runs `"+l+"`, which is not wanted")
		}
	}
	steps := append(sets, dels...)
	if len(diffs) > 0 {
		steps = append(steps, platform.Step{Argv: []string{"POST", reconfigure}, Stdin: "{}"})
	}
	return steps, diffs, nil
}

func (s state) find(x Item) (Item, bool) {
	i := slices.IndexFunc(s.Items, func(y Item) bool { return x.Kind == y.Kind && x.UUID == y.UUID })
	if i < 0 {
		return Item{}, false
	}
	return s.Items[i], true
}

// set is an upsert: with an unknown uuid it adds an item. A missing field keeps
// its value, so all are sent.
func set(x Item) platform.Step {
	fields := maps.Clone(x.Fields)
	if x.Kind == "pipe" {
		for _, name := range []string{"queue", "scheduler", "codel_target", "codel_interval", "fqcodel_quantum", "fqcodel_limit", "fqcodel_flows"} {
			if _, ok := fields[name]; !ok {
				fields[name] = ""
			}
		}
	}
	if x.Kind == "rule" {
		for _, name := range []string{"dscp", "iplen", "direction"} {
			if _, ok := fields[name]; !ok {
				fields[name] = ""
			}
		}
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(map[string]any{x.Kind: fields}); err != nil {
		panic("marshal an item: " + err.Error()) // strings alone
	}
	return platform.Step{Argv: []string{"POST", settings + "set" + title(x.Kind) + "/" + x.UUID}, Stdin: b.String()}
}

func title(kind string) string { return strings.ToUpper(kind[:1]) + kind[1:] }

func decode(b platform.State) (s state, err error) {
	if err = json.Unmarshal(b, &s); err != nil {
		err = fmt.Errorf("read the state of an OPNsense router: %w", err)
	}
	return s, err
}
