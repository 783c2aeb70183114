//go:build !router

package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/rogpeppe/go-internal/txtar"

	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/all"
	"unbloat/internal/cure/prove"
	"unbloat/internal/cure/tune"
	"unbloat/internal/keep/daemon"
	"unbloat/internal/keep/follow"
	"unbloat/internal/measure/path"
	"unbloat/internal/measure/verdict"
	"unbloat/internal/show/cli"
	"unbloat/internal/show/report"
	"unbloat/lab"
	"unbloat/lab/aqm"
	"unbloat/lab/scenario"
	"unbloat/lab/simlab"
	"unbloat/reason"
	"unbloat/scenarios"
	"unbloat/unit"
)

// printed returns the Go type of each JSON object that commands print, by its schema.
func printed() map[string]reflect.Type {
	return map[string]reflect.Type{
		verdict.TestSchema:     reflect.TypeFor[verdict.Test](),
		plan.Schema:            reflect.TypeFor[plan.Plan](),
		tune.Schema:            reflect.TypeFor[tune.Result](),
		prove.Schema:           reflect.TypeFor[prove.Result](),
		path.Schema:            reflect.TypeFor[path.Result](),
		"unbloat.lab/1":        reflect.TypeFor[lab.Result](),
		"unbloat.doctor/1":     reflect.TypeFor[platform.DoctorReport](),
		"unbloat.apply/1":      reflect.TypeFor[applied](),
		"unbloat.revert/1":     reflect.TypeFor[reverted](),
		"unbloat.status/1":     reflect.TypeFor[routerStatus](),
		"unbloat.why/1":        reflect.TypeFor[explained](),
		"unbloat.line/1":       reflect.TypeFor[daemon.History](),
		"unbloat.incidents/1":  reflect.TypeFor[daemon.Incidents](),
		report.DossierSchema:   reflect.TypeFor[report.Dossier](),
		"unbloat.history/1":    reflect.TypeFor[listed](),
		"unbloat.record/1":     reflect.TypeFor[shown](),
		"unbloat.compare/1":    reflect.TypeFor[comparisonJSON](),
		"unbloat.sim.replay/1": reflect.TypeFor[aqm.ReplayReport](),
		"unbloat.error/1":      reflect.TypeFor[cli.Failure](),
		"unbloat.version/1":    reflect.TypeFor[built](),
	}
}

// schemaFile returns the path of a schema: docs/schema/test-1.json.
func schemaFile(name string) string {
	return filepath.Join("..", "..", "docs", "schema", strings.NewReplacer("unbloat.", "", "/", "-", ".", "-").Replace(name)+".json")
}

// knownTypes returns the schemas of types that write their JSON themselves.
func knownTypes() map[reflect.Type]*jsonschema.Schema {
	text := &jsonschema.Schema{Type: "string"}
	why := &jsonschema.Schema{Type: "object", Required: []string{"code"}, Properties: map[string]*jsonschema.Schema{
		"code": text, "text": text, "phase": text, "causes": {Type: "array", Items: &jsonschema.Schema{Type: "object"}},
	}}
	return map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[reason.Reason](): why,
		reflect.TypeFor[follow.Why]():    why,
		reflect.TypeFor[plan.Reason](): {Type: "object", Required: []string{"field", "value", "why"}, Properties: map[string]*jsonschema.Schema{
			"field": text, "value": text, "why": text, "code": text, "causes": {Type: "array", Items: &jsonschema.Schema{Type: "object"}},
		}},
		reflect.TypeFor[plan.RatePreference](): text,
		reflect.TypeFor[plan.PortRange]():      {Types: []string{"string", "object", "number"}},
		reflect.TypeFor[json.RawMessage]():     {},
		reflect.TypeFor[unit.Rate]():           {Type: "integer", Description: "bit/s"},
		reflect.TypeFor[unit.Size]():           {Type: "integer", Description: "bytes"},
		reflect.TypeFor[unit.Milliseconds]():   {Type: "number"},
		reflect.TypeFor[netip.AddrPort]():      text,
		reflect.TypeFor[time.Duration]():       {Type: "integer", Description: "ns"},
		reflect.TypeFor[unit.Seconds]():        {Type: "number"},
		reflect.TypeFor[map[int]string]():      {Type: "object", AdditionalProperties: text},
	}
}

// schemaOf returns the JSON Schema of a type that commands print.
func schemaOf(t *testing.T, name string, of reflect.Type) []byte {
	t.Helper()
	known := knownTypes()
	text := known[reflect.TypeFor[plan.RatePreference]()]
	for other, nested := range printed() { // it has a file of its own
		if nested != of && (name != "unbloat.lab/1" || other != tune.Schema) { // lab's tuning has more members
			known[nested] = &jsonschema.Schema{Ref: filepath.Base(schemaFile(other))}
		}
	}
	shared := map[string]reflect.Type{"phase": reflect.TypeFor[verdict.Phase](), "latency": reflect.TypeFor[verdict.Latency](), "shaper": reflect.TypeFor[plan.Shaper](), "figures": reflect.TypeFor[path.Figures](), "shaped": reflect.TypeFor[platform.Shaped]()}
	infer := func(of reflect.Type, but string) *jsonschema.Schema {
		with := maps.Clone(known)
		for name, s := range shared {
			if name != but {
				with[s] = &jsonschema.Schema{Ref: "#/$defs/" + name}
			}
		}
		s, err := jsonschema.ForType(of, &jsonschema.ForOptions{TypeSchemas: with})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		nullable(s)
		return s
	}
	s := infer(of, "")
	if name == plan.Schema { // it has warnings as text and as codes
		s.Properties["warnings"] = &jsonschema.Schema{Type: "array", Items: text}
		s.Properties["warning_reasons"] = &jsonschema.Schema{Type: "array", Items: known[reflect.TypeFor[reason.Reason]()]}
	}
	s.Defs = map[string]*jsonschema.Schema{}
	for again := true; again; { // definitions may refer to further ones
		again = false
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		for name, of := range shared {
			if s.Defs[name] == nil && strings.Contains(string(b), `"#/$defs/`+name+`"`) {
				s.Defs[name], again = infer(of, name), true
			}
		}
	}
	s.Schema, s.ID, s.Title = "https://json-schema.org/draft/2020-12/schema", "https://unbloat.invalid/schema/"+filepath.Base(schemaFile(name)), name
	s.Properties["schema"] = &jsonschema.Schema{Type: "string", Const: jsonschema.Ptr[any](name)}
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return append(b, '\n')
}

// nullable changes a pointer to a definition into: that, or null.
func nullable(s *jsonschema.Schema) {
	if s.Ref != "" && s.Type+strings.Join(s.Types, "") != "" {
		*s = jsonschema.Schema{AnyOf: []*jsonschema.Schema{{Type: "null"}, {Ref: s.Ref}}}
		return
	}
	for _, p := range s.Properties {
		nullable(p)
	}
	if s.Items != nil {
		nullable(s.Items)
	}
	if s.AdditionalProperties != nil {
		nullable(s.AdditionalProperties)
	}
}

// TestSchemas: the schemas in docs/schema are those of the program's types.
func TestSchemas(t *testing.T) {
	kept, err := filepath.Glob(filepath.Join("..", "..", "docs", "schema", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	unknown := map[string]bool{}
	for _, file := range kept {
		unknown[file] = true
	}
	for name, of := range printed() {
		file, now := schemaFile(name), schemaOf(t, name, of)
		delete(unknown, file)
		if *updatePlans {
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, now, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if was, err := os.ReadFile(file); err != nil || !bytes.Equal(was, now) {
			t.Errorf("%s is not the schema of %v (-update rewrites it): %v", file, of, err)
		}
	}
	for file := range unknown {
		t.Errorf("%s: no command prints that", file)
	}
}

// valid checks a JSON object against the schema that it names.
func valid(t *testing.T, doing, object string) {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal([]byte(object), &v); err != nil {
		t.Errorf("%s: %v: %.300s", doing, err, object)
		return
	}
	name, _ := v["schema"].(string)
	b, err := os.ReadFile(schemaFile(name))
	if err != nil {
		t.Errorf("%s: its schema is %q: %v", doing, name, err)
		return
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(b, &s); err != nil {
		t.Fatal(err)
	}
	r, err := s.Resolve(&jsonschema.ResolveOptions{Loader: func(u *url.URL) (*jsonschema.Schema, error) {
		b, err := os.ReadFile(filepath.Join("..", "..", "docs", "schema", filepath.Base(u.Path)))
		if err != nil {
			return nil, err
		}
		s := new(jsonschema.Schema)
		return s, json.Unmarshal(b, s)
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Validate(v); err != nil {
		t.Errorf("%s: %v in %.2000s", doing, err, object)
	}
}

// TestJSONIsAsItsSchema: the JSON that commands print is valid by docs/schema.
func TestJSONIsAsItsSchema(t *testing.T) {
	file, ids := aHistory(t)
	for _, args := range [][]string{
		{"history", "--json", "--store", file}, {"history", ids["A"], "--json", "--store", file}, {"compare", ids["A"], ids["B"], "--json", "--store", file},
		{"doctor", "--json"}, {"plan", "--json"}, {"version", "--json"},
	} {
		out, errs, _ := asTyped(t, args...)
		if out == "" {
			t.Errorf("%v: nothing is printed: %s", args, errs)
			continue
		}
		valid(t, strings.Join(args, " "), out)
	}
	for _, platform := range all.Names() {
		out, _, err := runPlanCommand(t, "", "--down", "30mbit", "--up", "5mbit", "--for", platform, "--json", "--rule", "class=voice,protocol=udp,far_port=19302-19309")
		if err != nil {
			out, _, err = runPlanCommand(t, "", "--down", "30mbit", "--up", "5mbit", "--for", platform, "--json")
		}
		if err != nil {
			t.Fatal(err)
		}
		valid(t, "plan --for "+platform, out)
	}
	loaded, tuned := spoilt(), aTuning()
	loaded.Schema, tuned.Schema, tuned.Plan.Schema = verdict.TestSchema, tune.Schema, plan.Schema
	tuned.Before.Schema, tuned.After.Schema = verdict.TestSchema, verdict.TestSchema
	for _, r := range []any{loaded, tuned, aPath(), simulated(t)} {
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		valid(t, reflect.TypeOf(r).String(), string(b))
	}
	p := stages()[0]
	router := p.make(t)
	for _, args := range [][]string{{"apply", "--yes", "--json", "--down", "50mbit", "--up", "10mbit", "--wan", p.wan, "--lan", p.lan}, {"status", "--json", "--wan", p.wan}, {"revert", "--json"}} {
		out, code := router.run(t, append(args, "--for", p.platform)...)
		if code != cli.Done {
			t.Errorf("%v: exit code %d: %s", args, code, out)
		}
		valid(t, strings.Join(args, " "), out)
	}
}

// simulated is what the laboratory prints of a scenario, which `report` reads.
func simulated(t *testing.T) *lab.Result {
	t.Helper()
	text, err := scenarios.Text("exact-link")
	if err != nil {
		t.Fatal(err)
	}
	s, err := scenario.Read("exact-link", text, scenarios.Trace)
	if err != nil {
		t.Fatal(err)
	}
	r, err := simlab.Run(t.Context(), s, simlab.Options{Seed: 1, Series: true})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestFrozenSocket: what the daemon's socket takes and answers, method by method.
func TestFrozenSocket(t *testing.T) {
	type method struct{ params, result any }
	methods := map[string]method{
		daemon.MethodStatus:    {nil, daemon.Status{}},
		daemon.MethodApply:     {daemon.ApplyParams{}, daemon.Applied{}},
		daemon.MethodConfirm:   {daemon.IDParams{}, daemon.Applied{}},
		daemon.MethodRevert:    {daemon.IDParams{}, daemon.Reverted{}},
		daemon.MethodOn:        {daemon.OnParams{}, daemon.WANStatus{}},
		daemon.MethodTurn:      {daemon.TurnParams{}, daemon.Turn{}},
		daemon.MethodLook:      {},
		daemon.MethodDecisions: {daemon.DecisionsParams{}, daemon.Decisions{}},
		daemon.MethodWhy:       {daemon.WhyParams{}, nil}, // schema unbloat.why/1
		daemon.MethodTune:      {daemon.TuneParams{}, daemon.Started{}},
		daemon.MethodTest:      {daemon.TestParams{}, daemon.Started{}},
		daemon.MethodRun:       {daemon.RunParams{}, daemon.RunStatus{}},
		daemon.MethodHistory:   {daemon.HistoryParams{}, nil},   // schema unbloat.line/1
		daemon.MethodIncidents: {daemon.IncidentsParams{}, nil}, // schema unbloat.incidents/1
		daemon.MethodSettings:  {nil, []daemon.Settings{}},
		daemon.MethodChange:    {daemon.ChangeParams{}, daemon.Change{}},
		daemon.MethodEvents:    {nil, []daemon.Happening{}},
		daemon.MethodClasses:   {daemon.ClassesParams{}, []daemon.FlowClasses{}},
		daemon.MethodSchedule:  {daemon.ScheduleParams{}, daemon.Schedule{}},
		daemon.MethodWhile:     {daemon.WhileParams{}, daemon.While{}},
		daemon.MethodPage:      {daemon.PageParams{}, daemon.Page{}},
	}
	known := knownTypes()
	for name, nested := range printed() {
		known[nested] = &jsonschema.Schema{Ref: filepath.Base(schemaFile(name))}
	}
	schema := func(v any) []byte {
		if v == nil {
			return nil
		}
		s, err := jsonschema.ForType(reflect.TypeOf(v), &jsonschema.ForOptions{TypeSchemas: known})
		if err != nil {
			t.Fatal(err)
		}
		nullable(s)
		b, err := json.MarshalIndent(s, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		return append(b, '\n')
	}
	got := []txtar.File{{Name: "request", Data: schema(daemon.Request{})}, {Name: "response", Data: schema(daemon.Response{})}}
	for _, name := range daemon.Methods() {
		m, ok := methods[name]
		if !ok {
			t.Errorf("method %s is not frozen", name)
		}
		got = append(got, txtar.File{Name: name + " takes", Data: schema(m.params)}, txtar.File{Name: name + " answers", Data: schema(m.result)})
	}
	frozen(t, "socket", got)
}
