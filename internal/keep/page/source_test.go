package page_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"unbloat/guard"
	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/classify"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/all"
	"unbloat/internal/keep/config"
	"unbloat/internal/keep/daemon"
	"unbloat/internal/keep/flows"
	"unbloat/internal/keep/page"
	"unbloat/internal/keep/supervise"
	"unbloat/testkit/await"
	"unbloat/testkit/fake"
)

// patience is far beyond what anything here takes.
const patience = 30 * time.Second

// unwatched is a watchdog that never acts: the daemon's own is a process.
type unwatched struct{}

func (unwatched) Arm(context.Context, *apply.Journal) error   { return nil }
func (unwatched) Renew(context.Context, *apply.Journal) error { return nil }
func (unwatched) Alive(context.Context, *apply.Journal) bool  { return true }
func (unwatched) Close(context.Context, *apply.Journal) error { return nil }

// A home is a daemon that keeps a stand-in of a Linux router, with its page.
type home struct {
	t      testing.TB
	dir    string
	url    string
	router *locked
	app    *page.App
	daemon *daemon.Caller

	mu    sync.Mutex
	flows []flows.Flow
	found []platform.Finding
}

// A locked runner runs one command at a time.
type locked struct {
	mu sync.Mutex
	at platform.Runner
}

func (l *locked) Run(ctx context.Context, argv []string, stdin []byte) ([]byte, []byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.at.Run(ctx, argv, stdin)
}

func (h *home) file() string { return filepath.Join(h.dir, "unbloat.toml") }

func (h *home) text() string {
	b, err := os.ReadFile(h.file())
	if err != nil {
		h.t.Fatal(err)
	}
	return string(b)
}

// newHome starts it.
func newHome(t testing.TB) *home {
	t.Helper()
	h := &home{t: t, dir: t.TempDir(), router: &locked{at: fake.NewLinux()}}
	driver, err := all.Find("linux")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(h.file(), []byte("[ui]\nlisten = \"127.0.0.1:1\"\n\n[[wan]]\ninterface = \"wan\"\nlan = \"lan\"\ndown = \"50 Mbit/s\" # sold\nup = \"10 Mbit/s\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	open := func(_ context.Context, w config.WAN) (*daemon.Router, error) {
		var engines [2]*apply.Engine
		for i, replace := range []bool{false, true} {
			b, err := driver.Backend(platform.Options{Runner: h.router, Replace: replace})
			if err != nil {
				return nil, err
			}
			engines[i] = &apply.Engine{Backend: b, Runner: h.router, Dir: h.dir, Watchdog: unwatched{}}
		}
		return &daemon.Router{Driver: driver, Engine: engines[0], Taking: engines[1], Close: func() {},
			Plan: func(_ context.Context, w config.WAN) (plan.Plan, error) {
				return plan.Make(w.PlanLine(), driver.Language.Assume(w.Interface, w.LAN), w.Preferences())
			}}, nil
	}
	ready := make(chan struct{})
	o := daemon.Options{File: h.file(), Dir: h.dir, Memory: filepath.Join(h.dir, "state.json"), Log: io.Discard, Getenv: func(string) string { return "" }, Open: open,
		Watch: func(context.Context, func(daemon.Event)) (<-chan struct{}, error) { return nil, nil },
		UI: func(ctx context.Context, c config.Config, host daemon.PageHost) (func(daemon.PageParams) daemon.Page, <-chan struct{}, error) {
			ended := make(chan struct{})
			close(ended) // the test serves on when the daemon has ended
			h.daemon = host.Daemon
			err := h.serve(ctx)
			close(ready)
			return func(p daemon.PageParams) daemon.Page { return daemon.Page{Token: h.app.Token(p.NewToken)} }, ended, err
		}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- daemon.Run(ctx, o) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	<-ready
	h.until("the line is in place", func() bool { return h.status().State == "in place" })
	return h
}

// serve serves the page on the loopback.
func (h *home) serve(ctx context.Context) error {
	o := page.SourceOptions{Daemon: h.daemon,
		Each: func(_ context.Context, f func(flows.Flow)) error {
			h.mu.Lock()
			defer h.mu.Unlock()
			for _, x := range h.flows {
				f(x)
			}
			return nil
		},
		Leases: func() flows.Leases {
			return flows.Leases{netip.MustParseAddr("192.168.1.7"): {Name: "laptop", MAC: "02:00:00:00:00:07"}}
		},
		Examine: func(_ context.Context, router, wan string) (*platform.DoctorReport, error) {
			h.mu.Lock()
			defer h.mu.Unlock()
			return &platform.DoctorReport{WAN: wan, OK: len(h.found) == 0, Findings: h.found, Checked: []string{"x"}}, nil
		},
	}
	var err error
	h.app, err = page.New(page.Options{Router: page.NewSource(o), Version: "1", Save: func([]byte) error { return nil },
		Page: fstest.MapFS{"index.html": {Data: []byte("<!doctype html>")}}})
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	h.url = "http://" + l.Addr().String()
	go func() { _ = h.app.Serve(ctx, &guard.Listener{Listener: l, Limits: page.Places()}, nil) }() // until ctx ends
	return nil
}

func (h *home) status() daemon.WANStatus {
	s, err := h.daemon.Status(h.t.Context(), daemon.Name{})
	if err != nil || len(s.WANs) != 1 {
		h.t.Fatalf("%+v %v", s, err)
	}
	return s.WANs[0]
}

func (h *home) until(what string, is func() bool) {
	h.t.Helper()
	await.Until(h.t, patience, what, is)
}

// A visit is a browser with the page.
type visit struct {
	h    *home
	c    *http.Client
	csrf string
}

// open logs in; the first does so with the token.
func (h *home) open(t testing.TB) *visit {
	t.Helper()
	return h.openFrom(t, "127.0.0.1")
}

// openFrom is open from one of the loopback's addresses.
func (h *home) openFrom(t testing.TB, address string) *visit {
	t.Helper()
	from := &net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(address), 0))}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	p := &visit{h: h, c: &http.Client{Jar: jar, Timeout: patience, Transport: &http.Transport{DialContext: from.DialContext}}}
	t.Cleanup(p.c.CloseIdleConnections)
	var s page.Session
	if token := h.app.Token(false); token != "" {
		p.do(t, "POST", "/api/first", page.First{Token: token, Password: "correct horse"}, &s)
	} else {
		p.do(t, "POST", "/api/login", page.Login{Password: "correct horse"}, &s)
	}
	p.csrf = s.CSRF
	return p
}

// do asks, and returns the error's code; "" for none.
func (p *visit) do(t testing.TB, method, path string, body, result any) daemon.Code {
	t.Helper()
	var in io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		in = bytes.NewReader(b)
	}
	q, err := http.NewRequestWithContext(t.Context(), method, p.h.url+path, in)
	if err != nil {
		t.Fatal(err)
	}
	if method == "POST" {
		q.Header.Set("Content-Type", "application/json")
		q.Header.Set("Origin", p.h.url)
		q.Header.Set("X-CSRF", p.csrf)
	}
	r, err := p.c.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	if r.StatusCode != 200 {
		var f page.Failure
		if err := json.Unmarshal(b, &f); err != nil {
			t.Fatalf("%s %s: %d %q", method, path, r.StatusCode, b)
		}
		return f.Error.Code
	}
	if result != nil {
		d := json.NewDecoder(bytes.NewReader(b))
		d.DisallowUnknownFields()
		if err := d.Decode(result); err != nil {
			t.Fatalf("%s: %v in %s", path, err, b)
		}
	}
	return ""
}

func (p *visit) state(t testing.TB) page.State {
	t.Helper()
	var s page.State
	if code := p.do(t, "GET", "/api/state", nil, &s); code != "" {
		t.Fatal(code)
	}
	return s
}

// A person changes the speeds on the page: it holds at once, counts down, and is kept
// when they confirm it; the next one they take back.
func TestChangeOnThePage(t *testing.T) {
	h := newHome(t)
	p := h.open(t)
	s := p.state(t)
	w := s.WANs[0]
	if w.WAN != "wan" || w.Platform != "linux" || !w.On || w.Kept != supervise.InPlace || w.Down.Line != 50_000_000 || w.Down.Rate == 0 || w.Down.Why == nil || w.Down.DelayMs != -1 || !w.Classes {
		t.Fatalf("%+v", w)
	}
	down := 30_000_000
	set := func(v any, result any) daemon.Code { t.Helper(); return p.do(t, "POST", "/api/line", v, result) }
	var c daemon.Change
	if code := set(map[string]any{"wan": "wan", "down_bps": down}, &c); code != "" || c.Kind != daemon.ChangeLine || c.Left <= 0 || c.Left > 30 || c.Seconds != 30 {
		t.Fatalf("%s %+v", code, c)
	}
	if w = p.state(t).WANs[0]; w.Pending == nil || w.Pending.ID != c.ID || w.Pending.Deadline < time.UnixMilli(s.TimeMs).UTC().Format(time.RFC3339) {
		t.Errorf("%+v", w.Pending)
	}
	if strings.Contains(h.text(), "30 Mbit") {
		t.Error("it is kept already")
	}
	if code := set(map[string]any{"wan": "wan", "up_bps": 5_000_000}, nil); code != daemon.CodeBusy {
		t.Errorf("a second change: %s", code)
	}
	if code := p.do(t, "POST", "/api/confirm", page.Confirm{Change: "0"}, nil); code != daemon.CodeNoChange {
		t.Errorf("another's: %s", code)
	}
	if code := p.do(t, "POST", "/api/confirm", page.Confirm{Change: c.ID}, nil); code != "" {
		t.Error(code)
	}
	if w = p.state(t).WANs[0]; w.Pending != nil || w.Down.Line != 30_000_000 || !strings.Contains(h.text(), "down = \"30 Mbit/s\" # sold") {
		t.Errorf("%+v\n%s", w, h.text())
	}
	h.until("the line is in place", func() bool { return h.status().State == "in place" })
	if code := set(map[string]any{"wan": "wan", "on": false}, &c); code != "" || c.Kind != daemon.ChangeOff {
		t.Fatalf("%s %+v", code, c)
	}
	if w = p.state(t).WANs[0]; w.On || w.Kept != supervise.Suspended || w.Down.Rate != 0 || w.Down.Why != nil {
		t.Errorf("%+v", w)
	}
	if code := p.do(t, "POST", "/api/revert", page.Revert{WAN: "wan"}, nil); code != "" {
		t.Error(code)
	}
	if w = p.state(t).WANs[0]; !w.On || w.Down.Rate == 0 {
		t.Errorf("%+v", w)
	}
	if code := p.do(t, "POST", "/api/revert", page.Revert{WAN: "wan"}, nil); code != daemon.CodeNoChange {
		t.Errorf("nothing waits: %s", code)
	}
	for _, body := range []any{map[string]any{"wan": "wan2", "on": false}, map[string]any{"wan": "../x", "on": false}, map[string]any{"wan": "ssh://x wan", "on": false}} {
		if code := set(body, nil); code != daemon.CodeUnknownWAN {
			t.Errorf("%v: %s", body, code)
		}
	}
	var wrong page.Incidents
	if code := p.do(t, "GET", "/api/incidents?wan=wan", nil, &wrong); code != "" || wrong.Watched || wrong.Incidents == nil || wrong.WAN != "wan" {
		t.Errorf("%s %+v", code, wrong)
	}
	if code := p.do(t, "GET", "/api/incidents?wan=wan9", nil, &wrong); code != daemon.CodeUnknownWAN {
		t.Errorf("of a line that is not there: %s", code)
	}
	var e page.Events
	if code := p.do(t, "GET", "/api/events", nil, &e); code != "" || len(e.Events) < 5 {
		t.Fatalf("%s %+v", code, e)
	}
	var told []string
	for _, x := range e.Events {
		told = append(told, string(x.Kind)+" "+string(x.Undone)+" "+x.By)
	}
	if got := strings.Join(told, ", "); !strings.HasPrefix(got, "reverted  page, ") || !strings.Contains(got, "applied yes page, ") || !strings.Contains(got, "confirmed  page, applied  page, started") {
		t.Errorf("the events are %s", got)
	}
	while := page.While{WAN: "wan"}
	while.Do, while.Seconds = daemon.WhileOff, 3600
	var until daemon.While
	if code := p.do(t, "POST", "/api/while", while, &until); code != "" || until.Until == "" {
		t.Errorf("off for an hour: %s %+v", code, until)
	}
	if w := p.state(t).WANs[0]; w.On || w.OffUntilMs == 0 || w.Down.Rate != 0 {
		t.Errorf("%+v", w)
	}
	while.Seconds = 0
	if code := p.do(t, "POST", "/api/while", while, &until); code != "" {
		t.Errorf("on again: %s", code)
	}
	if w := p.state(t).WANs[0]; !w.On || w.OffUntilMs != 0 {
		t.Errorf("%+v", w)
	}
	var did daemon.History
	for _, span := range []string{"1h", "24h"} {
		if code := p.do(t, "GET", "/api/line?wan=wan&range="+span, nil, &did); code != "" || did.WAN != "wan" || did.Step < 1 || len(did.At) != len(did.Down.Rate) || len(did.At) != len(did.Up.DelayMax) {
			t.Errorf("%s: %s %+v", span, code, did)
		}
	}
	if code := p.do(t, "GET", "/api/history", nil, nil); code != daemon.CodeLeftOut {
		t.Errorf("the history, which this daemon does not have: %q", code)
	}
	if code := p.do(t, "POST", "/api/run", page.Run{WAN: "wan", Kind: "dance"}, nil); code != daemon.CodeUsage {
		t.Error(code)
	}
}

// The schedule as the page asks for it: what does not hold now is kept at once, what
// does waits, and is taken back; both are in the page's words.
func TestScheduleOnThePage(t *testing.T) {
	h := newHome(t)
	p := h.open(t)
	now := time.Now()
	clock := func(d time.Duration) string { return now.Add(d).Format("15:04") }
	later := config.EntryTable{WAN: "wan", Do: config.DoLast, From: clock(6 * time.Hour), To: clock(7 * time.Hour), Days: []string{"mon", "sat"}, Machine: "192.168.1.7"}
	night := config.EntryTable{WAN: "wan", Do: config.DoRates, From: clock(8 * time.Hour), To: clock(9 * time.Hour), Down: "30 Mbit/s"}
	set := func(to *daemon.Schedule, of ...config.EntryTable) daemon.Code {
		t.Helper()
		return p.do(t, "POST", "/api/schedule", map[string]any{"entries": append([]config.EntryTable{}, of...)}, to)
	}
	var got daemon.Schedule
	if code := set(&got, later, night); code != "" || got.Change != nil || len(got.Entries) != 2 || !reflect.DeepEqual(got.Entries[0], later) || !reflect.DeepEqual(got.Entries[1], night) {
		t.Fatalf("%s %+v", code, got)
	}
	if !strings.HasSuffix(h.text(), "\ndo = \"rates\"\nwan = \"wan\"\nfrom = \""+night.From+"\"\nto = \""+night.To+"\"\ndown = \"30 Mbit/s\"\n") || !strings.Contains(h.text(), "# sold") {
		t.Errorf("the file is\n%s", h.text())
	}
	holds := config.EntryTable{WAN: "wan", Do: config.DoFirst, From: clock(-time.Hour), To: clock(time.Hour), Machine: "192.168.1.7"}
	if code := set(&got, later, night, holds); code != "" || got.Change == nil || got.Change.Kind != daemon.ChangePlan || got.Change.WAN != "wan" || len(got.Entries) != 3 {
		t.Fatalf("%s %+v", code, got)
	}
	if w := p.state(t).WANs[0]; w.Pending == nil || w.Pending.ID != got.Change.ID {
		t.Errorf("%+v", w.Pending)
	}
	if code := set(nil); code != daemon.CodeBusy {
		t.Errorf("another meanwhile: %s", code)
	}
	if code := p.do(t, "POST", "/api/revert", page.Revert{WAN: "wan"}, nil); code != "" {
		t.Error(code)
	}
	if code := p.do(t, "GET", "/api/schedule", nil, &got); code != "" || len(got.Entries) != 2 {
		t.Errorf("%s %+v", code, got)
	}
	if code := set(&got, later, night, holds); code != "" || got.Change == nil {
		t.Fatalf("%s %+v", code, got)
	}
	if code := p.do(t, "POST", "/api/confirm", page.Confirm{Change: got.Change.ID}, nil); code != "" || !strings.Contains(h.text(), "do = \"first\"") {
		t.Errorf("%s\n%s", code, h.text())
	}
	for _, bad := range []config.EntryTable{{WAN: "wan2", Do: config.DoTest, At: "03:30"}, {WAN: "wan", Do: "dance", From: "03:30"}, {WAN: "wan", Do: config.DoTest, At: "3 Uhr"}, {WAN: "wan", Do: config.DoTest, At: "03:30", Machine: "x"}} {
		if code := set(nil, bad); code != daemon.CodeUsage {
			t.Errorf("%+v: %s", bad, code)
		}
	}
}

// The home's machines: names, rates, classes by the rules in force, and "always
// first" as one tap.
func TestMachinesOnThePage(t *testing.T) {
	h := newHome(t)
	p := h.open(t)
	call := flows.Flow{Protocol: 17, Home: netip.MustParseAddrPort("192.168.1.7:5004"), Far: netip.MustParseAddrPort("198.51.100.1:5004"), Up: 20_000, Down: 20_000, Packets: 200, Answered: true}
	load := flows.Flow{Protocol: 6, Home: netip.MustParseAddrPort("192.168.1.7:5005"), Far: netip.MustParseAddrPort("198.51.100.2:443"), Up: 1 << 20, Down: 1 << 30, Packets: 1 << 20, Answered: true, Mark: 0x0f000000}
	odd := flows.Flow{Protocol: 99, Home: netip.MustParseAddrPort("192.168.1.7:0"), Far: netip.MustParseAddrPort("198.51.100.3:0"), Up: 1, Down: 1}
	h.mu.Lock()
	h.flows = []flows.Flow{call, load, odd, {Protocol: 6, Home: netip.MustParseAddrPort("192.168.1.8:1"), Far: netip.MustParseAddrPort("198.51.100.2:443"), Up: 1, Down: 1}}
	h.mu.Unlock()
	half := func(lane string, code classify.Code) string {
		return fmt.Sprintf(`{"bytes":20000,"lane":%q,"code":%d}`, lane, code)
	}
	flow := func(f flows.Flow, half string) string {
		return fmt.Sprintf(`{"protocol":%d,"home":%q,"seen":%[2]q,"far":%q,"up":%s,"down":%[4]s}`, f.Protocol, f.Home, f.Far, half)
	}
	h.router.mu.Lock()
	h.router.at.(*fake.Linux).Kernel.Remembers = `{"flows":[` + flow(call, half("voice", classify.LightSmall)) + "," + flow(load, half("bulk", classify.Long)) + `],"machines":[]}`
	h.router.mu.Unlock()
	rule := func(machine string, a daemon.Action) page.SetLine {
		return page.SetLine{ChangeParams: daemon.ChangeParams{Machine: machine, Action: a}}
	}
	var m page.MachineFlows
	if code := p.do(t, "GET", "/api/machine?address=192.168.1.7", nil, &m); code != "" {
		t.Fatal(code)
	}
	if m.Sight != page.SightClear || m.Machine.Name != "laptop" || m.Machine.Flows != 3 || len(m.Flows) != 3 || m.Machine.Action != daemon.ActionNone {
		t.Fatalf("%+v", m)
	}
	big, small := m.Flows[0], m.Flows[1]
	if big.Protocol != "tcp" || big.Far != "198.51.100.2:443" || big.Down.Class != "bulk" || big.Down.Bytes != 1<<30 || len(big.Down.Why) == 0 || big.Down.Why[len(big.Down.Why)-1].Code != "long" {
		t.Errorf("%+v", big)
	}
	if small.Protocol != "udp" || small.Up.Class != "voice" || small.Up.Why[len(small.Up.Why)-1].Code != "calm_small" {
		t.Errorf("%+v", small)
	}
	if m.Flows[2].Protocol != "other" || m.Flows[2].Home != "192.168.1.7" {
		t.Errorf("%+v", m.Flows[2])
	}
	var c daemon.Change
	if code := p.do(t, "POST", "/api/line", rule("192.168.1.7", daemon.ActionLast), &c); code != "" || c.Kind != daemon.ChangeRule {
		t.Fatalf("%s %+v", code, c)
	}
	if code := p.do(t, "GET", "/api/machine?address=192.168.1.7", nil, &m); code != "" {
		t.Fatal(code)
	}
	for _, f := range m.Flows[:2] {
		if f.Up.Class != "bulk" || f.Up.Why[0] != (daemon.ClassWhy{Code: "by_rule", Rule: "last"}) {
			t.Errorf("with the rule: %+v", f.Up)
		}
	}
	if code := p.do(t, "POST", "/api/confirm", page.Confirm{Change: c.ID}, nil); code != "" || !strings.Contains(h.text(), "last = [\"192.168.1.7\"]") {
		t.Errorf("%s\n%s", code, h.text())
	}
	h.until("the machine has its rule", func() bool {
		for _, m := range p.state(t).Machines {
			if m.Address == "192.168.1.7" && m.Action == daemon.ActionLast {
				return true
			}
		}
		return false
	})
	for _, r := range []page.SetLine{rule("laptop", daemon.ActionFirst), rule("192.168.1.7", "best")} {
		if code := p.do(t, "POST", "/api/line", r, nil); code != daemon.CodeUsage {
			t.Errorf("%+v: %s", r, code)
		}
	}
}

// A machine that uploads has the class of its upload, and not that of the acknowledgements
// that come back.
func TestMachineHasTheClassOfItsTraffic(t *testing.T) {
	h := newHome(t)
	p := h.open(t)
	up := flows.Flow{Protocol: 6, Home: netip.MustParseAddrPort("192.168.1.7:5005"), Far: netip.MustParseAddrPort("198.51.100.2:443"), Up: 1 << 30, Down: 1 << 24, Packets: 1 << 20, Answered: true}
	h.router.mu.Lock()
	h.router.at.(*fake.Linux).Kernel.Remembers = fmt.Sprintf(`{"flows":[{"protocol":6,"home":%q,"seen":%[1]q,"far":%q,"up":{"bytes":1073741824,"lane":"normal","code":%d},"down":{"bytes":16777216,"lane":"interactive","code":%d}}],"machines":[]}`,
		up.Home, up.Far, classify.Ordinary, classify.Acknowledges)
	h.router.mu.Unlock()
	h.until("the machine's class", func() bool {
		h.mu.Lock()
		up.Up, up.Down = up.Up+1<<20, up.Down+20_000
		h.flows = []flows.Flow{up}
		h.mu.Unlock()
		for _, m := range p.state(t).Machines {
			if m.Address == "192.168.1.7" && m.Class != "" {
				if m.Class != "normal" {
					t.Fatalf("a machine that uploads is %q: %+v", m.Class, m)
				}
				return true
			}
		}
		return false
	})
}

// Findings are shown, and what the daemon can mend it mends.
func TestHealthOnThePage(t *testing.T) {
	h := newHome(t)
	p := h.open(t)
	h.mu.Lock()
	h.found = []platform.Finding{{ID: "drift", Blocking: true, What: "w", Why: "y", Remedy: "r"}, {ID: "ntp", What: "c"}}
	h.mu.Unlock()
	var got page.Health
	if code := p.do(t, "GET", "/api/health?wan=wan", nil, &got); code != "" || len(got.Findings) != 2 || !got.Findings[0].Mend || got.Findings[1].Mend || got.OK || got.Checked != 1 {
		t.Errorf("%s %+v", code, got)
	}
	if code := p.do(t, "POST", "/api/mend", page.Mend{WAN: "wan", Code: "drift"}, &got); code != "" {
		t.Error(code)
	}
	for _, m := range []page.Mend{{WAN: "wan", Code: "ntp"}, {WAN: "wan", Code: "rm -rf /"}} {
		if code := p.do(t, "POST", "/api/mend", m, nil); code != daemon.CodeUsage {
			t.Errorf("%+v: %s", m, code)
		}
	}
	if code := p.do(t, "GET", "/api/health?wan=wan9", nil, nil); code != daemon.CodeUnknownWAN {
		t.Error(code)
	}
}

// stream reads States until it has n.
func (p *visit) stream(t testing.TB, n int) []page.State {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), "GET", p.h.url+"/api/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := p.c.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if r.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%d %v", r.StatusCode, r.Header)
	}
	var out []page.State
	in := bufio.NewReader(r.Body)
	for len(out) < n {
		line, err := in.ReadString('\n')
		if err != nil {
			t.Errorf("after %d states: %v", len(out), err)
			return out
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			var s page.State
			if err := json.Unmarshal([]byte(data), &s); err != nil {
				t.Fatal(err)
			}
			out = append(out, s)
		}
	}
	return out
}

// All viewers of a stream get the same States, made once.
func TestStream(t *testing.T) {
	h := newHome(t)
	p := h.open(t)
	var wg sync.WaitGroup
	var all [5][]page.State
	for i := range all {
		wg.Go(func() { all[i] = p.stream(t, 3) })
	}
	wg.Wait()
	same := 0
	for _, a := range all[1:] {
		for _, s := range a {
			for _, o := range all[0] {
				if s.TimeMs == o.TimeMs {
					same++
				}
			}
		}
	}
	if same < 4 {
		t.Errorf("only %d of their states are the same", same)
	}
}

// While a thousand clients are slow, ten thousand requests are forged and bodies are
// far too large, nothing changes, the daemon mends what somebody takes away, and a
// person at another address sees it. Room is bounded for each address, so whoever
// shares the attackers' may have to wait until they are gone.
func TestHostileClients(t *testing.T) {
	await.NotShort(t)
	h := newHome(t)
	beside, p := h.open(t), h.openFrom(t, "127.0.0.2")
	text, before := h.text(), h.status()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	address := strings.TrimPrefix(h.url, "http://")
	hold := make(chan net.Conn, 1000)
	wg.Go(func() { // slow ones
		for range 1000 {
			c, err := net.Dial("tcp", address)
			if err != nil {
				continue
			}
			_, _ = io.WriteString(c, "POST /api/line HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 50\r\n\r\n{")
			hold <- c
		}
	})
	forged := []string{
		"POST /api/line HTTP/1.1\r\nHost: evil.example\r\nOrigin: http://evil.example\r\nContent-Type: application/json\r\nContent-Length: 27\r\n\r\n{\"wan\":\"wan\",\"on\":false   }",
		"POST /api/line HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://evil.example\r\nContent-Type: text/plain\r\nContent-Length: 27\r\n\r\n{\"wan\":\"wan\",\"on\":false   }",
		"POST /api/confirm HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: unbloat=AAAA\r\nContent-Type: application/json\r\nContent-Length: 14\r\n\r\n{\"change\":\"x\"}",
		"POST /api/login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 22\r\n\r\n{\"password\":\"guess12\"}",
		"POST /api/line HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 10000000\r\n\r\n" + strings.Repeat("x", 100_000),
		"GET /api/stream HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
	}
	for k := range 4 {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				c, err := net.Dial("tcp", address)
				if err != nil {
					continue
				}
				_ = c.SetDeadline(time.Now().Add(time.Second))
				_, _ = io.WriteString(c, forged[(i+k)%len(forged)])
				_, _ = c.Read(make([]byte, 100))
				c.Close()
			}
		})
	}
	// Meanwhile somebody takes the shaping away; the daemon is told, and puts it back.
	for round := range 3 {
		if _, _, err := h.router.Run(ctx, []string{"tc", "qdisc", "del", "dev", "wan", "root"}, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := h.daemon.On(ctx, daemon.Name{WAN: "wan"}, daemon.OnParams{}); err != nil {
			t.Errorf("round %d: %v", round, err)
		}
		h.until("it is mended", func() bool { return h.status().Mends > before.Mends+round })
		p.c.CloseIdleConnections() // each look needs a connection of its own
		if got := p.state(t); len(got.WANs) != 1 || !got.WANs[0].On {
			t.Errorf("round %d: %+v", round, got)
		}
	}
	cancel()
	wg.Wait()
	close(hold)
	for c := range hold {
		c.Close()
	}
	// Connections of theirs that the kernel still holds come in late, and push others of
	// their address out: one look that was answered is the proof, and the last one made.
	var last page.State
	h.until("the page answers their address again", func() bool {
		r, err := beside.c.Get(h.url + "/api/state")
		if err != nil {
			return false
		}
		defer r.Body.Close()
		last = page.State{}
		return json.NewDecoder(r.Body).Decode(&last) == nil && r.StatusCode == http.StatusOK
	})
	if len(last.WANs) != 1 || !last.WANs[0].On {
		t.Errorf("afterwards: %+v", last)
	}
	if h.text() != text || h.status().State != "in place" || h.status().Down != before.Down {
		t.Errorf("something changed: %+v\n%s", h.status(), h.text())
	}
	if set, err := h.daemon.Settings(t.Context(), daemon.Name{}); err != nil || set[0].Change != nil {
		t.Errorf("%+v %v", set, err)
	}
}

// BenchmarkViewers is a second of five viewers with a home of a hundred machines and
// a thousand flows: what it takes must be at most 10 ms of a core.
func BenchmarkViewers(b *testing.B) {
	h := newHome(b)
	for i := range 1000 {
		h.flows = append(h.flows, flows.Flow{Protocol: 17, Home: netip.MustParseAddrPort(fmt.Sprintf("192.168.1.%d:%d", i%100+2, i+1)), Far: netip.MustParseAddrPort("198.51.100.1:443"), Up: 1, Down: 1})
	}
	s := page.NewSource(page.SourceOptions{Daemon: h.daemon, Each: func(_ context.Context, f func(flows.Flow)) error {
		for _, x := range h.flows {
			f(x)
		}
		return nil
	}})
	s.State(b.Context())
	b.ReportAllocs()
	size := 0
	for b.Loop() {
		out, err := json.Marshal(s.State(b.Context()))
		if err != nil {
			b.Fatal(err)
		}
		size = len(out)
		var viewers [5]bytes.Buffer
		for i := range viewers {
			viewers[i].Write(out)
		}
	}
	b.ReportMetric(float64(size), "bytes")
}

// BenchmarkFirstAnswer is a request of the page and of the session on the loopback.
func BenchmarkFirstAnswer(b *testing.B) {
	h := newHome(b)
	for b.Loop() {
		c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		for _, path := range []string{"/", "/api/session"} {
			r, err := c.Get(h.url + path)
			if err != nil {
				b.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, r.Body)
			r.Body.Close()
		}
	}
}
