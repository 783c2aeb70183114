package fake

import (
	"bufio"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// vectors calls f with each line of a file of verdicts.
func vectors(t *testing.T, file string, want int, f func(line []byte)) {
	t.Helper()
	in, err := os.Open("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	n := 0
	s := bufio.NewScanner(in)
	for s.Buffer(nil, 1<<20); s.Scan(); n++ {
		f(s.Bytes())
	}
	if n != want {
		t.Errorf("%s: %d vectors, want %d", file, n, want)
	}
}

// TestPfctlVerdicts gives the fake what the real pfctl was given.
func TestPfctlVerdicts(t *testing.T) {
	vectors(t, "openbsd-pf.jsonl", 41, func(line []byte) {
		var v struct {
			Config   string
			Accepted bool
			Message  []string
		}
		if err := json.Unmarshal(line, &v); err != nil {
			t.Fatal(err)
		}
		o := NewOpenBSD(false)
		o.Files["/etc/test.conf"] = v.Config + "\n"
		_, errOut, err := o.Run(t.Context(), []string{"pfctl", "-nf", "/etc/test.conf"}, nil)
		if (err == nil) != v.Accepted {
			t.Errorf("%s\naccepted: %v, want %v: %s", v.Config, err == nil, v.Accepted, errOut)
			return
		}
		for _, m := range v.Message {
			if !strings.Contains(string(errOut), m) {
				t.Errorf("%s\nit says %q, without %q", v.Config, errOut, m)
			}
		}
	})
}

// TestRESTVerdicts gives the fake what the real controller was given, and
// compares answers and what the template makes of it.
func TestRESTVerdicts(t *testing.T) {
	vectors(t, "opnsense-api.jsonl", 30, func(line []byte) {
		var v struct {
			Case  string
			Calls []struct {
				Path string
				Body json.RawMessage
			}
			Output []string
		}
		if err := json.Unmarshal(line, &v); err != nil {
			t.Fatal(err)
		}
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
