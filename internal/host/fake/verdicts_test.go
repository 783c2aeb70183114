package fake

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"unbloat/internal/platform/fake/verdicts"
)

// TestRESTVerdicts gives the fake what the real controller was given, and
// compares answers and what the template makes of it.
func TestRESTVerdicts(t *testing.T) {
	type vector struct {
		Case  string
		Calls []struct {
			Path string
			Body json.RawMessage
		}
		Output []string
	}
	verdicts.Each(t, "opnsense-api.jsonl", func(t *testing.T, _ int, v vector) {
		o := NewOPNsense()
		o.Saved["pipe"] = map[string]map[string]string{}
		uuids := []string{}
		for i, c := range v.Calls {
			body := string(c.Body)
			for k, u := range uuids {
				body = strings.ReplaceAll(body, "$"+string(rune('0'+k))+".uuid", u)
			}
			r := httptest.NewRequest(http.MethodPost, "/api/"+c.Path, strings.NewReader(body))
			r.SetBasicAuth("key", "secret")
			w := httptest.NewRecorder()
			o.ServeHTTP(w, r)
			var got, want map[string]any
			_, answer, _ := strings.Cut(v.Output[1+i], " ")
			if json.Unmarshal(w.Body.Bytes(), &got) != nil || json.Unmarshal([]byte(answer), &want) != nil {
				t.Fatalf("%s: no answers: %s, %s", v.Case, w.Body, answer)
			}
			uuid, _ := got["uuid"].(string)
			uuids = append(uuids, uuid)
			if uuid != "" {
				got["uuid"] = "UUID"
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%s: -real +fake\n%s", v.Case, d)
			}
		}
		var want []string
		inside := false
		for _, l := range v.Output {
			inside = l == "== dnctl.conf" || inside && !strings.HasPrefix(l, "==")
			if w := strings.Fields(l); inside && len(w) > 2 && w[2] == "config" {
				want = append(want, strings.Join(w, " "))
			}
		}
		if d := cmp.Diff(want, o.Dnctl()); d != "" {
			t.Errorf("%s: dnctl.conf -real +fake\n%s", v.Case, d)
		}
	})
}
