package serve

import (
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"
)

// What needs the key over HTTP, and what is free: the page's files and stored
// results. The page gets a cookie for the key, which is valid for nothing else.
func TestKeyOverHTTP(t *testing.T) {
	s := startAll(t, Limits{}, "secret")
	base := "http://" + s.Web().String()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Jar: jar}
	ask := func(method, path, bearer string) int {
		t.Helper()
		r, err := http.NewRequest(method, base+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if bearer != "" {
			r.Header.Set("Authorization", "Bearer "+bearer)
		}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	for _, c := range []struct {
		method, path, bearer string
		want                 int
	}{
		{"GET", "/", "", 200},
		{"GET", "/assets/x.js", "", 200},
		{"GET", "/r/abc", "", 200},
		{"GET", "/api/results/abc", "", 200},
		{"POST", "/api/results", "", 401},
		{"GET", "/api/probe", "", 401},
		{"GET", "/api/down", "wrong", 401},
		{"GET", "/api/down", "secret", 200},
		{"GET", "/api/down?access_token=secret", "", 200},
		{"GET", "/api/key", "", 401},
		{"POST", "/api/key", "wrong", 401},
		{"PUT", "/api/key", "secret", 405},
		{"GET", "/garbage", "", 401},
		{"GET", "/__down?bytes=1&access_token=wrong", "", 401},
		{"GET", "/__down?bytes=1&access_token=secret", "", 200},
		{"OPTIONS", "/__down?bytes=1", "", 204}, // a browser's preflight request, which has no key
		{"POST", "/api/key", "secret", 204},     // returns the cookie,
		{"GET", "/api/key", "", 204},
		{"GET", "/api/probe", "", 200},
		{"POST", "/api/results", "", 200},
		{"GET", "/garbage", "", 401}, // which is valid for the page only
	} {
		if got := ask(c.method, c.path, c.bearer); got != c.want {
			t.Errorf("%s %s with %q: %d, want %d", c.method, c.path, c.bearer, got, c.want)
		}
	}
	for _, c := range jar.Cookies(mustURL(t, base+"/api/")) {
		if strings.Contains(c.Value, "secret") {
			t.Error("the cookie holds the key itself")
		}
	}
	awaitMetric(t, s, `unbloat_refused_total{protocol="web",reason="key"} 8`)
}

// With a key, protocols that cannot send one are refused.
func TestKeyKeepsIperf3Out(t *testing.T) {
	s, err := Listen(Options{Listen: "127.0.0.1:0", Iperf3: "127.0.0.1:0", Key: "secret"})
	if err == nil {
		s.close()
		t.Fatal("iperf3 is served beside a key")
	}
	if !strings.Contains(err.Error(), "--key") || !strings.Contains(err.Error(), "--iperf3") {
		t.Error(err)
	}
}

func mustURL(t *testing.T, s string) *url.URL {
	t.Helper()
	u, err := url.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}
