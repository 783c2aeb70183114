package metrics_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const grafana = "../../../docs/grafana"

// A dashboard is what the test reads of Grafana's dashboard model.
type dashboard struct {
	UID, Title    string
	SchemaVersion int
	Templating    struct {
		List []struct {
			Name, Type string
			Query      any
			Definition string
		}
	}
	Panels []struct {
		ID          int
		Type, Title string
		Datasource  map[string]string
		GridPos     struct{ X, Y, W, H int }
		Targets     []struct {
			RefID, Expr, LegendFormat string
			Datasource                map[string]string
		}
		FieldConfig struct{ Defaults struct{ Unit string } }
	}
}

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(grafana, "dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(b, &d); err != nil {
		t.Fatalf("dashboard.json: %v", err)
	}
	return d
}

// names are the metrics that a document may name: those that are written, and
// Prometheus's own.
func names() []string {
	out := []string{"up"}
	for line := range strings.Lines(text()) {
		if !strings.HasPrefix(line, "#") {
			out = append(out, regexp.MustCompile(`^[a-z_]+`).FindString(line))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// The dashboard has the form that Grafana reads: each panel is of a kind that it
// has, on the grid beside the others, with queries of metrics that there are; and
// each metric is on it.
func TestDashboard(t *testing.T) {
	d := readDashboard(t)
	if d.UID == "" || d.Title == "" || d.SchemaVersion < 36 || len(d.Panels) < 5 {
		t.Fatalf("%+v", d)
	}
	variables := []string{"datasource"}
	for _, v := range d.Templating.List {
		variables = append(variables, v.Name)
		if v.Type != "datasource" && v.Type != "query" {
			t.Errorf("variable %s is of type %q", v.Name, v.Type)
		}
	}
	shown := map[string]bool{}
	uses := func(where, expr string) {
		for _, m := range regexp.MustCompile(`\bunbloat_[a-z_]+`).FindAllString(expr, -1) {
			shown[m] = true
			if !slices.Contains(names(), m) {
				t.Errorf("%s asks for %s, which is no metric", where, m)
			}
		}
		for _, m := range regexp.MustCompile(`\$\{?([a-z_]+)`).FindAllStringSubmatch(expr, -1) {
			if m[1] != "__rate_interval" && !slices.Contains(variables, m[1]) {
				t.Errorf("%s uses the variable %s, which is not there", where, m[1])
			}
		}
	}
	ids := map[int]bool{}
	for i, p := range d.Panels {
		where := fmt.Sprintf("panel %q", p.Title)
		if !slices.Contains([]string{"timeseries", "heatmap", "state-timeline", "stat"}, p.Type) || p.Title == "" || ids[p.ID] || p.ID == 0 {
			t.Errorf("%s: type %q, id %d", where, p.Type, p.ID)
		}
		ids[p.ID] = true
		g := p.GridPos
		if g.W < 1 || g.H < 1 || g.X < 0 || g.X+g.W > 24 {
			t.Errorf("%s lies at %+v; the grid has 24 columns", where, g)
		}
		for _, o := range d.Panels[:i] {
			h := o.GridPos
			if g.X < h.X+h.W && h.X < g.X+g.W && g.Y < h.Y+h.H && h.Y < g.Y+g.H {
				t.Errorf("%s lies on %q", where, o.Title)
			}
		}
		if len(p.Targets) == 0 {
			t.Errorf("%s shows nothing", where)
		}
		refs := map[string]bool{}
		for _, q := range p.Targets {
			if q.RefID == "" || refs[q.RefID] || q.Datasource["uid"] != "${datasource}" || q.LegendFormat == "" {
				t.Errorf("%s: %+v", where, q)
			}
			refs[q.RefID] = true
			uses(where, q.Expr)
			if strings.Contains(q.Expr, "bytes_per_second") != strings.HasPrefix(q.Expr, "8 * ") || strings.HasPrefix(q.Expr, "8 * ") && p.FieldConfig.Defaults.Unit != "bps" {
				t.Errorf("%s: %s is shown as %q", where, q.Expr, p.FieldConfig.Defaults.Unit)
			}
		}
	}
	for _, v := range d.Templating.List {
		uses("variable "+v.Name, v.Definition)
	}
	for _, name := range names() {
		if strings.HasPrefix(name, "unbloat_") && !shown[name] && !strings.HasSuffix(name, "_sum") && !strings.HasSuffix(name, "_count") {
			t.Errorf("no panel shows %s", name)
		}
	}
}

// The documents name metrics that there are, and all of them.
func TestMetricsAreDocumented(t *testing.T) {
	for _, file := range []string{"README.md", "alerts.yml"} {
		b, err := os.ReadFile(filepath.Join(grafana, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`\bunbloat_[a-z_]+`).FindAllString(string(b), -1) {
			if !slices.Contains(names(), m) && !slices.Contains(names(), m+"_bucket") {
				t.Errorf("%s names %s, which is no metric", file, m)
			}
		}
		for _, name := range names() {
			name = regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
			if file == "README.md" && name != "up" && !strings.Contains(string(b), "`"+name+"`") {
				t.Errorf("README.md does not tell of %s", name)
			}
		}
	}
}

// Prometheus's own checker takes the alerts, and they do what their tests say; and
// it takes every query of the dashboard.
func TestPromtoolTakesRules(t *testing.T) {
	promtool := needPromtool(t)
	run := func(args ...string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
	run("check", "rules", filepath.Join(grafana, "alerts.yml"))
	run("test", "rules", filepath.Join(grafana, "alerts_test.yml"))
	run("test", "rules", filepath.Join(grafana, "alerts_test.yml"))
	var rules strings.Builder
	rules.WriteString("groups:\n  - name: dashboard\n    rules:\n")
	n := 0
	for _, p := range readDashboard(t).Panels {
		for _, q := range p.Targets {
			expr := strings.NewReplacer("$__rate_interval", "5m", "$instance", ".*", "$wan", ".*").Replace(q.Expr)
			quoted, err := json.Marshal(expr)
			if err != nil {
				t.Fatal(err)
			}
			n++
			fmt.Fprintf(&rules, "      - record: query_%d\n        expr: %s\n", n, quoted)
		}
	}
	file := filepath.Join(t.TempDir(), "rules.yml")
	if err := os.WriteFile(file, []byte(rules.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	run("check", "rules", file)
}
