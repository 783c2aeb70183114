package page_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"unbloat/internal/keep/daemon"
	"unbloat/internal/keep/page"
)

// A fakeRouter counts what it is asked to change.
type fakeRouter struct {
	mu      sync.Mutex
	changed []string
	states  int
	err     error // of each change
}

func (f *fakeRouter) change(format string, args ...any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return f.err
	}
	f.changed = append(f.changed, fmt.Sprintf(format, args...))
	return nil
}

func (f *fakeRouter) done() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.changed...)
}

func (f *fakeRouter) State(context.Context) page.State {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.states++
	return page.State{TimeMs: int64(f.states), WANs: []page.WAN{{WAN: "eth0"}}, Machines: []page.Machine{}}
}

func (f *fakeRouter) Machine(_ context.Context, a netip.Addr) (page.MachineFlows, error) {
	return page.MachineFlows{Machine: page.Machine{Address: a.String()}, Flows: []page.Flow{}}, nil
}

func (f *fakeRouter) Line(_ context.Context, wan string, day bool) (daemon.History, error) {
	return daemon.History{WAN: wan, Step: map[bool]int{true: 60, false: 1}[day]}, nil
}

func (f *fakeRouter) SetLine(_ context.Context, l page.SetLine) (daemon.Change, error) {
	return daemon.Change{ID: "c"}, f.change("line %s", l.WAN)
}

func (f *fakeRouter) Confirm(_ context.Context, c string) error  { return f.change("confirm %s", c) }
func (f *fakeRouter) Revert(_ context.Context, wan string) error { return f.change("revert %s", wan) }

func (f *fakeRouter) Run(_ context.Context, r page.Run) (page.Running, error) {
	return page.Running{}, f.change("run %s", r.Kind)
}
func (f *fakeRouter) Stop(_ context.Context, wan string) error { return f.change("stop %s", wan) }

func (f *fakeRouter) Health(_ context.Context, wan string) (page.Health, error) {
	return page.Health{WAN: wan}, nil
}

func (f *fakeRouter) Mend(_ context.Context, m page.Mend) (page.Health, error) {
	return page.Health{}, f.change("mend %s", m.Code)
}
func (f *fakeRouter) While(_ context.Context, w page.While) (daemon.While, error) {
	return daemon.While{}, f.change("while %s", w.WAN)
}
func (f *fakeRouter) Incidents(context.Context, string) (page.Incidents, error) {
	return page.Incidents{Incidents: []page.Incident{}}, nil
}
func (f *fakeRouter) Events(context.Context) (page.Events, error) { return page.Events{}, nil }
func (f *fakeRouter) History(context.Context, string) (page.History, error) {
	return page.History{}, nil
}
func (f *fakeRouter) Compare(context.Context, string, string) (page.Comparison, error) {
	return page.Comparison{}, nil
}
func (f *fakeRouter) Schedule(_ context.Context, p daemon.ScheduleParams) (out daemon.Schedule, err error) {
	if p.Entries != nil {
		err = f.change("schedule %d", len(*p.Entries))
	}
	return out, err
}

// A world is an App with what is around it.
type world struct {
	t      *testing.T
	router *fakeRouter
	app    *page.App
	now    time.Time
	saved  []byte
	broken bool // saving fails
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, router: &fakeRouter{}, now: time.Unix(1_800_000_000, 0)}
	w.start()
	return w
}

// start starts an App, with other options if change is given.
func (w *world) start(change ...func(*page.Options)) {
	w.t.Helper()
	o := page.Options{Router: w.router, Version: "1.2.3", Names: []string{"OpenWrt", "router.example"}, Secrets: w.saved,
		Page: fstest.MapFS{"index.html": {Data: []byte("<!doctype html>" + strings.Repeat(" the page", 100))}, "assets/a-1.js": {Data: []byte("1")}},
		Save: func(b []byte) error {
			if w.broken {
				return errors.New("the disk is full")
			}
			w.saved = b
			return nil
		},
		Now: func() time.Time { return w.now }}
	for _, f := range change {
		f(&o)
	}
	var err error
	if w.app, err = page.New(o); err != nil {
		w.t.Fatal(err)
	}
}

// A browser asks as a browser does.
type browser struct {
	w      *world
	from   netip.Addr
	host   string
	cookie string
	known  string // the cookie of a known browser
	csrf   string
	tls    bool
	stream func(context.Context, func([]byte) error) // of the last answer that goes on
}

func (w *world) browser() *browser {
	return &browser{w: w, from: netip.MustParseAddr("192.168.1.7"), host: "192.168.1.1:7690"}
}

// send sends a request; change alters it before.
func (b *browser) send(method, path, body string, change func(*page.Request)) (int, map[string]string, []byte) {
	b.w.t.Helper()
	p, q, _ := strings.Cut(path, "?")
	r := &page.Request{Method: method, Path: p, Query: q, From: b.from, At: netip.MustParseAddr("192.168.1.1"), TLS: b.tls, Body: []byte(body), Header: map[string]string{"host": b.host}}
	if b.cookie != "" || b.known != "" {
		r.Header["cookie"] = "other=1; " + b.known + "; " + b.cookie
	}
	if method == "POST" {
		scheme := "http"
		if b.tls {
			scheme = "https"
		}
		r.Header["origin"], r.Header["sec-fetch-site"], r.Header["content-type"], r.Header["x-csrf"] = scheme+"://"+b.host, "same-origin", "application/json", b.csrf
	}
	if change != nil {
		change(r)
	}
	out := b.w.app.Handle(b.w.t.Context(), r)
	if out.Stream != nil {
		b.stream = out.Stream
	}
	header := map[string]string{}
	for _, h := range out.Header {
		if name := strings.ToLower(h[0]); name == "set-cookie" && strings.Contains(h[1], "unbloat-known=") {
			b.known, _, _ = strings.Cut(h[1], ";")
		} else {
			header[name] = h[1]
		}
	}
	return out.Status, header, out.Body
}

// get and post return the status and the error's code.
func (b *browser) get(path string) (int, daemon.Code) {
	b.w.t.Helper()
	s, _, body := b.send("GET", path, "", nil)
	return s, codeIn(body)
}

func (b *browser) post(path, body string) (int, daemon.Code) {
	b.w.t.Helper()
	s, h, out := b.send("POST", path, body, nil)
	if c, ok := h["set-cookie"]; ok {
		b.cookie, _, _ = strings.Cut(c, ";")
	}
	var is page.Session
	if s == 200 && json.Unmarshal(out, &is) == nil && is.CSRF != "" {
		b.csrf = is.CSRF
	}
	return s, codeIn(out)
}

func codeIn(body []byte) daemon.Code {
	var f page.Failure
	_ = json.Unmarshal(body, &f)
	return f.Error.Code
}

const password = "correct horse"

// admin is a browser that is logged in.
func (w *world) admin() *browser {
	w.t.Helper()
	b := w.browser()
	if s, c := b.post("/api/first", fmt.Sprintf(`{"token":%q,"password":%q}`, w.app.Token(false), password)); s != 200 {
		w.t.Fatal(s, c)
	}
	return b
}

// The first run: a token, then a password, which alone is needed from then on, over
// restarts too.
func TestFirstRun(t *testing.T) {
	w := newWorld(t)
	b := w.browser()
	token := w.app.Token(false)
	if len(token) != 23 || !w.app.FirstRun() {
		t.Errorf("token %q", token)
	}
	for _, c := range []struct {
		token, password string
		status          int
		code            daemon.Code
	}{
		{"", password, 403, page.CodePassword},
		{"aaaaa-aaaaa-aaaaa-aaaaa", password, 403, page.CodePassword},
		{token, "short", 400, page.CodeWeak},
		{token, strings.Repeat("x", 257), 400, page.CodeWeak},
	} {
		if s, code := b.post("/api/first", fmt.Sprintf(`{"token":%q,"password":%q}`, c.token, c.password)); s != c.status || code != c.code {
			t.Errorf("%q: %d %s", c.token, s, code)
		}
	}
	w.broken = true
	if s, _ := b.post("/api/first", fmt.Sprintf(`{"token":%q,"password":%q}`, token, password)); s != 500 || !w.app.FirstRun() {
		t.Errorf("a password that cannot be kept: %d", s)
	}
	w.broken = false
	if s, _ := b.post("/api/first", fmt.Sprintf(`{"token":%q,"password":%q}`, strings.ToUpper(strings.ReplaceAll(token, "-", " ")), password)); s != 200 {
		t.Errorf("as a person types it: %d", s)
	}
	if w.app.Token(false) != "" || w.app.FirstRun() {
		t.Error("the token is there still")
	}
	if bytes.Contains(w.saved, []byte(password)) {
		t.Error("the password is kept as it is")
	}
	if s, _ := b.get("/api/state"); s != 200 {
		t.Errorf("state: %d", s)
	}
	if s, code := w.browser().post("/api/first", fmt.Sprintf(`{"token":%q,"password":"another one"}`, token)); s != 403 || code != page.CodePassword {
		t.Errorf("the token again: %d %s", s, code)
	}
	w.start() // the sessions are gone, the password is not
	if s, code := b.get("/api/state"); s != 401 || code != page.CodeLogin {
		t.Errorf("an old cookie: %d %s", s, code)
	}
	if s, _ := b.post("/api/login", `{"password":"correct horse"}`); s != 200 {
		t.Errorf("login: %d", s)
	}
	// Whoever has forgotten it gets another token, on the router alone.
	again := w.app.Token(true)
	if s, _ := w.browser().post("/api/first", fmt.Sprintf(`{"token":%q,"password":"battery staple"}`, again)); s != 200 {
		t.Errorf("a new token: %d", s)
	}
	if s, _ := b.get("/api/state"); s != 401 {
		t.Errorf("a session with the old password: %d", s)
	}
}

// Nobody sees anything without a login, and a viewer changes nothing.
func TestRoles(t *testing.T) {
	w := newWorld(t)
	admin := w.admin()
	reads := []string{"/api/state", "/api/stream", "/api/machine?address=192.168.1.7", "/api/line?wan=eth0&range=1h", "/api/health", "/api/events", "/api/incidents?wan=eth0",
		"/api/history", "/api/history/compare?before=a&after=b", "/api/schedule", "/api/export"}
	changes := map[string]string{"/api/line": `{"wan":"eth0","down_bps":1}`, "/api/confirm": `{"change":"c"}`, "/api/while": `{"wan":"eth0","do":"off","seconds":3600}`,
		"/api/revert": `{"wan":"eth0"}`, "/api/run": `{"wan":"eth0","kind":"test"}`, "/api/stop": `{"wan":"eth0"}`, "/api/mend": `{"wan":"eth0","code":"drift"}`,
		"/api/schedule": `{"entries":[]}`}
	nobody := w.browser()
	for _, path := range reads {
		if s, code := nobody.get(path); s != 401 || code != page.CodeLogin {
			t.Errorf("%s without a login: %d %s", path, s, code)
		}
		if s, code := admin.get(path); s != 200 {
			t.Errorf("%s: %d %s", path, s, code)
		}
	}
	if s, code := admin.post("/api/password", `{"now":"correct horse","role":"viewer","new":"only looking"}`); s != 200 {
		t.Fatal(s, code)
	}
	viewer := w.browser()
	if s, _ := viewer.post("/api/login", `{"password":"only looking"}`); s != 200 {
		t.Fatal(s)
	}
	for path, body := range changes {
		if s, code := nobody.post(path, body); s != 401 || code != page.CodeLogin {
			t.Errorf("%s without a login: %d %s", path, s, code)
		}
		if s, code := viewer.post(path, body); s != 403 || code != page.CodeReadOnly {
			t.Errorf("%s by a viewer: %d %s", path, s, code)
		}
	}
	if s, code := viewer.post("/api/password", `{"now":"correct horse","role":"admin","new":"taken over"}`); s != 403 || code != page.CodeReadOnly {
		t.Errorf("a viewer's password: %d %s", s, code)
	}
	for _, path := range reads {
		if s, _ := viewer.get(path); s != 200 {
			t.Errorf("%s by a viewer: %d", path, s)
		}
	}
	if done := w.router.done(); len(done) != 0 {
		t.Errorf("they changed %q", done)
	}
	for path, body := range changes {
		if s, code := admin.post(path, body); s != 200 {
			t.Errorf("%s: %d %s", path, s, code)
		}
	}
	if done := w.router.done(); len(done) != len(changes) {
		t.Errorf("the admin changed %q", done)
	}
	for _, c := range []struct{ body, says string }{
		{`{"now":"wrong one","role":"viewer","new":""}`, "password"},
		{`{"now":"only looking","role":"admin","new":"taken over"}`, "password"},
		{`{"now":"correct horse","role":"admin","new":""}`, "bad_request"},
		{`{"now":"correct horse","role":"king","new":"long enough"}`, "bad_request"},
		{`{"now":"correct horse","role":"viewer","new":"x"}`, "weak"},
	} {
		if _, code := admin.post("/api/password", c.body); string(code) != c.says {
			t.Errorf("%s: %s", c.body, code)
		}
	}
	if s, _ := admin.post("/api/password", `{"now":"correct horse","role":"viewer","new":""}`); s != 200 {
		t.Fatal(s)
	}
	if s, _ := viewer.get("/api/state"); s != 401 {
		t.Errorf("a viewer whose password is gone: %d", s)
	}
	if s, _ := admin.post("/api/logout", `{}`); s != 200 {
		t.Fatal(s)
	}
	if s, _ := admin.get("/api/state"); s != 401 {
		t.Errorf("after the logout: %d", s)
	}
}

// What does not come from the page itself changes nothing: other sites, forged
// tokens, rebound names, broken JSON.
func TestForgeries(t *testing.T) {
	w := newWorld(t)
	b := w.admin()
	const path, body = "/api/line", `{"wan":"eth0","on":false}`
	set := func(name, value string) func(*page.Request) {
		return func(r *page.Request) { r.Header[name] = value }
	}
	for name, c := range map[string]struct {
		change func(*page.Request)
		status int
		code   daemon.Code
	}{
		"another site":             {set("origin", "http://evil.example"), 403, page.CodeForged},
		"the same name, encrypted": {set("origin", "https://192.168.1.1:7690"), 403, page.CodeForged},
		"another port":             {set("origin", "http://192.168.1.1"), 403, page.CodeForged},
		"a sandbox":                {set("origin", "null"), 403, page.CodeForged},
		"a name that looks so":     {set("origin", "http://192.168.1.1:7690.evil.example"), 403, page.CodeForged},
		"with a user":              {set("origin", "http://192.168.1.1:7690@evil.example"), 403, page.CodeForged},
		"from another site's form": {set("sec-fetch-site", "cross-site"), 403, page.CodeForged},
		"from a sibling's":         {set("sec-fetch-site", "same-site"), 403, page.CodeForged},
		"no token":                 {set("x-csrf", ""), 403, page.CodeForged},
		"another's token":          {set("x-csrf", strings.Repeat("A", 32)), 403, page.CodeForged},
		"a form":                   {set("content-type", "application/x-www-form-urlencoded"), 400, daemon.CodeRequest},
		"text":                     {set("content-type", "text/plain"), 400, daemon.CodeRequest},
		"a rebound name": {func(r *page.Request) {
			r.Header["host"], r.Header["origin"] = "evil.example:7690", "http://evil.example:7690"
		}, 421, page.CodeHost},
		"a rebound name with lan": {func(r *page.Request) { r.Header["host"], r.Header["origin"] = "evil.lan", "http://evil.lan" }, 421, page.CodeHost},
		"no cookie":               {set("cookie", ""), 401, page.CodeLogin},
		"a forged cookie":         {set("cookie", "unbloat="+strings.Repeat("A", 43)), 401, page.CodeLogin},
		"the cookie of TLS":       {func(r *page.Request) { r.Header["cookie"] = "__Host-" + strings.TrimPrefix(b.cookie, "") }, 401, page.CodeLogin},
		"broken JSON":             {func(r *page.Request) { r.Body = []byte(`{"wan":"eth0","on":fal`) }, 400, daemon.CodeRequest},
		"no JSON":                 {func(r *page.Request) { r.Body = nil }, 400, daemon.CodeRequest},
		"two":                     {func(r *page.Request) { r.Body = []byte(body + body) }, 400, daemon.CodeRequest},
		"other fields":            {func(r *page.Request) { r.Body = []byte(`{"wan":"eth0","off":true}`) }, 400, daemon.CodeRequest},
		"another type":            {func(r *page.Request) { r.Body = []byte(`{"wan":"eth0","down_bps":"1e9"}`) }, 400, daemon.CodeRequest},
		"too large a number":      {func(r *page.Request) { r.Body = []byte(`{"wan":"eth0","down_bps":1e300}`) }, 400, daemon.CodeRequest},
		"deep JSON":               {func(r *page.Request) { r.Body = []byte(strings.Repeat("[", 60000)) }, 400, daemon.CodeRequest},
		"GET":                     {func(r *page.Request) { r.Method = "GET" }, 400, daemon.CodeRequest}, // the line's series, without a range
		"an event":                {func(r *page.Request) { r.Path = "/api/events" }, 404, page.CodeNotFound},
		"a state":                 {func(r *page.Request) { r.Path = "/api/state" }, 404, page.CodeNotFound},
	} {
		s, _, out := b.send("POST", path, body, c.change)
		if code := codeIn(out); s != c.status || code != c.code {
			t.Errorf("%s: %d %s, want %d %s", name, s, code, c.status, c.code)
		}
	}
	if done := w.router.done(); len(done) != 0 {
		t.Fatalf("they changed %q", done)
	}
	for _, host := range []string{"192.168.1.1:7690", "192.168.1.1", "[fd00::1]:7690", "localhost:7690", "openwrt", "OPENWRT.lan:7690", "router.example", "openwrt.home.arpa."} {
		b.host = host
		if s, code := b.post(path, body); s != 200 {
			t.Errorf("as %s: %d %s", host, s, code)
		}
	}
	for _, host := range []string{"", "openwrt.example", "router.example.evil.example", "192.168.1.1.evil.example", "[fd00::1", "192.168.1.1:76x90", "localhost.evil.example:7690", "router.example:7690@evil.example"} {
		b.host = host
		if s, code := b.post(path, body); s != 421 || code != page.CodeHost {
			t.Errorf("as %q: %d %s", host, s, code)
		}
	}
	w.router.err = &daemon.Error{Code: daemon.CodeBusy, Text: "wait"}
	b.host = "192.168.1.1"
	if s, code := b.post(path, body); s != 409 || code != daemon.CodeBusy {
		t.Errorf("a refusal: %d %s", s, code)
	}
}

// Logins are slow for who guesses: by address, and for all together.
func TestGuessing(t *testing.T) {
	w := newWorld(t)
	w.admin()
	guess := func(from string) daemon.Code {
		b := w.browser()
		b.from = netip.MustParseAddr(from)
		_, code := b.post("/api/login", fmt.Sprintf(`{"password":%q}`, strings.Repeat("x", page.MostPassword+1))) // refused without a slow hash
		return code
	}
	for i := range 5 {
		if code := guess("192.168.1.66"); code != page.CodePassword {
			t.Fatalf("guess %d: %s", i, code)
		}
	}
	if code := guess("192.168.1.66"); code != page.CodeSlow {
		t.Errorf("the sixth: %s", code)
	}
	b := w.browser()
	b.from = netip.MustParseAddr("192.168.1.66")
	s, h, out := b.send("POST", "/api/login", `{"password":"correct horse"}`, nil)
	var f page.Failure
	if json.Unmarshal(out, &f) != nil || s != 429 || f.Error.RetrySeconds < 1 || f.Error.RetrySeconds > 30 || h["retry-after"] == "" {
		t.Errorf("the right one after that: %d %s", s, out)
	}
	if s, _ := w.browser().post("/api/login", `{"password":"correct horse"}`); s != 200 {
		t.Errorf("another address: %d", s)
	}
	w.now = w.now.Add(31 * time.Second)
	if code := guess("192.168.1.66"); code != page.CodePassword {
		t.Errorf("later: %s", code)
	}
	if code := guess("192.168.1.66"); code != page.CodeSlow {
		t.Errorf("and at once again: %s", code)
	}
	// IPv6 counts by /64, and all addresses together have a bound.
	slow := 0
	for i := range 60 {
		if guess(fmt.Sprintf("fd00::%x", i+1)) == page.CodeSlow {
			slow++
		}
	}
	if slow != 55 {
		t.Errorf("%d of 60 addresses of one network were slowed", slow)
	}
	slow = 0
	for i := range 60 {
		if guess(fmt.Sprintf("10.9.%d.1", i)) == page.CodeSlow {
			slow++
		}
	}
	if slow < 30 {
		t.Errorf("%d of 60 networks were slowed", slow)
	}
}

// Another page of the router sends somebody with a ticket: it logs in once, within a
// minute, as who it was made for; wrong ones are counted as wrong logins, and the
// ticket needs no password to be there.
func TestTickets(t *testing.T) {
	w := newWorld(t)
	enter := func(b *browser, ticket string) (int, daemon.Code) {
		t.Helper()
		return b.post("/api/enter", fmt.Sprintf(`{"ticket":%q}`, ticket))
	}
	if got := w.app.Ticket(page.Nobody) + w.app.Ticket("root"); got != "" {
		t.Errorf("a ticket for nobody: %q", got)
	}
	b, ticket := w.browser(), w.app.Ticket(page.Admin)
	if s, c := enter(b, ticket); s != 200 {
		t.Fatal(s, c)
	}
	if s, c := b.post("/api/line", `{"wan":"wan","on":false}`); s != 200 {
		t.Error(s, c)
	}
	if s, c := enter(w.browser(), ticket); s != 403 || c != page.CodePassword {
		t.Errorf("a second time: %d %s", s, c)
	}
	v := w.browser()
	if s, c := enter(v, w.app.Ticket(page.Viewer)); s != 200 {
		t.Fatal(s, c)
	}
	if s, c := v.post("/api/line", `{"wan":"wan","on":false}`); s != 403 || c != page.CodeReadOnly {
		t.Errorf("a viewer changes the line: %d %s", s, c)
	}
	late := w.app.Ticket(page.Admin)
	w.now = w.now.Add(page.TicketSeconds * time.Second)
	if s, c := enter(w.browser(), late); s != 403 || c != page.CodePassword {
		t.Errorf("late: %d %s", s, c)
	}
	first, viewers := w.app.Ticket(page.Admin), w.app.Ticket(page.Viewer)
	for range 16 {
		w.app.Ticket(page.Viewer)
	}
	if s, _ := enter(w.browser(), viewers); s != 403 {
		t.Error("tickets are not bounded")
	}
	if s, _ := enter(w.browser(), first); s != 200 {
		t.Error("viewers' tickets take the admin's")
	}
	good := w.app.Ticket(page.Admin)
	if s, _, body := w.browser().send("POST", "/api/enter", fmt.Sprintf(`{"ticket":%q}`, good), func(r *page.Request) { r.Header["origin"] = "http://evil.example" }); s != 403 || codeIn(body) != page.CodeForged {
		t.Errorf("from another site: %d %s", s, body)
	}
	slow := false
	for range 10 {
		_, c := enter(w.browser(), "guess")
		slow = slow || c == page.CodeSlow
	}
	if !slow {
		t.Error("guesses are not slowed down")
	}
	if s, _ := enter(w.browser(), w.app.Ticket(page.Admin)); s != 200 {
		t.Error("others' guesses keep the console out")
	}
}

// A session ends when nobody has used it for long, and its stream with it.
func TestSessionsEnd(t *testing.T) {
	w := newWorld(t)
	b := w.admin()
	w.now = w.now.Add(11 * time.Hour)
	if s, _ := b.get("/api/state"); s != 200 {
		t.Fatal(s)
	}
	w.now = w.now.Add(13 * time.Hour)
	if s, _ := b.get("/api/state"); s != 401 {
		t.Errorf("after half a day: %d", s)
	}
}

// The cookie and the headers are those of a page that is kept apart.
func TestHeaders(t *testing.T) {
	w := newWorld(t)
	b := w.browser()
	_, h, _ := b.send("POST", "/api/first", fmt.Sprintf(`{"token":%q,"password":%q}`, w.app.Token(false), password), nil)
	for _, want := range []string{"unbloat=", "HttpOnly", "SameSite=Strict", "Path=/"} {
		if !strings.Contains(h["set-cookie"], want) {
			t.Errorf("%s is not in %q", want, h["set-cookie"])
		}
	}
	if strings.Contains(h["set-cookie"], "Secure") || strings.Contains(h["set-cookie"], "Domain") {
		t.Errorf("%q", h["set-cookie"])
	}
	b.tls = true
	_, h, _ = b.send("POST", "/api/login", `{"password":"correct horse"}`, nil)
	if !strings.HasPrefix(h["set-cookie"], "__Host-unbloat=") || !strings.HasSuffix(h["set-cookie"], "; Secure") {
		t.Errorf("with TLS %q", h["set-cookie"])
	}
	for _, path := range []string{"/", "/api/session", "/nothing", "/api/nothing"} {
		_, h, _ := b.send("GET", path, "", nil)
		if !strings.Contains(h["content-security-policy"], "script-src 'self'") || strings.Contains(h["content-security-policy"], "unsafe") ||
			h["x-content-type-options"] != "nosniff" || h["x-frame-options"] != "DENY" || h["access-control-allow-origin"] != "" {
			t.Errorf("%s: %v", path, h)
		}
		if strings.HasPrefix(path, "/api/") && h["cache-control"] != "no-store" {
			t.Errorf("%s may be kept: %q", path, h["cache-control"])
		}
	}
}

// The page's files have an ETag, and are sent with gzip to those who take it.
func TestFiles(t *testing.T) {
	w := newWorld(t)
	b := w.browser()
	s, h, body := b.send("GET", "/", "", nil)
	if s != 200 || !bytes.HasPrefix(body, []byte("<!doctype html>")) || h["content-type"] != "text/html; charset=utf-8" || h["etag"] == "" || h["cache-control"] != "no-cache" {
		t.Errorf("%d %v", s, h)
	}
	s, z, zipped := b.send("GET", "/", "", func(r *page.Request) { r.Header["accept-encoding"] = "br, gzip;q=0.8" })
	if s != 200 || z["content-encoding"] != "gzip" || len(zipped) >= len(body) || z["vary"] != "Accept-Encoding" {
		t.Errorf("%d %v", s, z)
	}
	if got := gunzip(t, zipped); !bytes.Equal(got, body) {
		t.Errorf("%d bytes, want %d", len(got), len(body))
	}
	if _, z, _ := b.send("GET", "/", "", func(r *page.Request) { r.Header["accept-encoding"] = "gzip;q=0" }); z["content-encoding"] != "" {
		t.Error("gzip though it is not taken")
	}
	if s, _, body := b.send("GET", "/", "", func(r *page.Request) { r.Header["if-none-match"] = `"x", W/` + h["etag"] }); s != 304 || len(body) != 0 {
		t.Errorf("the second time: %d, %d bytes", s, len(body))
	}
	if s, h, _ := b.send("GET", "/assets/a-1.js", "", nil); s != 200 || !strings.Contains(h["cache-control"], "immutable") || h["content-type"] != "text/javascript; charset=utf-8" {
		t.Errorf("%d %v", s, h)
	}
	for _, path := range []string{"/../../etc/passwd", "/assets", "/assets/", "//", "/index.html/", "/%2e%2e/x"} {
		if s, _, _ := b.send("GET", path, "", nil); s != 404 {
			t.Errorf("%s: %d", path, s)
		}
	}
}

// What is kept of passwords is refused if it was tampered with.
func TestSecretsThatAreBroken(t *testing.T) {
	for _, text := range []string{"", "{", `{"schema":"x"}`, `{"schema":"unbloat.ui/1","admin":{"salt":"AAAAAAAAAAAAAAAAAAAAAA==","hash":"AA==","passes":1,"kib":64}}`,
		`{"schema":"unbloat.ui/1","admin":{"salt":"AAAAAAAAAAAAAAAAAAAAAA==","hash":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","passes":1,"kib":999999999}}`} {
		if _, err := page.New(page.Options{Router: &fakeRouter{}, Secrets: []byte(text), Save: func([]byte) error { return nil }}); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}

// Who may reach the page: this machine and the home, and what is allowed besides.
func TestAdmits(t *testing.T) {
	n := page.Network{Home: []netip.Prefix{netip.MustParsePrefix("192.168.1.0/24"), netip.MustParsePrefix("2001:db8:1::/64")},
		Lines: []netip.Addr{netip.MustParseAddr("203.0.113.2"), netip.MustParseAddr("fe80::1"), netip.MustParseAddr("10.64.0.9")}}
	allow := []netip.Prefix{netip.MustParsePrefix("10.8.0.0/24")}
	for _, c := range []struct {
		from, at string
		want     bool
	}{
		{"127.0.0.1", "127.0.0.1", true},
		{"::1", "::1", true},
		{"192.168.1.7", "192.168.1.1", true},
		{"192.168.1.7", "203.0.113.2", true}, // by the router's other address
		{"2001:db8:1::7", "2001:db8:1::1", true},
		{"10.8.0.3", "192.168.1.1", true},
		{"fe80::7", "fe80::2", true},
		{"fe80::7", "fe80::1", false}, // on the line
		{"203.0.113.9", "203.0.113.2", false},
		{"10.64.0.1", "10.64.0.9", false}, // the provider's network, private or not
		{"192.168.2.7", "192.168.1.1", false},
		{"198.51.100.1", "192.168.1.1", false},
		{"2001:db8:2::7", "2001:db8:1::1", false},
	} {
		if got := page.Admits(n, allow, netip.MustParseAddr(c.from), netip.MustParseAddr(c.at)); got != c.want {
			t.Errorf("from %s to %s: %v", c.from, c.at, got)
		}
	}
	if page.Admits(n, allow, netip.Addr{}, netip.Addr{}) {
		t.Error("from nowhere")
	}
}

func gunzip(t *testing.T, b []byte) []byte {
	t.Helper()
	out, err := io.ReadAll(unzip(t, b))
	if err != nil {
		t.Fatal(err)
	}
	return out
}
