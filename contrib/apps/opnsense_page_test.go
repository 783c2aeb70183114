package apps

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"unbloat/testkit/labtest"
)

// opnsenseForm is a form as OPNsense's partials draw it: a table with a row a field.
func opnsenseForm(t *testing.T, name string) string {
	t.Helper()
	var form struct {
		Fields []struct {
			ID    string `xml:"id"`
			Label string `xml:"label"`
			Type  string `xml:"type"`
			Help  string `xml:"help"`
		} `xml:"field"`
	}
	if err := xml.Unmarshal([]byte(read(t, opnsenseApp+"controllers/OPNsense/Unbloat/forms/"+name+".xml")), &form); err != nil {
		t.Fatal(err)
	}
	rows := ""
	for _, f := range form.Fields {
		control := ""
		switch f.Type {
		case "header":
			rows += `<tr><th colspan="2">` + html.EscapeString(f.Label) + "</th></tr>"
			continue
		case "checkbox":
			control = `<input type="checkbox" data-field id="` + f.ID + `">`
		case "dropdown":
			control = `<select class="selectpicker form-control" data-field id="` + f.ID + `"></select>`
		case "select_multiple":
			control = `<select class="selectpicker form-control" multiple data-field id="` + f.ID + `"></select>`
		case "text", "password":
			control = `<input type="` + f.Type + `" class="form-control" data-field id="` + f.ID + `">`
		default:
			t.Fatalf("%s: this test does not know the type %q", f.ID, f.Type)
		}
		rows += `<tr><td><label for="` + f.ID + `">` + html.EscapeString(f.Label) + `</label></td><td>` + control + `<div class="help-block">` + html.EscapeString(f.Help) + "</div></td></tr>"
	}
	return `<div class="table-responsive"><table class="table table-striped table-condensed">` + rows + "</table></div>"
}

// opnsenseHTML renders the plugin's view in a page like OPNsense's.
func opnsenseHTML(t *testing.T) string {
	t.Helper()
	text := regexp.MustCompile(`(?s)\{#.*?#\}`).ReplaceAllString(read(t, opnsenseApp+"views/OPNsense/Unbloat/index.volt"), "")
	text = regexp.MustCompile(`\{\{ lang\._\('([^']*)'\) \}\}`).ReplaceAllString(text, "$1")
	forms := map[string]string{"formSettings": "settings", "formLine": "line", "formEntry": "entry"}
	partial := regexp.MustCompile(`\{\{ partial\("layout_partials/(\w+)", \['fields': (\w+), 'id': '(\w+)'(?:, 'label': lang\._\('([^']*)'\))?\]\) \}\}`)
	text = partial.ReplaceAllStringFunc(text, func(s string) string {
		m := partial.FindStringSubmatch(s)
		form := opnsenseForm(t, forms[m[2]])
		if m[1] == "base_form" {
			return `<form id="` + m[3] + `">` + form + "</form>"
		}
		return `<div class="modal fade" id="` + m[3] + `" tabindex="-1" role="dialog" aria-label="` + m[4] + `"><div class="modal-dialog modal-lg"><div class="modal-content"><div class="modal-header"><h4 class="modal-title">` + m[4] +
			`</h4></div><div class="modal-body"><form>` + form + `</form></div><div class="modal-footer"><button type="button" class="btn btn-primary" id="btn_` + m[3] + `_save">Save</button></div></div></div></div>`
	})
	if strings.Contains(text, "{{") || strings.Contains(text, "{%") {
		t.Fatalf("this test can't render all of the view:\n%s", text)
	}
	return `<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>unbloat</title><link rel="icon" href="data:,">
<link rel="stylesheet" href="/bootstrap/css/bootstrap.min.css"><style>.content-box{background:#fff;border:1px solid #ddd}</style>
<script src="/jquery/jquery.min.js"></script><script src="/bootstrap/js/bootstrap.min.js"></script><script src="/standin.js"></script></head>
<body><main class="page-content"><section class="page-content-main"><div class="container-fluid"><div class="row"><section class="col-xs-12"><div id="messages"></div>` + text + `</section></div></div></section></main></body></html>`
}

// opnsenseUI serves the page and its API: settings from memory, all else by control.sh.
type opnsenseUI struct {
	t    *testing.T
	page string
	env  []string

	mu    sync.Mutex
	line  map[string]string
	calls []string
}

func (u *opnsenseUI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	action, api := strings.CutPrefix(path, "/api/unbloat/")
	switch {
	case path == "/":
		fmt.Fprint(w, u.page)
		return
	case path == "/standin.js":
		http.ServeFile(w, r, "testdata/opnsense-standin.js")
		return
	case !api:
		http.ServeFile(w, r, filepath.Join("/usr/share/javascript", filepath.Clean(path)))
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.calls = append(u.calls, r.Method+" "+action)
	w.Header().Set("Content-Type", "application/json")
	if verb, ok := strings.CutPrefix(action, "status/"); ok {
		words := strings.Split(verb, "/")
		if words[0] == "get" {
			words[0] = "show"
		}
		out, _ := run(u.t, u.env, append([]string{"sh", opnsenseScripts + "control.sh"}, words...)...)
		fmt.Fprint(w, out)
		return
	}
	var answer any = map[string]string{"result": "saved"}
	id := "00000000-0000-4000-8000-000000000000"
	switch action {
	case "settings/search_line":
		row := map[string]string{"uuid": id}
		for k, v := range u.line {
			row[k] = v
		}
		answer = map[string]any{"rows": []any{row}, "total": 1}
	case "settings/search_entry":
		answer = map[string]any{"rows": []any{}, "total": 0}
	case "settings/get_line/" + id:
		line := map[string]any{"interface": map[string]any{"wan": map[string]any{"value": "WAN", "selected": 1}}}
		for k, v := range u.line {
			if k != "interface" {
				line[k] = v
			}
		}
		answer = map[string]any{"line": line}
	case "settings/set_line/" + id:
		var set struct{ Line map[string]string }
		if err := json.NewDecoder(r.Body).Decode(&set); err != nil {
			u.t.Error(err)
		}
		for k, v := range set.Line {
			u.line[k] = v
		}
	case "settings/get":
		answer = map[string]any{"unbloat": map[string]any{"general": map[string]any{"enabled": "1"}, "page": map[string]any{"tls": "1"}}}
	case "settings/set":
	case "service/reconfigure":
		answer = map[string]string{"status": "ok"}
	default:
		u.t.Errorf("the page asks for %s", action)
	}
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		u.t.Error(err)
	}
}

// TestOPNsensePage: the view of OPNsense's plugin in a real browser, with the jQuery and
// Bootstrap that it has, over a stand-in of its grids and forms. A person changes a
// speed, applies it, turns the line off and on, which the daemon does, and goes on into
// unbloat's own page; on a phone and a desktop nothing is wider than the window. With
// UNBLOAT_SHOTS=DIR it writes pictures there.
func TestOPNsensePage(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts a browser")
	}
	for _, f := range []string{"jquery/jquery.min.js", "bootstrap/js/bootstrap.min.js"} {
		if _, err := os.Stat("/usr/share/javascript/" + f); err != nil {
			t.Skipf("SKIPPED: %v; install libjs-jquery and libjs-bootstrap", err)
		}
	}
	labtest.NeedSeccomp(t)
	u := &opnsenseUI{t: t, page: opnsenseHTML(t), env: opnsenseLives(t, "0", func(func(...string) (string, opnsenseAnswer)) {})}
	server := httptest.NewServer(u)
	t.Cleanup(server.Close)
	for _, width := range []int{390, 1280} {
		u.mu.Lock()
		u.calls, u.line = nil, map[string]string{"enabled": "1", "interface": "wan", "lan": "lan", "down": "50", "up": "10", "follow": "0", "description": "<b>fibre</b>"}
		u.mu.Unlock()
		options, err := json.Marshal(map[string]any{"width": width, "height": 844, "shots": os.Getenv("UNBLOAT_SHOTS")})
		if err != nil {
			t.Fatal(err)
		}
		c := exec.CommandContext(t.Context(), "../../scripts/web", "opnsense", server.URL+"/", string(options))
		var says strings.Builder
		c.Stderr = &says
		out, err := c.Output()
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.ExitCode() == 5 {
			t.Skipf("SKIPPED: %s", strings.TrimSpace(says.String()))
		}
		var f struct {
			Errors, Spills, Unnamed, Line, Queues []string
			Entered, Hash                         string
			Off, Markup                           int
		}
		if err == nil {
			err = json.Unmarshal(out, &f)
		}
		if err != nil {
			t.Fatalf("%v: %s%s", err, says.String(), out)
		}
		if len(f.Errors)+len(f.Spills)+len(f.Unnamed)+f.Markup > 0 {
			t.Errorf("%d px: the page complains: %q\nis wider than the window: %q\nhas controls without a name: %q\nshows text as markup: %d", width, f.Errors, f.Spills, f.Unnamed, f.Markup)
		}
		if len(f.Queues) != 3 || f.Off != 0 || f.Entered == "" || f.Hash != "" || !slices.Contains(f.Line, "<b>fibre</b>") {
			t.Errorf("%d px: %+v", width, f)
		}
		u.mu.Lock()
		set, applied := slices.Index(u.calls, "POST settings/set"), slices.Index(u.calls, "POST service/reconfigure")
		if u.line["up"] != "8" || set < 0 || applied < set {
			t.Errorf("%d px: up is %s; it asked for %q", width, u.line["up"], u.calls)
		}
		u.mu.Unlock()
	}
}
