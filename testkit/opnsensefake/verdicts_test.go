package opnsensefake_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"unbloat/testkit/await"
	"unbloat/testkit/opnsensefake"
)

// A call is one request in a vector.
type call struct {
	Method, Call string
	Body         json.RawMessage
}

// do sends a call, and returns the status and the answer.
func do(t *testing.T, o *opnsensefake.Router, c call) (int, any) {
	t.Helper()
	if c.Method == "" {
		c.Method = http.MethodPost
	}
	body := string(c.Body)
	if body == "null" {
		body = ""
	}
	r := httptest.NewRequest(c.Method, "/", strings.NewReader(body))
	r.RequestURI = "/api/trafficshaper/" + c.Call
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	r.SetBasicAuth(o.Key, o.Secret)
	w := httptest.NewRecorder()
	o.ServeHTTP(w, r)
	var v any
	if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil {
		t.Fatalf("%s: %q is no answer: %v", c.Call, w.Body, err)
	}
	return w.Code, v
}

// replay sends the calls that lead to a state. All must succeed.
func replay(t *testing.T, calls []call) *opnsensefake.Router {
	t.Helper()
	o := opnsensefake.New()
	for _, c := range calls {
		if status, v := do(t, o, c); status != http.StatusOK || v.(map[string]any)["result"] != "saved" {
			t.Fatalf("%s %s: %d %v", c.Call, c.Body, status, v)
		}
	}
	return o
}

// brief returns an item as the vectors have it: without empty values, flags
// that are 0, and the mask "none".
func brief(fields map[string]string) map[string]string {
	out := maps.Clone(fields)
	maps.DeleteFunc(out, func(name, v string) bool {
		return v == "" || v == "0" && (strings.HasSuffix(name, "_enable") || strings.HasSuffix(name, "_not")) || name == "mask" && v == "none"
	})
	return out
}

// TestSetVerdicts replays requests to the real controller, each from its
// recorded state, and compares status, answer and what is saved.
func TestSetVerdicts(t *testing.T) {
	type vector struct {
		State  string
		Calls  []call // which lead to a state
		Method string
		Call   string
		Body   json.RawMessage
		HTTP   int
		Answer any
		Stored bool
		Item   map[string]string
		Gone   []string
		Log    string
	}
	states := map[string][]call{}
	await.EachVerdict(t, "opnsense-set.jsonl", func(t *testing.T, line int, v vector) {
		if v.Method == "" {
			states[v.State] = v.Calls
			return
		}
		calls, ok := states[v.State]
		if !ok {
			t.Fatalf("line %d: there is no state %q", line, v.State)
		}
		o := replay(t, calls)
		before := o.Items()
		status, answer := do(t, o, call{v.Method, v.Call, v.Body})
		after := o.Items()
		failed := func(what string, want, got any) {
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("line %d: %s: %s %s: %s, -real +stand-in\n%s", line, v.State, v.Call, v.Body, what, d)
			}
		}
		failed("status", v.HTTP, status)
		made := ""
		if a, ok := answer.(map[string]any); ok && a["uuid"] != nil {
			made = a["uuid"].(string)
			a["uuid"] = "<new uuid>"
			if want, ok := v.Answer.(map[string]any); ok && want["uuid"] != "<new uuid>" {
				a["uuid"] = made
			}
		}
		failed("answer", v.Answer, answer)
		failed("stored", v.Stored, !cmp.Equal(before, after))
		if v.Log != "" {
			failed("log", v.Log, o.Log())
		}
		was := map[string]map[string]string{}
		for _, x := range before {
			was[x.Kind+" "+x.UUID] = x.Fields
		}
		var gone []string
		var changed []opnsensefake.Item
		for _, x := range after {
			if !cmp.Equal(was[x.Kind+" "+x.UUID], x.Fields) {
				changed = append(changed, x)
			}
			delete(was, x.Kind+" "+x.UUID)
		}
		gone = slices.Sorted(maps.Keys(was))
		failed("gone", v.Gone, gone)
		switch {
		case v.Item == nil && len(changed) > 0:
			t.Errorf("line %d: %s %s: the stand-in saved %v", line, v.Call, v.Body, changed)
		case v.Item != nil && len(changed) != 1:
			t.Errorf("line %d: %s %s: the stand-in changed %v", line, v.Call, v.Body, changed)
		case v.Item != nil:
			failed("item", v.Item, brief(changed[0].Fields))
		}
	})
}

// TestRenderVerdicts compares the files that the templates make.
func TestRenderVerdicts(t *testing.T) {
	type vector struct {
		Name  string
		Calls []call
		Files map[string]string
	}
	await.EachVerdict(t, "opnsense-render.jsonl", func(t *testing.T, line int, v vector) {
		files := replay(t, v.Calls).Files()
		for name, want := range v.Files {
			if d := cmp.Diff(want, files[name]); d != "" {
				t.Errorf("line %d: %s: %s, -real +stand-in\n%s", line, v.Name, name, d)
			}
		}
	})
}

// TestAPIVerdicts compares answers and files with an earlier recording.
func TestAPIVerdicts(t *testing.T) {
	type vector struct {
		Case  string
		Calls []struct {
			Path string
			Body json.RawMessage
		}
		Output []string
	}
	uuidText := regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	await.EachVerdict(t, "opnsense-api.jsonl", func(t *testing.T, line int, v vector) {
		o := opnsensefake.New()
		var uuids []string
		for i, c := range v.Calls {
			body := string(c.Body)
			for k, u := range uuids {
				body = strings.ReplaceAll(body, fmt.Sprintf("$%d.uuid", k), u)
			}
			_, answer := do(t, o, call{Call: strings.TrimPrefix(c.Path, "trafficshaper/"), Body: json.RawMessage(body)})
			got := answer.(map[string]any)
			uuid, _ := got["uuid"].(string)
			uuids = append(uuids, uuid)
			if uuid != "" {
				got["uuid"] = "UUID"
			}
			var want map[string]any
			_, text, _ := strings.Cut(v.Output[1+i], " ")
			if err := json.Unmarshal([]byte(text), &want); err != nil {
				t.Fatalf("line %d: %v", line, err)
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("line %d: %s: -real +stand-in\n%s", line, v.Case, d)
			}
		}
		// The recording has no blank lines and comments, and is cut short where
		// dnctl(8) printed much.
		sections := map[string][]string{}
		section := ""
		for _, l := range v.Output {
			if rest, is := strings.CutPrefix(l, "== "); is {
				section = rest
			} else if w := strings.Fields(l); len(w) > 0 && (w[0] == "pipe" || w[0] == "queue" || w[0] == "add") {
				sections[section] = append(sections[section], uuidText.ReplaceAllString(l, "UUID"))
			}
		}
		lines := func(file, from string, words ...string) (out []string) {
			_, text, _ := strings.Cut(o.Files()[file], from)
			for _, l := range strings.Split(text, "\n") {
				if w := strings.Fields(l); len(w) > 0 && slices.Contains(words, w[0]) {
					out = append(out, uuidText.ReplaceAllString(l, "UUID"))
				}
			}
			return out
		}
		for name, got := range map[string][]string{
			"dnctl.conf":               lines("/usr/local/etc/dnctl.conf", "", "pipe", "queue"),
			"ipfw.rules (shaper part)": lines("/usr/local/etc/ipfw.rules", "authorized traffic\n", "add"),
		} {
			want := sections[name]
			if name == section { // the recording ends in this section
				got = got[:min(len(want), len(got))]
			} else if !slices.Contains(v.Output, "== "+name) {
				continue
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("line %d: %s: %s, -real +stand-in\n%s", line, v.Case, name, d)
			}
		}
	})
}
