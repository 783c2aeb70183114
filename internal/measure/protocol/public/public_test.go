package public

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"unbloat/internal/measure/phases"
)

// A network is one TLS server to which all names resolve.
type network struct {
	*httptest.Server
	gone map[string]bool // hosts that cannot be reached
}

func newNetwork(t *testing.T, handle http.HandlerFunc) *network {
	t.Helper()
	s := httptest.NewTLSServer(handle)
	t.Cleanup(s.Close)
	return &network{s, map[string]bool{}}
}

// finder returns a Finder that only knows this network. The certificate is for
// example.com, whatever name is asked for.
func (n *network) finder(t *testing.T) *Finder {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(n.Certificate())
	f := &Finder{Roots: roots, Agent: "unbloat test", Dial: func(ctx context.Context, kind, address string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(address)
		if err != nil || n.gone[host] {
			return nil, errors.New("no such host")
		}
		return new(net.Dialer).DialContext(ctx, kind, n.Listener.Addr().String())
	}}
	f.name = "example.com"
	return f
}

func TestOrder(t *testing.T) {
	if o := Order(Auto); len(o) != 3 || o[0] != Cloudflare || o[2] != MLab {
		t.Errorf("%q", o)
	}
	for _, s := range []string{Cloudflare, MLab, LibreSpeed} {
		if o := Order(s); len(o) != 1 || o[0] != s {
			t.Errorf("%s: %q", s, o)
		}
	}
	if o := Order("test.example.net"); o != nil {
		t.Errorf("%q", o)
	}
}

// Cloudflare's server is up, limits us, or is down.
func TestCloudflare(t *testing.T) {
	status := http.StatusOK
	n := newNetwork(t, func(rw http.ResponseWriter, r *http.Request) {
		if r.Host != cloudflareHost || r.URL.Path != "/__down" || r.UserAgent() != "unbloat test" {
			t.Errorf("asked %s for %s as %q", r.Host, r.URL, r.UserAgent())
		}
		rw.WriteHeader(status)
		_, _ = rw.Write(make([]byte, 4096))
	})
	f := n.finder(t)
	found, err := f.Find(t.Context(), Cloudflare)
	if err != nil || len(found) != 1 || found[0].URL != cloudflareURL || found[0].RTT <= 0 || found[0].Terms == "" || found[0].Publishes {
		t.Errorf("%+v, %v", found, err)
	}
	status = http.StatusTooManyRequests
	if _, err := f.Find(t.Context(), Cloudflare); !errors.Is(err, phases.ErrRefused) || !strings.Contains(err.Error(), "429") {
		t.Errorf("it limits us: %v", err)
	}
	n.gone[cloudflareHost] = true
	if _, err := f.Find(t.Context(), Cloudflare); !errors.Is(err, phases.ErrUnreachable) {
		t.Errorf("it is gone: %v", err)
	}
}

// The locate service's answers: servers, none, an error, nonsense. An old
// access token is renewed, for the same server.
func TestMLab(t *testing.T) {
	var asked atomic.Int32
	status, body := http.StatusOK, ""
	targets := func(token string, machines ...string) string {
		var list []map[string]any
		for _, m := range machines {
			list = append(list, map[string]any{"machine": m, "location": map[string]string{"city": "Hamburg", "country": "DE"}, "urls": map[string]string{
				"wss:///ndt/v7/download": "wss://ndt-" + m + "/ndt/v7/download?access_token=" + token,
				"wss:///ndt/v7/upload":   "wss://ndt-" + m + "/ndt/v7/upload?access_token=" + token,
				"ws:///ndt/v7/download":  "ws://ndt-" + m + "/ndt/v7/download?access_token=" + token,
			}})
		}
		b, err := json.Marshal(map[string]any{"results": list})
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	n := newNetwork(t, func(rw http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.Host != "locate.measurementlab.net" || r.URL.Path != "/v2/nearest/ndt/ndt7" || r.URL.Query().Get("client_name") != "unbloat" {
			t.Errorf("asked %s for %s", r.Host, r.URL)
		}
		rw.WriteHeader(status)
		_, _ = rw.Write([]byte(body))
	})
	f := n.finder(t)
	body = targets("one", "a.example", "b.example")
	n.gone["ndt-a.example"] = true
	found, err := f.Find(t.Context(), MLab)
	if err != nil || len(found) != 1 {
		t.Fatalf("%+v, %v", found, err)
	}
	s := found[0]
	if s.URL != "ndt7+wss://ndt-b.example" || s.Place != "Hamburg, DE" || !s.Publishes || !strings.Contains(s.Terms, "privacy") || strings.Contains(s.URL, "one") {
		t.Errorf("%+v", s)
	}
	for range 3 { // as long as it is young no request is sent
		at, err := s.Endpoints(t.Context())
		if err != nil || at.Down != "https://ndt-b.example/ndt/v7/download?access_token=one" || at.Up != "https://ndt-b.example/ndt/v7/upload?access_token=one" || at.Small != "" {
			t.Errorf("%+v, %v", at, err)
		}
	}
	if asked.Load() != 1 {
		t.Errorf("asked %d times", asked.Load())
	}
	ends, _, err := (target{Machine: "b.example", URLs: map[string]string{mlabDownload: "wss://ndt-b.example/ndt/v7/download?access_token=one", mlabUpload: "wss://ndt-b.example/ndt/v7/upload?access_token=one"}}).endpoints()
	if err != nil {
		t.Fatal(err)
	}
	old := &lease{finder: f, machine: "b.example", ends: ends, at: time.Now().Add(-2 * tokenFor)}
	body = targets("two", "c.example", "b.example")
	if at, err := old.get(t.Context()); err != nil || !strings.HasSuffix(at.Down, "=two") || !strings.Contains(at.Down, "b.example") {
		t.Errorf("renewed: %+v, %v", at, err)
	}
	old.at = time.Now().Add(-2 * tokenFor)
	body = targets("three", "c.example")
	if _, err := old.get(t.Context()); !errors.Is(err, phases.ErrRefused) {
		t.Errorf("other servers only: %v", err)
	}

	for _, c := range []struct {
		status int
		body   string
		is     error
	}{
		{http.StatusNoContent, "", ErrNone},
		{http.StatusTooManyRequests, "", phases.ErrRefused},
		{http.StatusInternalServerError, "", phases.ErrUnreachable},
		{http.StatusOK, `{"error":{"type":"nearest","title":"Failed to lookup nearest machines","status":503}}`, phases.ErrRefused},
		{http.StatusOK, `{"results":[]}`, ErrNone},
		{http.StatusOK, `nonsense`, phases.ErrUnreachable},
		{http.StatusOK, `{"results":[{"machine":"x","urls":{"wss:///ndt/v7/download":"http://x/"}}]}`, phases.ErrUnreachable},
		{http.StatusOK, `{"results":[{"machine":"x","urls":{"wss:///ndt/v7/download":"wss://x/d","wss:///ndt/v7/upload":"wss://y/u"}}]}`, phases.ErrUnreachable},
	} {
		status, body = c.status, c.body
		if found, err := f.Find(t.Context(), MLab); !errors.Is(err, c.is) {
			t.Errorf("%d %s: %+v, %v, want %v", c.status, c.body, found, err, c.is)
		}
	}
}

// From LibreSpeed's list those servers are chosen that answer and start to
// send, with the paths in the list, and the sponsor's terms.
func TestLibreSpeed(t *testing.T) {
	body := `[{"name":"Gone","server":"//gone.example","dlURL":"garbage.php","ulURL":"empty.php","pingURL":"empty.php"},
	{"name":"Full","server":"//full.example/","dlURL":"garbage.php","ulURL":"empty.php","pingURL":"empty.php"},
	{"name":"Hamburg, Germany","server":"//good.example/","dlURL":"backend/garbage","ulURL":"/backend/empty","pingURL":"backend/empty","sponsorName":"A\u001b[2J Sponsor","sponsorURL":"https://sponsor.example/terms"},
	{"name":"Bad","server":"ftp://bad.example/","dlURL":"x","ulURL":"x","pingURL":"x"},
	{"name":"Bad","server":"//good.example/?x=y","dlURL":"x","ulURL":"x","pingURL":"x"},
	{"name":"No sponsor","server":"https://also.example","dlURL":"g?x=1","ulURL":"e","pingURL":"e","sponsorURL":"javascript:alert(1)"}]`
	n := newNetwork(t, func(rw http.ResponseWriter, r *http.Request) {
		switch r.Host + r.URL.RequestURI() {
		case "librespeed.org/backend-servers/servers.php":
			_, _ = rw.Write([]byte(body))
		case "full.example/garbage.php?ckSize=100":
			http.Error(rw, "", http.StatusTooManyRequests)
		case "good.example/backend/garbage?ckSize=100", "also.example/g?x=1&ckSize=100":
			_, _ = rw.Write(make([]byte, 4096))
		default:
			t.Errorf("asked %s for %s", r.Host, r.URL)
		}
	})
	n.gone["gone.example"] = true
	f := n.finder(t)
	found, err := f.Find(t.Context(), LibreSpeed)
	if err != nil || len(found) != 2 {
		t.Fatalf("%+v, %v", found, err)
	}
	for _, s := range found {
		at, err := s.Endpoints(t.Context())
		if err != nil || s.RTT <= 0 || s.Publishes {
			t.Errorf("%+v, %v", s, err)
		}
		switch s.URL {
		case "librespeed+https://good.example":
			if at.Small != "https://good.example/backend/empty" || at.Up != at.Small || s.Place != "Hamburg, Germany" || s.Terms != "https://sponsor.example/terms" {
				t.Errorf("%+v, %+v", s, at)
			}
		case "librespeed+https://also.example":
			if s.Operator == "" || s.Terms != libreSpeedTerms {
				t.Errorf("%+v", s)
			}
		default:
			t.Errorf("%+v", s)
		}
	}
	for _, bad := range []string{"", "{}", "[]", `[{"name":"Gone","server":"//gone.example"}]`} {
		body = bad
		if found, err := f.Find(t.Context(), LibreSpeed); err == nil {
			t.Errorf("%q: %+v", bad, found)
		}
	}
}
