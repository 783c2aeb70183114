package fake

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"unbloat/internal/mechanism/dummynet"
	"unbloat/unit"
)

// An OPNsense is the REST API of a router's traffic shaper: what is saved, and
// what runs since the last reconfigure. It refuses what the model refuses, in
// its words; it passes over fields that it doesn't know; a pipe that is off runs
// all the same, its rules don't; and what is in use can't be deleted.
type OPNsense struct {
	Key, Secret string
	Saved       map[string]map[string]map[string]string // kind, uuid, field
	Running     map[string]map[string]map[string]string // nil: nothing was ever loaded

	// Fail, if set, is asked before each request that changes something. It then
	// fails: without effect, or (after) with it.
	Fail func(argv []string) (fail, after bool)
	// Ran are the requests that changed something.
	Ran []string
	n   int
}

// NewOPNsense returns a router with a pipe of somebody else's.
func NewOPNsense() *OPNsense {
	return &OPNsense{Key: "key", Secret: "secret", Saved: map[string]map[string]map[string]string{
		"pipe":  {"aaaaaaaa-0000-4000-8000-000000000001": {"number": "10000", "enabled": "1", "bandwidth": "3", "bandwidthMetric": "Mbit", "description": "guests"}},
		"queue": {}, "rule": {},
	}}
}

// SetFail sets what fails.
func (o *OPNsense) SetFail(f func(argv []string) (fail, after bool)) { o.Fail = f }

// Commands returns the requests that changed something since the last call.
func (o *OPNsense) Commands() []string {
	ran := o.Ran
	o.Ran = nil
	return ran
}

// Text prints all that a change can touch. What runs counts; that nothing was
// ever loaded, and nothing runs, is the same.
func (o *OPNsense) Text() string {
	running := maps.Clone(o.Running)
	for _, kind := range []string{"pipe", "queue", "rule"} { // somebody else's runs at last once we reload
		own := map[string]map[string]string{}
		for uuid, fields := range running[kind] {
			if strings.HasPrefix(fields["description"], "unbloat ") {
				own[uuid] = fields
			}
		}
		if running == nil {
			running = map[string]map[string]map[string]string{}
		}
		running[kind] = own
	}
	b, err := json.MarshalIndent(map[string]any{"saved": o.Saved, "running": running}, "", " ")
	if err != nil {
		panic("marshal the fake: " + err.Error()) // strings alone
	}
	return string(b)
}

// ServeHTTP answers one request.
func (o *OPNsense) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key, secret, ok := r.BasicAuth()
	if !ok || key != o.Key || secret != o.Secret {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write([]byte(`{"status":401,"message":"Authentication Failed"}`))
		return
	}
	fail, after := false, false
	if r.Method == http.MethodPost && o.Fail != nil {
		fail, after = o.Fail([]string{r.Method, r.URL.Path})
	}
	if fail && !after {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	var body map[string]map[string]string
	_ = json.NewDecoder(r.Body).Decode(&body)
	answer, status := o.answer(r.Method, r.URL.Path, body)
	if r.Method == http.MethodPost && status == http.StatusOK {
		o.Ran = append(o.Ran, r.URL.Path)
	}
	if fail {
		status = http.StatusGatewayTimeout
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer)
}

func (o *OPNsense) answer(method, path string, body map[string]map[string]string) (any, int) {
	rest, ok := strings.CutPrefix(path, "/api/trafficshaper/")
	switch {
	case !ok:
		return map[string]string{"errorMessage": "Endpoint not found"}, http.StatusNotFound
	case method == "GET" && rest == "settings/get":
		return map[string]any{"ts": o.model()}, http.StatusOK
	case method == "GET" && rest == "service/statistics":
		return o.statistics(), http.StatusOK
	case method == "POST" && rest == "service/reconfigure":
		o.reconfigure()
		return map[string]string{"status": "ok"}, http.StatusOK
	}
	action, uuid, _ := strings.Cut(strings.TrimPrefix(rest, "settings/"), "/")
	for _, kind := range []string{"pipe", "queue", "rule"} {
		verb, ok := strings.CutSuffix(strings.ToLower(action), kind)
		if !ok || method != "POST" {
			continue
		}
		switch verb {
		case "add":
			o.n++
			uuid = fmt.Sprintf("bbbbbbbb-0000-4000-8000-%012d", o.n)
			return o.set(kind, uuid, body[kind], true), http.StatusOK
		case "set":
			return o.set(kind, uuid, body[kind], false), http.StatusOK
		case "del":
			return o.del(kind, uuid)
		}
	}
	return map[string]string{"errorMessage": "Endpoint not found"}, http.StatusNotFound
}

// set is an upsert; a field that is not sent keeps its value.
func (o *OPNsense) set(kind, uuid string, fields map[string]string, add bool) any {
	next := maps.Clone(o.Saved[kind][uuid])
	if next == nil {
		next = map[string]string{"enabled": "1", "scheduler": "", "codel_ecn_enable": "0", "codel_enable": "0", "mask": "none", "weight": "100"}
	}
	for name, v := range fields {
		if knownFields(kind)[name] {
			next[name] = v
		}
	}
	if add && kind != "rule" { // addPipe overrides the number that was sent
		next["number"] = strconv.Itoa(o.free(kind))
	}
	if bad := o.validate(kind, next); len(bad) > 0 {
		return map[string]any{"result": "failed", "validations": bad}
	}
	o.Saved[kind][uuid] = next
	return map[string]string{"result": "saved", "uuid": uuid}
}

func (o *OPNsense) free(kind string) int {
	for n := 10000; ; n++ {
		taken := false
		for _, x := range o.Saved[kind] {
			taken = taken || x["number"] == strconv.Itoa(n)
		}
		if !taken {
			return n
		}
	}
}

func knownFields(kind string) map[string]bool {
	var all []string
	switch kind {
	case "pipe":
		all = []string{"number", "enabled", "bandwidth", "bandwidthMetric", "queue", "mask", "scheduler", "codel_enable", "codel_target", "codel_interval",
			"codel_ecn_enable", "fqcodel_quantum", "fqcodel_limit", "fqcodel_flows", "description"}
	case "queue":
		all = []string{"number", "enabled", "pipe", "weight", "mask", "description", "codel_enable", "codel_target", "codel_interval", "codel_ecn_enable"}
	default:
		all = []string{"enabled", "sequence", "interface", "proto", "source", "src_port", "destination", "dst_port", "direction", "target", "description", "dscp", "iplen"}
	}
	out := map[string]bool{}
	for _, name := range all {
		out[name] = true
	}
	return out
}

// validate asks the model's own rules.
func (o *OPNsense) validate(kind string, fields map[string]string) map[string]string {
	b, err := json.Marshal(fields)
	if err != nil {
		panic("marshal fields: " + err.Error()) // strings alone
	}
	if kind != "rule" && fields["number"] == "" {
		return map[string]string{kind + ".number": "A value is required."}
	}
	switch kind {
	case "pipe":
		var p dummynet.PipeItem
		_ = json.Unmarshal(b, &p)
		return p.Validate()
	case "queue":
		var q dummynet.QueueItem
		_ = json.Unmarshal(b, &q)
		return q.Validate(slices.Collect(maps.Keys(o.Saved["pipe"])))
	}
	var r dummynet.RuleItem
	_ = json.Unmarshal(b, &r)
	return r.Validate(append(slices.Collect(maps.Keys(o.Saved["queue"])), slices.Collect(maps.Keys(o.Saved["pipe"]))...))
}

// del deletes an item; one in use throws.
func (o *OPNsense) del(kind, uuid string) (any, int) {
	if _, ok := o.Saved[kind][uuid]; !ok {
		return map[string]string{"result": "not found"}, http.StatusOK
	}
	for _, user := range []struct{ kind, field string }{{"queue", "pipe"}, {"rule", "target"}} {
		for _, x := range o.Saved[user.kind] {
			if x[user.field] == uuid {
				return map[string]string{"errorMessage": "Item in use by", "errorTitle": x["description"]}, http.StatusInternalServerError
			}
		}
	}
	delete(o.Saved[kind], uuid)
	return map[string]string{"result": "deleted"}, http.StatusOK
}

func (o *OPNsense) reconfigure() {
	o.Running = map[string]map[string]map[string]string{}
	for kind, items := range o.Saved {
		o.Running[kind] = map[string]map[string]string{}
		for uuid, x := range items {
			if kind != "rule" || x["enabled"] == "1" {
				o.Running[kind][uuid] = maps.Clone(x)
			}
		}
	}
}

// model prints the settings as the API does: a field with options is the list of
// them, and an empty map is a list, as PHP has it.
func (o *OPNsense) model() map[string]any {
	out := map[string]any{}
	for kind, items := range o.Saved {
		shown := map[string]any{}
		for uuid, x := range items {
			fields := map[string]any{}
			for name, v := range x {
				switch name {
				case "scheduler", "bandwidthMetric", "interface", "proto", "direction", "mask", "pipe", "target":
					fields[name] = map[string]any{v: map[string]any{"value": "» " + v, "selected": 1}, "other": map[string]any{"value": "other", "selected": 0}}
				default:
					fields[name] = v
				}
			}
			shown[uuid] = fields
		}
		var list any = shown
		if len(shown) == 0 {
			list = []any{}
		}
		out[kind+"s"] = map[string]any{kind: list}
	}
	return out
}

// statistics prints what runs, as dnctl shows it.
func (o *OPNsense) statistics() any {
	if o.Running == nil {
		return map[string]string{"status": "failed"}
	}
	items := []any{}
	for _, uuid := range slices.Sorted(maps.Keys(o.Running["pipe"])) {
		x := o.Running["pipe"][uuid]
		r, _ := unit.ParseRate(x["bandwidth"] + x["bandwidthMetric"])
		items = append(items, map[string]any{"type": "pipe", "id": x["number"], "pipe": x["number"], "uuid": uuid, "description": x["description"],
			"bw": strings.TrimSpace(dummynet.ShownRate(r)), "delay": "0", "burst": "0", "flows": []any{}, "rules": []any{}})
	}
	for _, uuid := range slices.Sorted(maps.Keys(o.Running["queue"])) {
		x := o.Running["queue"][uuid]
		rules := []any{}
		for id, r := range o.Running["rule"] {
			if r["target"] == uuid {
				rules = append(rules, map[string]any{"rule": "60001", "pkts": 12, "bytes": 3456, "attached_to": x["number"], "rule_uuid": id, "description": r["description"]})
			}
		}
		items = append(items, map[string]any{"type": "queue", "flow_set_nr": x["number"], "uuid": uuid, "weight": x["weight"], "description": x["description"], "rules": rules})
	}
	return map[string]any{"status": "ok", "items": items}
}

// Dnctl returns the file of dnctl(8) commands that the template makes of what is
// saved: a pipe that is off is there too.
func (o *OPNsense) Dnctl() []string {
	var out []string
	for _, uuid := range slices.Sorted(maps.Keys(o.Saved["pipe"])) {
		b, _ := json.Marshal(o.Saved["pipe"][uuid])
		var p dummynet.PipeItem
		_ = json.Unmarshal(b, &p)
		n, _ := strconv.Atoi(o.Saved["pipe"][uuid]["number"])
		out = append(out, p.Dnctl(n))
	}
	for _, uuid := range slices.Sorted(maps.Keys(o.Saved["queue"])) {
		x := o.Saved["queue"][uuid]
		out = append(out, fmt.Sprintf("queue %s config pipe %s weight %s", x["number"], o.Saved["pipe"][x["pipe"]]["number"], x["weight"]))
	}
	return out
}
