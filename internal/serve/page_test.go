package serve

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"unbloat/internal/measure/verdict"
	"unbloat/unit"
	"unbloat/web"
)

// serve runs a handler until the test ends, and returns its address.
func serve(t *testing.T, o PageOptions) (h *Page, url string) {
	t.Helper()
	h = NewPage(o)
	s := httptest.NewServer(h)
	t.Cleanup(func() { h.Close(); s.Close() })
	return h, s.URL
}

// open begins a session.
func open(t *testing.T, url string) (*websocket.Conn, Hello) {
	t.Helper()
	c, _, err := websocket.Dial(t.Context(), url+"/api/probe", &websocket.DialOptions{Subprotocols: []string{Subprotocol}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.CloseNow() })
	_, text, err := c.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var hello Hello
	if err := json.Unmarshal(text, &hello); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return c, hello
}

// ask sends one probe and returns the answer's number, times and count.
func ask(t *testing.T, c *websocket.Conn, seq uint32) (got uint32, received, sent time.Duration, up uint64) {
	t.Helper()
	msg := binary.BigEndian.AppendUint32(nil, seq)
	if err := c.Write(t.Context(), websocket.MessageBinary, append(msg, make([]byte, 44)...)); err != nil {
		t.Fatal(err)
	}
	_, b, err := c.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(b) != answerLen {
		t.Fatalf("an answer of %d bytes", len(b))
	}
	be := binary.BigEndian
	return be.Uint32(b), time.Duration(be.Uint64(b[4:])), time.Duration(be.Uint64(b[12:])), be.Uint64(b[20:])
}

func request(t *testing.T, method, url string, body io.Reader, headers ...string) (int, string, http.Header) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text), resp.Header
}

// Probes are answered with their number, the server's times, and the bytes that
// uploads have delivered.
func TestProbe(t *testing.T) {
	_, url := serve(t, PageOptions{Name: "here"})
	c, hello := open(t, url)
	if hello.Session == "" || hello.Server != "here" || hello.Flows < 8 {
		t.Errorf("hello: %+v", hello)
	}
	var before time.Duration
	for i := range uint32(20) {
		got, received, sent, up := ask(t, c, i*7)
		if got != i*7 || received < before || sent < received || up != 0 {
			t.Fatalf("answer to %d: %d, %v, %v, %d", i*7, got, received, sent, up)
		}
		before = sent
	}
	body := strings.Repeat("x", 300_000)
	if status, text, _ := request(t, "POST", url+"/api/up?session="+hello.Session, strings.NewReader(body)); status != 200 || strings.TrimSpace(text) != `{"bytes":300000}` {
		t.Errorf("upload: %d %s", status, text)
	}
	if _, _, _, up := ask(t, c, 1); up != 300_000 {
		t.Errorf("the server counted %d bytes of 300000", up)
	}
	status, text, header := request(t, "GET", url+"/api/down?bytes=2500000&session="+hello.Session, nil)
	if status != 200 || len(text) != 2_500_000 || header.Get("Content-Encoding") != "" || header.Get("Cache-Control") != "no-store, no-transform" {
		t.Errorf("download: %d, %d bytes, %v", status, len(text), header)
	}
}

// Loads and results need a session, and have its limits.
func TestPageLimits(t *testing.T) {
	h, url := serve(t, PageOptions{Limits: PageLimits{PerAddress: 2, Bytes: 2 * unit.MB, Session: time.Minute, Result: 100 * unit.KB}})
	for _, path := range []string{"/api/down?bytes=1", "/api/down?bytes=1&session=x"} {
		if status, _, _ := request(t, "GET", url+path, nil); status != http.StatusForbidden {
			t.Errorf("%s without a session: %d", path, status)
		}
	}
	for _, path := range []string{"/api/up", "/api/results"} {
		if status, _, _ := request(t, "POST", url+path, strings.NewReader("{}")); status != http.StatusForbidden {
			t.Errorf("%s without a session: %d", path, status)
		}
	}
	c, hello := open(t, url)
	for _, bytes := range []string{"", "0", "-1", "x", "2000001", "99999999999999999999"} {
		if status, _, _ := request(t, "GET", url+"/api/down?session="+hello.Session+"&bytes="+bytes, nil); status != http.StatusBadRequest {
			t.Errorf("download of %q bytes: %d", bytes, status)
		}
	}
	if status, _, _ := request(t, "POST", url+"/api/up?session="+hello.Session, strings.NewReader(strings.Repeat("x", 3_000_000))); status != http.StatusRequestEntityTooLarge {
		t.Errorf("an upload of more than the session may move: %d", status)
	}
	r, err := http.Get(url + "/api/down?bytes=1000000&session=" + hello.Session)
	if err == nil {
		_, err = io.Copy(io.Discard, r.Body)
		r.Body.Close()
	}
	if err == nil {
		t.Error("a download beyond the session's bytes seemed complete")
	}
	open(t, url)
	d, _, err := websocket.Dial(t.Context(), url+"/api/probe", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.CloseNow()
	var closed websocket.CloseError
	if _, _, err := d.Read(t.Context()); !errors.As(err, &closed) || closed.Code != websocket.StatusTryAgainLater || !strings.Contains(closed.Reason, "busy") {
		t.Errorf("a session too many: %v", err)
	}
	if err := c.Write(t.Context(), websocket.MessageBinary, make([]byte, mostProbe+1)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.Read(t.Context()); err == nil {
		t.Error("a probe that is too long was answered")
	}
	h.Close()
	if status, _, _ := request(t, "GET", url+"/api/down?bytes=1&session="+hello.Session, nil); status != http.StatusForbidden {
		t.Errorf("the session outlived the handler: %d", status)
	}
}

// Too many probes end the session and its loads, and so does the end of its
// time.
func TestSessionEnds(t *testing.T) {
	_, url := serve(t, PageOptions{Limits: PageLimits{Session: 2 * time.Second}})
	c, _ := open(t, url)
	var err error
	for range 10_000 {
		if err = c.Write(t.Context(), websocket.MessageBinary, make([]byte, 8)); err != nil {
			break
		}
		if _, _, err = c.Read(t.Context()); err != nil {
			break
		}
	}
	if websocket.CloseStatus(err) != websocket.StatusPolicyViolation && websocket.CloseStatus(err) != websocket.StatusNormalClosure {
		t.Errorf("a flood of probes: %v", err)
	}
	c, hello := open(t, url)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "GET", url+"/api/down?bytes=16000000000&session="+hello.Session, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() // not read, so that the server's write blocks
	if _, _, err := c.Read(ctx); websocket.CloseStatus(err) != websocket.StatusNormalClosure {
		t.Errorf("the session's time was up: %v", err)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err == nil || ctx.Err() != nil {
		t.Errorf("the download went on after its session: %v", err)
	}
}

// A result is judged, saved, and found again at its address.
func TestResults(t *testing.T) {
	at := time.Date(2026, 11, 21, 20, 0, 30, 0, time.UTC)
	_, url := serve(t, PageOptions{Name: "here", Now: func() time.Time { return at }})
	c, hello := open(t, url)
	defer c.CloseNow()
	text, err := json.Marshal(cases()["good"])
	if err != nil {
		t.Fatal(err)
	}
	post := func(body []byte, headers ...string) (int, string) {
		status, text, _ := request(t, "POST", url+"/api/results?session="+hello.Session, bytes.NewReader(body), headers...)
		return status, text
	}
	if status, _ := post(text); status != http.StatusUnsupportedMediaType {
		t.Errorf("a result of no type: %d", status)
	}
	if status, _ := post(text, "Content-Type", "application/json", "Sec-Fetch-Site", "cross-site"); status != http.StatusForbidden {
		t.Errorf("a result from another site: %d", status)
	}
	if status, _ := post([]byte(`{"schema":"<script>"}`), "Content-Type", "application/json"); status != http.StatusBadRequest {
		t.Errorf("a bad result: %d", status)
	}
	if status, _ := post(make([]byte, 1_000_001), "Content-Type", "application/json"); status != http.StatusRequestEntityTooLarge {
		t.Errorf("a large result: %d", status)
	}
	status, answer := post(text, "Content-Type", "application/json; charset=utf-8")
	var saved Saved
	if err := json.Unmarshal([]byte(answer), &saved); err != nil || status != 200 || saved.ID == "" || saved.Test.Grade != "A" {
		t.Fatalf("%d %.200s: %v", status, answer, err)
	}
	if saved.Test.Time != "2026-11-21T20:00:10Z" || saved.Test.Server != "here" {
		t.Errorf("taken at %s against %s", saved.Test.Time, saved.Test.Server)
	}
	if status, _ := post(text, "Content-Type", "application/json"); status != http.StatusConflict {
		t.Errorf("a second result of one session: %d", status)
	}
	var stored verdict.Test
	_, answer, _ = request(t, "GET", url+"/api/results/"+saved.ID, nil)
	if err := json.Unmarshal([]byte(answer), &stored); err != nil || stored.Verdict != saved.Test.Verdict || stored.Download.Series == nil {
		t.Errorf("stored: %.200s: %v", answer, err)
	}
	if status, text, _ := request(t, "GET", url+"/r/"+saved.ID, nil); status != 200 || !strings.Contains(text, "<main>") {
		t.Errorf("the result's page: %d", status)
	}
	for _, id := range []string{"x", "%2e%2e%2fx", "%00", strings.Repeat("a", 65)} {
		for _, path := range []string{"/r/", "/api/results/"} {
			if status, _, _ := request(t, "GET", url+path+id, nil); status != http.StatusNotFound {
				t.Errorf("%s%s: %d", path, id, status)
			}
		}
	}
}

type fullStore struct{ Store }

func (fullStore) Save(context.Context, *verdict.Test) (Ticket, error) {
	return Ticket{}, errors.New("no space left on /secret/path")
}

// A result that cannot be saved is shown all the same, without internal errors
// of the server.
func TestStoreFails(t *testing.T) {
	_, url := serve(t, PageOptions{Store: fullStore{NewMemory(1)}})
	_, hello := open(t, url)
	text, err := json.Marshal(cases()["good"])
	if err != nil {
		t.Fatal(err)
	}
	status, answer, _ := request(t, "POST", url+"/api/results?session="+hello.Session, bytes.NewReader(text), "Content-Type", "application/json")
	if status != 200 || !strings.Contains(answer, "could not keep") || strings.Contains(answer, "secret") || !strings.Contains(answer, `"grade":"A"`) {
		t.Errorf("%d %.200s", status, answer)
	}
}

func TestMemory(t *testing.T) {
	m := NewMemory(2)
	var ids []string
	token := ""
	for range 3 {
		k, err := m.Save(t.Context(), &verdict.Test{})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, k.ID)
		if err := m.Delete(t.Context(), k.ID, ""); !errors.Is(err, ErrNotOwner) {
			t.Errorf("deleted without a token: %v", err)
		}
		token = k.Token
	}
	defer func() {
		if err := m.Delete(t.Context(), ids[2], token); err != nil {
			t.Error(err)
		}
		if _, err := m.Load(t.Context(), ids[2]); !errors.Is(err, ErrNotFound) {
			t.Errorf("after it was deleted: %v", err)
		}
	}()
	if _, err := m.Load(t.Context(), ids[0]); !errors.Is(err, ErrNotFound) {
		t.Errorf("the oldest of three in two places: %v", err)
	}
	if _, err := m.Load(t.Context(), ids[2]); err != nil {
		t.Error(err)
	}
}

// Every answer forbids inline and foreign content, framing and sniffing.
// Another site's page gets no WebSocket.
func TestSecurity(t *testing.T) {
	_, url := serve(t, PageOptions{})
	for _, path := range []string{"/", "/nowhere", "/r/x", "/api/nothing", "/api/results/x", "/api/down"} {
		_, _, header := request(t, "GET", url+path, nil)
		csp := header.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "script-src 'self'"} {
			if !strings.Contains(csp, want) {
				t.Errorf("%s: policy %q lacks %s", path, csp, want)
			}
		}
		if strings.Contains(csp, "unsafe") || header.Get("X-Content-Type-Options") != "nosniff" || header.Get("Cross-Origin-Opener-Policy") != "same-origin" {
			t.Errorf("%s: %v", path, header)
		}
	}
	_, _, err := websocket.Dial(t.Context(), url+"/api/probe", &websocket.DialOptions{HTTPHeader: http.Header{"Origin": {"https://elsewhere.example"}}})
	if err == nil {
		t.Error("another site's page got a WebSocket")
	}
	if status, _, header := request(t, "DELETE", url+"/", nil); status != http.StatusMethodNotAllowed || header.Get("Allow") == "" {
		t.Errorf("DELETE /: %d", status)
	}
	if status, _, _ := request(t, "GET", url+"/assets/../index.html", nil); status == 500 {
		t.Error("a path with dots upset the server")
	}
}

// The page's files are served with their types, gzipped; those with a hash in
// the name can be cached forever. Nothing in them is inline or foreign, and the
// total is small.
func TestSite(t *testing.T) {
	files := web.ServerPage()
	s := newSite(files)
	total := 0
	foreign := regexp.MustCompile(`(?i)(src|href)=["'](https?:)?//|<script>|<style|\sstyle=|\son[a-z]+=`)
	for name, f := range s.files {
		total += len(f.Gzip)
		if f.Gzip == nil {
			total += len(f.Plain)
		}
		if strings.HasSuffix(name, ".html") {
			if m := foreign.Find(f.Plain); m != nil {
				t.Errorf("%s has %q", name, m)
			}
		}
		r := httptest.NewRequest("GET", "/"+name, nil)
		r.Header.Set("Accept-Encoding", "br, gzip;q=0.8")
		w := httptest.NewRecorder()
		s.serve(w, r)
		if w.Code != 200 || w.Header().Get("Content-Type") != f.Kind || w.Header().Get("Content-Length") != fmt.Sprint(w.Body.Len()) {
			t.Errorf("%s: %d %v", name, w.Code, w.Header())
		}
		if immutable := strings.Contains(w.Header().Get("Cache-Control"), "immutable"); immutable != strings.HasPrefix(name, "assets/") {
			t.Errorf("%s: %s", name, w.Header().Get("Cache-Control"))
		}
	}
	if total > 60_000 {
		t.Errorf("the page has %d bytes gzipped, more than 60000", total)
	}
	t.Logf("%d bytes gzipped in %d files", total, len(s.files))
	if _, err := fs.Stat(files, "index.html"); err != nil {
		t.Error(err)
	}
	none := newSite(nil)
	w := httptest.NewRecorder()
	none.serve(w, httptest.NewRequest("GET", "/", nil))
	if !strings.Contains(w.Body.String(), "no web page") {
		t.Errorf("a build without the page: %s", w.Body)
	}
}

func TestClientOf(t *testing.T) {
	for remote, want := range map[string]string{
		"192.0.2.1:80": "192.0.2.1", "[2001:db8:1:2:3::4]:80": "2001:db8:1:2::", "[::ffff:192.0.2.1]:1": "192.0.2.1", "@": "invalid IP",
	} {
		if got := clientOf(&http.Request{RemoteAddr: remote}).String(); got != want {
			t.Errorf("%s: %s, want %s", remote, got, want)
		}
	}
}
